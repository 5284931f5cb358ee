/* A process whose options are in the environment: for libraries that `rkcosim` puts before a program. */
#ifndef RK_ENVIRONMENT_H
#define RK_ENVIRONMENT_H

#include "rk_worker.h"

/* Start a process with the options in the variable `options`, lines "name=value" (apis/link/settings.py), and
 * with a JSON document of this process in the folder of the variable `results`.  Return NULL, with a text in
 * `error` (RK_TEXT bytes), if that fails. */
struct rk_worker *rk_worker_of_environment(enum rk_runtime runtime, const char *options, const char *results,
                                           char *error);

#endif
