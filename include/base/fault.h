/*
 * fault.h - places at which a test lets the process die or stand still. Nothing of it is in a
 * release: without IDEMSINK_FAULTS (cmake --preset faults) a point compiles to nothing.
 *
 * The environment says which: IDEMSINK_FAULT="name" kills the process with -9 where it comes to
 * FAULT("name") the first time, "name:3" the third time, "name:3:stop" stops it there (SIGSTOP), to
 * be continued by whoever watches. Any thread may come to a point.
 */
#ifndef IDEMSINK_BASE_FAULT_H
#define IDEMSINK_BASE_FAULT_H

void fault_point(const char *name); /* there with IDEMSINK_FAULTS alone */

#ifdef IDEMSINK_FAULTS
#define FAULT(name) fault_point(name)
#else
#define FAULT(name) ((void)0)
#endif

#endif
