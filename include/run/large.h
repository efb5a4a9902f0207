/*
 * large.h - one large payload at a time is parsed in the whole process.
 *
 * A tree takes up to 80 times its text, and who produces decides how often: four workers with 10 MB
 * of empty objects each held 3 GB (measured). Nobody waits for long: parsing and building a
 * document takes about a tenth of a second for 10 MB of sane JSON.
 *
 * Any thread; it may hold no lock and must not call this twice.
 */
#ifndef IDEMSINK_RUN_LARGE_H
#define IDEMSINK_RUN_LARGE_H

#include "core/record.h"

/* Around whatever may parse r. Waits when r is large and another large one is being parsed. */
void large_begin(const struct record *r);
void large_end(const struct record *r);

#endif
