/*
 * A topic that no route reads: said with those that are read, as a name is mostly mistyped.
 */
#include <stdio.h>

#include "cli/cli.h"

enum { TOPICS_SHOWN = 10 };

void cli_say_no_route(const struct args *args, const struct config *c, const char *topic,
                      const char *more)
{
    size_t shown = 0, left = 0;

    fprintf(stderr,
            "idemsink: %s: no route reads topic \"%.249s\"%s; the routes read:", args->config_file,
            topic, more);
    for (size_t i = 0; i < c->n_routes; i++)
        for (size_t k = 0; k < c->routes[i].topics.n; k++) {
            if (shown == TOPICS_SHOWN)
                left++;
            else
                fprintf(stderr, "%s %s", shown++ > 0 ? "," : "", c->routes[i].topics.items[k]);
        }
    if (left > 0)
        fprintf(stderr, " and %zu more", left);
    fputc('\n', stderr);
}
