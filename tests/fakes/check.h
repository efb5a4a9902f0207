/*
 * check.h - an assertion that works in any thread: says where, and aborts.
 */
#ifndef IDEMSINK_TESTS_CHECK_H
#define IDEMSINK_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: not so: %s: ", __FILE__, __LINE__, #cond);               \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fputc('\n', stderr);                                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
