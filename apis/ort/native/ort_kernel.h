/* A part of onnxruntime's graph, which the simulator's process runs. */
#ifndef ORT_KERNEL_H
#define ORT_KERNEL_H

#include "ort.h"
#include "rk_worker.h"

#include <pthread.h>

#define TEXT_ROOM (RK_TEXT + 64)

struct kernel {
    struct ort_kernel shown; /* first member: onnxruntime uses its address */
    const struct ort_api *api;
    struct rk_worker *worker;
    pthread_mutex_t lock;
    uint64_t part;
    size_t inputs, outputs;
    /* the last shapes of the inputs, and what the process answered about them */
    uint8_t *shapes;
    uint64_t shapes_size, number, room;
    int64_t *results; /* rank and sizes of each output */
};

/* Return a kernel without a part, or NULL. */
struct kernel *ort_new_kernel(const struct ort_api *api, struct rk_worker *worker);
/* Free a kernel and its part. */
void ort_free_kernel(struct kernel *kernel);
/* Return a status with a text that begins with "rkcosim: ". */
struct ort_status *ort_failure(const struct ort_api *api, int code, const char *error);
/* Make a call without contents; its errors are ignored. */
void ort_simple_call(struct rk_worker *worker, enum rk_call call, uint64_t number);

#endif
