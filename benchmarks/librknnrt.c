/* librknnrt MODEL: medians in microseconds of rknn_query (10,000 calls), of rknn_inputs_set and of
 * rknn_outputs_get (50 calls each, float32), and the numbers of elements of input and output. */
#include "rkcosim_rknn.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALL(call, code)                                   \
    do {                                                   \
        int got_ = (call);                                 \
        if (got_ != (code)) {                              \
            fprintf(stderr, "%s gave %d\n", #call, got_); \
            exit(1);                                       \
        }                                                  \
    } while (0)

static double times[10000];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define MEDIAN(count, call)                               \
    __extension__({                                       \
        for (int n = 0; n < (count); n++) {               \
            double begun = now();                         \
            CALL(call, 0);                                \
            times[n] = now() - begun;                     \
        }                                                 \
        qsort(times, (count), sizeof(times[0]), order);   \
        times[(count) / 2];                               \
    })

int main(int argc, char **argv)
{
    rknn_context ctx;
    rknn_tensor_attr in = {.index = 0}, out = {.index = 0};
    if (argc != 2)
        return 2;
    CALL(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);
    CALL(rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &out, sizeof(out)), 0);
    printf("%.1f", MEDIAN(10000, rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof(in))));
    float *data = malloc(in.n_elems * 4), *result = malloc(out.n_elems * 4);
    for (unsigned n = 0; n < in.n_elems; n++)
        data[n] = (float)(n % 251) / 251.0f;
    rknn_input input = {.index = 0, .buf = data, .size = in.n_elems * 4, .type = RKNN_TENSOR_FLOAT32,
                        .fmt = RKNN_TENSOR_NHWC};
    rknn_output output = {.want_float = 1, .is_prealloc = 1, .buf = result, .size = out.n_elems * 4};
    printf(" %.1f", MEDIAN(50, rknn_inputs_set(ctx, 1, &input)));
    CALL(rknn_run(ctx, NULL), 0);
    printf(" %.1f %u %u\n", MEDIAN(50, rknn_outputs_get(ctx, 1, &output, NULL)), in.n_elems, out.n_elems);
    CALL(rknn_destroy(ctx), 0);
    return 0;
}
