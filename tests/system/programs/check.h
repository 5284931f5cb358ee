/* Checks of test programs: the first that fails is named, and ends the program with 1. */
#ifndef CHECK_H
#define CHECK_H
#include "rkcosim_rknn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#define CALL(call, code)                                                                                   \
    do {                                                                                                   \
        int got_ = (call);                                                                                 \
        if (got_ != (code)) {                                                                              \
            fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, got_, (int)(code)); \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

/* `count` pseudo-random numbers from 0 to 1, the same in every program for the same seed. */
static inline void fill(float *data, unsigned count, unsigned seed)
{
    for (unsigned n = 0; n < count; n++) {
        seed = seed * 1103515245u + 12345u;
        data[n] = (float)(seed >> 16 & 255) / 255.0f;
    }
}

/* One frame of a model with one input and one output; the output is the caller's to free. */
static inline float *frame(rknn_context ctx, unsigned seed, unsigned *count)
{
    rknn_tensor_attr in = {.index = 0}, out = {.index = 0};
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof(in)), 0);
    CALL(rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &out, sizeof(out)), 0);
    float *data = malloc(in.n_elems * sizeof(float)), *result = malloc(out.n_elems * sizeof(float));
    fill(data, in.n_elems, seed);
    rknn_input input = {.index = 0, .buf = data, .size = in.n_elems * 4, .type = RKNN_TENSOR_FLOAT32,
                        .fmt = RKNN_TENSOR_NHWC};
    CALL(rknn_inputs_set(ctx, 1, &input), 0);
    CALL(rknn_run(ctx, NULL), 0);
    rknn_output output = {.want_float = 1};
    CALL(rknn_outputs_get(ctx, 1, &output, NULL), 0);
    CHECK(output.size == out.n_elems * 4);
    memcpy(result, output.buf, output.size);
    CALL(rknn_outputs_release(ctx, 1, &output), 0);
    CHECK(output.buf == NULL);
    free(data);
    *count = out.n_elems;
    return result;
}
#endif
