/* The process that executes the graphs: its start with options from the environment, and requests to it. */
#include "hexagon_calls.h"
#include "rk_environment.h"

#include <pthread.h>
#include <stdio.h>

#define OPTIONS "RKCOSIM_HEXAGON"         /* lines "name=value" (apis/link/settings.py) */
#define RESULTS "RKCOSIM_HEXAGON_RESULTS" /* folder for a JSON document of each process */
#define LEAST_ROOM 4096

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rk_worker *worker;
static int told;

static void tell(const char *error)
{
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "rkcosim: hexagon_nn: %s\n", error);
}

static void start(void)
{
    char error[RK_TEXT];
    worker = rk_worker_of_environment(RK_HEXAGON, OPTIONS, RESULTS, error);
    if (!worker)
        tell(error);
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
