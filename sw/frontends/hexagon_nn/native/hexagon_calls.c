/* The process that executes the graphs: its start with options from the environment, and requests to it. */
#include "hexagon_calls.h"
#include "rk_worker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OPTIONS "RKCOSIM_HEXAGON"         /* lines "name=value" (sw/plugins/settings.py) */
#define RESULTS "RKCOSIM_HEXAGON_RESULTS" /* folder for a JSON document of each process */
#define MOST_OPTIONS 64
#define LEAST_ROOM 4096

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rk_worker *worker;
static char text[RK_TEXT]; /* of the environment's options, then of an error */
static int told;

static void tell(const char *error)
{
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "rkcosim: hexagon_nn: %s\n", error);
}

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

static void start(void)
{
    static const char *options[MOST_OPTIONS + 2];
    static char results[RK_TEXT];
    char error[RK_TEXT];
    uint64_t limit = 0;
    const char *given = getenv(OPTIONS), *folder = getenv(RESULTS);
    snprintf(text, sizeof(text), "%s", given ? given : "");
    size_t count = divide(text, options);
    if (folder) {
        snprintf(results, sizeof(results), "%s/%ld.json", folder, (long)getpid());
        options[count++] = "json";
        options[count++] = results;
    }
    worker = rk_worker_start(RK_HEXAGON, options, count, &limit, sizeof(limit), error);
    if (!worker)
        tell(error);
    else
        rk_worker_limit(worker, limit);
}

int hx_send(const struct hx_request *request)
{
    pthread_once(&once, start);
    if (!worker)
        return -1;
    struct out out = {0};
    if (request->write)
        request->write(&out, request->what);
    uint64_t size = out.used > request->room ? out.used : request->room;
    uint8_t *memory = rk_worker_begin(worker, size > LEAST_ROOM ? size : LEAST_ROOM);
    int result = -1;
    if (!memory) {
        tell("there is no shared memory for the simulator");
    } else {
        char error[RK_TEXT];
        struct rk_message message;
        out = (struct out){.at = memory};
        if (request->write)
            request->write(&out, request->what);
        if (rk_worker_call(worker, (enum rk_call)request->call, request->graph, out.used, &message, error) == RK_OK) {
            result = (int)(int64_t)message.number;
            if (request->read) {
                int other = request->read(memory, message.used, request->result);
                result = result ? result : other;
            }
        } else {
            tell(error);
        }
    }
    rk_worker_end(worker);
    return result;
}

static void write_numbers(struct out *out, const void *what)
{
    const struct hx_numbers *given = what;
    put(out, given->numbers, given->count * sizeof(int64_t));
}

int hx_send_numbers(enum hx_call call, uint32_t graph, const int64_t *numbers, unsigned count)
{
    struct hx_numbers given = {(int64_t *)numbers, count};
    return hx_send(&(struct hx_request){.call = call, .graph = graph, .write = write_numbers, .what = &given});
}

int hx_read_numbers(const uint8_t *content, uint64_t size, void *result)
{
    struct hx_numbers *wanted = result;
    if (size < wanted->count * sizeof(int64_t))
        return -1;
    memcpy(wanted->numbers, content, wanted->count * sizeof(int64_t));
    return 0;
}
