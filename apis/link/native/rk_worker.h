/* The process that simulates for a plug-in of a runtime (LiteRT, onnxruntime): its start, calls, and end.
 * apis/link/protocol.py describes the messages.  All functions may be called by several threads. */
#ifndef RK_WORKER_H
#define RK_WORKER_H

#include <stddef.h>
#include <stdint.h>

#define RK_TEXT 4096 /* bytes of an error's text, with the final zero */

enum rk_runtime { RK_LITERT = 1, RK_ONNXRUNTIME = 2, RK_HEXAGON = 4, RK_NNAPI = 5 };
enum rk_call {
    RK_HELLO = 1,
    RK_GRAPH = 2,
    RK_COMPILE = 3,
    RK_FORGET = 4,
    RK_RUN = 5,
    RK_RELEASE = 6,
    RK_CLOSE = 7,
    RK_SHAPE = 8,
};
enum rk_status { RK_OK = 0, RK_FAILED = 1, RK_LEAVE = 2 };

struct rk_message {
    uint32_t call;
    uint32_t status;  /* of an answer */
    uint64_t number;  /* of a graph or of a part */
    uint64_t used;    /* bytes of the request, or of the answer, in the shared memory */
    uint64_t size;    /* bytes of the shared memory; it is sent along if it is new */
};

struct rk_worker;

/* Start a process for a runtime and give it the options ("name", "value", ..., `count` strings).  Return NULL and a text in
 * `error` (RK_TEXT bytes) if that fails.  `answer` (`room` bytes) becomes the start of the answer. */
struct rk_worker *rk_worker_start(enum rk_runtime runtime, const char *const *options, size_t count,
                                  void *answer, size_t room, char *error);
/* Set the longest time of a call in milliseconds. */
void rk_worker_limit(struct rk_worker *worker, uint64_t milliseconds);
/* Reserve the process for this thread, with `size` bytes of shared memory, in which the request is written
 * and the answer is found; NULL if there is no memory.  rk_worker_end must follow in either case. */
uint8_t *rk_worker_begin(struct rk_worker *worker, uint64_t size);
/* Send a request of `used` bytes and wait for the answer, which is in `message`.  Return RK_OK, RK_LEAVE, or
 * RK_FAILED with a text in `error` (RK_TEXT bytes), also if the process has ended or takes too long. */
int rk_worker_call(struct rk_worker *worker, enum rk_call call, uint64_t number, uint64_t used,
                   struct rk_message *message, char *error);
void rk_worker_end(struct rk_worker *worker);
/* Let the process write its results and wait for its end; later calls fail. */
void rk_worker_close(struct rk_worker *worker);
/* Count the owners; the last one's drop closes the process and frees the memory. */
void rk_worker_keep(struct rk_worker *worker);
void rk_worker_drop(struct rk_worker *worker);

#endif
