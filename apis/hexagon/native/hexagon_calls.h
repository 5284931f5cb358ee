/* Requests to the process that executes the graphs; apis/hexagon/calls.py describes them. */
#ifndef HEXAGON_CALLS_H
#define HEXAGON_CALLS_H

#include "rk_writer.h"

#include <stdint.h>

enum hx_call {
    HX_INIT = 200,
    HX_NODE = 201,
    HX_CONSTANT = 202,
    HX_EMPTY = 203,
    HX_POPULATE = 204,
    HX_PREPARE = 205,
    HX_EXECUTE = 206,
    HX_TEARDOWN = 207,
    HX_LOG = 208,
    HX_PRINT = 209,
    HX_DEBUG = 210,
    HX_PERFINFO = 211,
    HX_RESET = 212,
    HX_CYCLES = 213,
    HX_NODE_TYPE = 214,
    HX_COUNT = 215,
    HX_NUMBER = 217,
    HX_NAME = 218,
    HX_READ = 219,
    HX_WRITE = 220,
};

/* Writes the contents of a request. */
typedef void hx_writer(struct out *out, const void *what);
/* Reads the contents of an answer; return 0, or the value for the program. */
typedef int hx_reader(const uint8_t *content, uint64_t size, void *result);

struct hx_request {
    enum hx_call call;
    uint32_t graph;
    hx_writer *write; /* NULL: no contents */
    const void *what;
    uint64_t room; /* bytes of the answer */
    hx_reader *read; /* NULL: no contents */
    void *result;
};

/* Send a request, starting the process at the first one.  Return the function's value; if the process cannot
 * answer, write the reason to standard error once, and return -1. */
int hx_send(const struct hx_request *request);
/* Send a request with a few numbers as its contents, and no contents in the answer. */
int hx_send_numbers(enum hx_call call, uint32_t graph, const int64_t *numbers, unsigned count);
/* Read `count` numbers of 64 bits into an array; `result` is struct hx_numbers. */
struct hx_numbers {
    int64_t *numbers;
    unsigned count;
};
hx_reader hx_read_numbers;

#endif
