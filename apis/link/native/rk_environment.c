/* A process whose options are in the environment; rk_environment.h describes the function. */
#include "rk_environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_OPTIONS 64

/* Divide lines "name=value" into strings; return their number. */
static size_t divide(char *lines, const char **options)
{
    size_t count = 0;
    char *rest = lines;
    for (char *line; (line = strsep(&rest, "\n")) && count < MOST_OPTIONS;) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value = 0;
        options[count++] = line;
        options[count++] = value + 1;
    }
    return count;
}

struct rk_worker *rk_worker_of_environment(enum rk_runtime runtime, const char *options, const char *results,
                                           char *error)
{
    const char *list[MOST_OPTIONS + 3];
    char text[RK_TEXT], file[RK_TEXT];
    uint64_t limit = 0;
    const char *given = getenv(options), *folder = getenv(results);
    snprintf(text, sizeof(text), "%s", given ? given : "");
    size_t count = divide(text, list);
    if (folder) {
        snprintf(file, sizeof(file), "%s/%ld.json", folder, (long)getpid());
        list[count++] = "json";
        list[count++] = file;
    }
    struct rk_worker *worker = rk_worker_start(runtime, list, count, &limit, sizeof(limit), error);
    if (worker)
        rk_worker_limit(worker, limit);
    return worker;
}
