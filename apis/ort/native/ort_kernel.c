/* Inferences of a part; ort_kernel.h describes the functions. */
#include "ort_kernel.h"
#include "rk_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK 16

struct ort_status *ort_failure(const struct ort_api *api, int code, const char *error)
{
    char text[RK_TEXT + 16];
    snprintf(text, sizeof(text), "rkcosim: %s", error);
    return api->create_status(code, text);
}

void ort_simple_call(struct rk_worker *worker, enum rk_call call, uint64_t number)
{
    char error[RK_TEXT];
    struct rk_message message;
    if (rk_worker_begin(worker, 0))
        rk_worker_call(worker, call, number, 0, &message, error);
    rk_worker_end(worker);
}

/* Write the shapes of all inputs; return their number of bytes in `o`. */
static struct ort_status *put_shapes(const struct kernel *k, struct ort_context *c, struct out *o)
{
    struct ort_status *status = NULL;
    for (size_t n = 0; !status && n < k->inputs; n++) {
        const struct ort_value *value = NULL;
        struct ort_shape *shape = NULL;
        int64_t sizes[RANK];
        size_t rank = 0;
        status = k->api->input(c, n, &value);
        if (!status && value)
            status = k->api->shape_of_value(value, &shape);
        if (!status && shape)
            status = k->api->rank(shape, &rank);
        if (!status && rank > RANK)
            status = ort_failure(k->api, ORT_FAIL, "a tensor has more than 16 axes");
        if (!status && shape)
            status = k->api->dimensions(shape, sizes, rank);
        if (shape)
            k->api->release_shape(shape);
        if (!status)
            put_bytes(o, sizes, rank * sizeof(*sizes));
    }
    return status;
}

static int read_shapes(struct kernel *k, const uint8_t *answer, uint64_t used, char *error)
{
    uint64_t at = 1, count = used / sizeof(int64_t);
    int64_t *numbers = malloc(used + 1);
    if (!numbers) {
        snprintf(error, RK_TEXT, "out of memory");
        return RK_FAILED;
    }
    memcpy(numbers, answer, used);
    for (size_t n = 0; n < k->outputs && at < count; n++)
        at += numbers[at] >= 0 && numbers[at] <= RANK ? (uint64_t)numbers[at] + 1 : count;
    if (!count || at != count) {
        free(numbers);
        snprintf(error, RK_TEXT, "the simulator's answer has the wrong size");
        return RK_FAILED;
    }
    k->room = (uint64_t)numbers[0];
    memmove(numbers, numbers + 1, (count - 1) * sizeof(*numbers));
    free(k->results);
    k->results = numbers;
    return RK_OK;
}

/* Let the process compile the part for the inputs' shapes, if they are other ones than before. */
static struct ort_status *fit(struct kernel *k, struct ort_context *c)
{
    struct out count = {NULL, 0};
    struct rk_message message;
    char error[RK_TEXT] = "out of memory";
    struct ort_status *status = put_shapes(k, c, &count);
    if (status)
        return status;
    uint8_t *shapes = malloc(count.used + 1);
    struct out o = {shapes, 0};
    if (!shapes)
        return ort_failure(k->api, ORT_FAIL, error);
    status = put_shapes(k, c, &o);
    if (status || (k->shapes && o.used == k->shapes_size && !memcmp(shapes, k->shapes, o.used))) {
        free(shapes);
        return status;
    }
    free(k->shapes);
    k->shapes = NULL;
    uint8_t *memory = rk_worker_begin(k->worker, o.used + TEXT_ROOM * (k->outputs + 1));
    int result = RK_FAILED;
    if (memory) {
        memcpy(memory, shapes, o.used);
        result = rk_worker_call(k->worker, RK_SHAPE, k->part, o.used, &message, error);
        if (result == RK_OK)
            result = read_shapes(k, memory, message.used, error);
    }
    rk_worker_end(k->worker);
    if (result != RK_OK) {
        free(shapes);
        return ort_failure(k->api, ORT_FAIL, error);
    }
    k->number = message.number;
    k->shapes = shapes;
    k->shapes_size = o.used;
    return NULL;
}

static struct ort_status *put_inputs(const struct kernel *k, struct ort_context *c, uint8_t *memory, uint64_t *at)
{
    struct ort_status *status = NULL;
    for (size_t n = 0; !status && n < k->inputs; n++) {
        const struct ort_value *value = NULL;
        void *data = NULL;
        size_t size = 0;
        status = k->api->input(c, n, &value);
        if (!status && value)
            status = k->api->tensor_bytes(value, &size);
        if (!status && size)
            status = k->api->tensor_data((struct ort_value *)value, &data);
        if (!status && *at + size > k->room)
            status = ort_failure(k->api, ORT_FAIL, "an input has another type than the graph says");
        if (!status && data)
            memcpy(memory + *at, data, size);
        *at += RK_ALIGN(size);
    }
    return status;
}

static struct ort_status *get_outputs(const struct kernel *k, struct ort_context *c, const uint8_t *memory,
                                      uint64_t at)
{
    struct ort_status *status = NULL;
    const int64_t *shape = k->results;
    for (size_t n = 0; !status && n < k->outputs; n++) {
        struct ort_value *value = NULL;
        void *data = NULL;
        size_t size = 0;
        status = k->api->output(c, n, shape + 1, (size_t)shape[0], &value);
        if (!status && value)
            status = k->api->tensor_bytes(value, &size);
        if (!status && size)
            status = k->api->tensor_data(value, &data);
        if (!status && at + size > k->room)
            status = ort_failure(k->api, ORT_FAIL, "an output has another type than the graph says");
        if (!status && data)
            memcpy(data, memory + at, size);
        at += RK_ALIGN(size);
        shape += shape[0] + 1;
    }
    return status;
}

static struct ort_status *run(struct kernel *k, struct ort_context *c)
{
    uint64_t at = 0;
    struct rk_message message;
    char error[RK_TEXT] = "there is no shared memory for the tensors";
    struct ort_status *status = NULL;
    uint8_t *memory = rk_worker_begin(k->worker, k->room + TEXT_ROOM);
    if (!memory)
        status = ort_failure(k->api, ORT_FAIL, error);
    else
        status = put_inputs(k, c, memory, &at);
    if (!status && rk_worker_call(k->worker, RK_RUN, k->number, k->room, &message, error) != RK_OK)
        status = ort_failure(k->api, ORT_FAIL, error);
    if (!status)
        status = get_outputs(k, c, memory, at);
    rk_worker_end(k->worker);
    return status;
}

static struct ort_status *kernel_compute(struct ort_kernel *shown, void *state, struct ort_context *c)
{
    struct kernel *k = (struct kernel *)shown;
    size_t inputs = 0, outputs = 0;
    (void)state;
    struct ort_status *status = k->api->count_inputs(c, &inputs);
    if (!status)
        status = k->api->count_outputs(c, &outputs);
    if (!status && (inputs != k->inputs || outputs != k->outputs))
        status = ort_failure(k->api, ORT_FAIL, "onnxruntime gives another number of tensors than it announced");
    if (status)
        return status;
    pthread_mutex_lock(&k->lock);
    status = fit(k, c);
    if (!status)
        status = run(k, c);
    pthread_mutex_unlock(&k->lock);
    return status;
}

static struct ort_status *kernel_state(struct ort_kernel *shown, void *context, void **state)
{
    (void)context;
    *state = shown;
    return NULL;
}

static void kernel_release_state(struct ort_kernel *shown, void *state)
{
    (void)shown;
    (void)state;
}

struct kernel *ort_new_kernel(const struct ort_api *api, struct rk_worker *worker)
{
    struct kernel *k = calloc(1, sizeof(*k));
    if (!k)
        return NULL;
    k->shown = (struct ort_kernel){ORT_CALLBACKS, kernel_state, kernel_compute, kernel_release_state};
    k->api = api;
    k->worker = worker;
    rk_worker_keep(worker);
    pthread_mutex_init(&k->lock, NULL);
    return k;
}

void ort_free_kernel(struct kernel *k)
{
    if (k->part)
        ort_simple_call(k->worker, RK_RELEASE, k->part);
    rk_worker_drop(k->worker);
    pthread_mutex_destroy(&k->lock);
    free(k->shapes);
    free(k->results);
    free(k);
}
