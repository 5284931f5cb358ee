/* Executions, bursts and events. */
#include "nnapi_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NO_LIMIT (-1)

struct pointer {
    int32_t index;
    void *at;
    uint64_t size;
};

/* Arguments behind pointers, in the order of their indices. */
struct pointers {
    struct pointer *list;
    uint32_t count;
};

struct ANeuralNetworksExecution {
    uint64_t id;
    struct pointers sides[2]; /* inputs, outputs */
    int owners;               /* changed atomically */
};

enum event_kind { OF_EXECUTION, WITH_DESCRIPTOR, FENCE_OF_PROGRAM };

struct ANeuralNetworksEvent {
    int fd;     /* readable when the execution has ended, or the program's fence; -1 if there is none */
    enum event_kind kind;
    int owners; /* changed atomically */
    int done, result;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* -- executions ------------------------------------------------------------------------------------- */

NN_PUBLIC int ANeuralNetworksExecution_create(ANeuralNetworksCompilation *compilation,
                                              ANeuralNetworksExecution **execution)
{
    if (!compilation || !execution)
        return nn_null(__func__);
    int code = nn_create(NN_CALL_EXECUTION, compilation->id, __func__, 0, sizeof(**execution), execution);
    if (code == NN_NO_ERROR)
        (*execution)->owners = 1;
    return code;
}

static void drop_execution(ANeuralNetworksExecution *execution, const char *function)
{
    if (__atomic_sub_fetch(&execution->owners, 1, __ATOMIC_ACQ_REL))
        return;
    free(execution->sides[0].list);
    free(execution->sides[1].list);
    nn_free(execution, function);
}

NN_PUBLIC void ANeuralNetworksExecution_free(ANeuralNetworksExecution *execution)
{
    if (execution)
        drop_execution(execution, __func__);
}

/* Remember a pointer, in the order of the indices. */
static int remember(struct pointers *side, int32_t index, const void *at, size_t size)
{
    struct pointer *larger = realloc(side->list, (side->count + 1) * sizeof(*larger));
    if (!larger)
        return NN_OUT_OF_MEMORY;
    side->list = larger;
    uint32_t place = side->count++;
    for (; place && larger[place - 1].index > index; place--)
        larger[place] = larger[place - 1];
    larger[place] = (struct pointer){index, (void *)at, size};
    return NN_NO_ERROR;
}

static int set_argument(ANeuralNetworksExecution *execution, int output, int32_t index,
                        const ANeuralNetworksOperandType *type, const ANeuralNetworksMemory *memory,
                        const void *buffer, size_t offset, size_t length, const char *function)
{
    struct nn_request r;
    if (type && !type->dimensions != !type->dimensionCount)
        return NN_BAD_DATA;
    nn_begin(&r, NN_CALL_ARGUMENT, execution->id);
    nn_number(&r, output);
    nn_number(&r, index);
    nn_type(&r, type);
    nn_number(&r, !memory && !buffer);
    nn_number(&r, memory ? (int64_t)memory->id : 0);
    nn_number(&r, (int64_t)offset);
    nn_number(&r, (int64_t)length);
    int code = nn_send(&r, function, NULL, NULL);
    if (code == NN_NO_ERROR && buffer)
        code = remember(execution->sides + output, index, buffer, length);
    return code;
}

NN_PUBLIC int ANeuralNetworksExecution_setInput(ANeuralNetworksExecution *execution, int32_t index,
                                                const ANeuralNetworksOperandType *type, const void *buffer,
                                                size_t length)
{
    if (!execution || (!buffer && length))
        return nn_null(__func__);
    return set_argument(execution, 0, index, type, NULL, buffer, 0, length, __func__);
}

NN_PUBLIC int ANeuralNetworksExecution_setInputFromMemory(ANeuralNetworksExecution *execution, int32_t index,
                                                          const ANeuralNetworksOperandType *type,
                                                          const ANeuralNetworksMemory *memory, size_t offset,
                                                          size_t length)
{
    if (!execution || !memory)
        return nn_null(__func__);
    return set_argument(execution, 0, index, type, memory, NULL, offset, length, __func__);
}

NN_PUBLIC int ANeuralNetworksExecution_setOutput(ANeuralNetworksExecution *execution, int32_t index,
                                                 const ANeuralNetworksOperandType *type, void *buffer,
                                                 size_t length)
{
    if (!execution || (!buffer && length))
        return nn_null(__func__);
    return set_argument(execution, 1, index, type, NULL, buffer, 0, length, __func__);
}

NN_PUBLIC int ANeuralNetworksExecution_setOutputFromMemory(ANeuralNetworksExecution *execution, int32_t index,
                                                           const ANeuralNetworksOperandType *type,
                                                           const ANeuralNetworksMemory *memory, size_t offset,
                                                           size_t length)
{
    if (!execution || !memory)
        return nn_null(__func__);
    return set_argument(execution, 1, index, type, memory, NULL, offset, length, __func__);
}

#define SETTER(name, type, call)                                                                              \
    NN_PUBLIC int ANeuralNetworksExecution_##name(ANeuralNetworksExecution *execution, type value)             \
    {                                                                                                          \
        return execution ? NN_NUMBERS(call, execution->id, (int64_t)value) : nn_null(__func__);               \
    }
SETTER(setTimeout, uint64_t, NN_CALL_TIMEOUT)
SETTER(setLoopTimeout, uint64_t, NN_CALL_LOOP_TIMEOUT)
SETTER(setMeasureTiming, bool, NN_CALL_MEASURE)
SETTER(setReusable, bool, NN_CALL_REUSABLE)
SETTER(enableInputAndOutputPadding, bool, NN_CALL_PADDING)

static int read_outputs(const uint8_t *content, uint64_t size, void *result)
{
    const struct pointers *outputs = result;
    uint64_t at = 0;
    for (uint32_t n = 0; n < outputs->count; n++) {
        uint64_t bytes;
        if (size - at < sizeof(bytes))
            return NN_OP_FAILED;
        memcpy(&bytes, content + at, sizeof(bytes));
        at += sizeof(bytes);
        if (bytes > size - at || bytes > outputs->list[n].size)
            return NN_OP_FAILED;
        if (bytes)
            memcpy(outputs->list[n].at, content + at, bytes);
        at += bytes;
    }
    return NN_NO_ERROR;
}

static int compute(ANeuralNetworksExecution *execution, int64_t limit, const char *function)
{
    struct nn_request r;
    const struct pointers *inputs = execution->sides, *outputs = execution->sides + 1;
    nn_begin(&r, NN_CALL_COMPUTE, execution->id);
    nn_number(&r, limit);
    nn_number(&r, inputs->count);
    for (uint32_t n = 0; n < inputs->count; n++)
        nn_bytes(&r, inputs->list[n].at, inputs->list[n].size);
    for (uint32_t n = 0; n < outputs->count; n++)
        r.room += outputs->list[n].size + sizeof(uint64_t);
    int failed = r.failed;
    int code = nn_send(&r, function, read_outputs, (void *)outputs);
    if (failed)
        nn_send_numbers(NN_CALL_GIVE_UP, execution->id, function, 0, NULL);
    return code;
}

static int begin(ANeuralNetworksExecution *execution, const ANeuralNetworksBurst *burst, const char *function)
{
    int64_t number = burst ? (int64_t)burst->id : 0;
    return nn_send_numbers(NN_CALL_BEGIN, execution->id, function, 1, &number);
}

NN_PUBLIC int ANeuralNetworksExecution_compute(ANeuralNetworksExecution *execution)
{
    if (!execution)
        return nn_null(__func__);
    int code = begin(execution, NULL, __func__);
    return code == NN_NO_ERROR ? compute(execution, NO_LIMIT, __func__) : code;
}

NN_PUBLIC int ANeuralNetworksExecution_burstCompute(ANeuralNetworksExecution *execution,
                                                    ANeuralNetworksBurst *burst)
{
    if (!execution || !burst)
        return nn_null(__func__);
    int code = begin(execution, burst, __func__);
    return code == NN_NO_ERROR ? compute(execution, NO_LIMIT, __func__) : code;
}

NN_PUBLIC int ANeuralNetworksBurst_create(ANeuralNetworksCompilation *compilation, ANeuralNetworksBurst **burst)
{
    if (!compilation || !burst)
        return nn_null(__func__);
    return nn_create(NN_CALL_BURST, compilation->id, __func__, 0, sizeof(**burst), burst);
}

NN_PUBLIC void ANeuralNetworksBurst_free(ANeuralNetworksBurst *burst)
{
    nn_free(burst, __func__);
}

/* -- what an execution found -------------------------------------------------------------------------- */

struct shape {
    int64_t sufficient;
    uint32_t *values; /* where the rest goes */
};

static int read_shape(const uint8_t *content, uint64_t size, void *result)
{
    struct shape *shape = result;
    if (size < 2 * sizeof(int64_t))
        return NN_OP_FAILED;
    memcpy(&shape->sufficient, content, sizeof(int64_t));
    for (uint64_t n = 1; n < size / sizeof(int64_t); n++) {
        int64_t value;
        memcpy(&value, content + n * sizeof(value), sizeof(value));
        shape->values[n - 1] = (uint32_t)value;
    }
    return shape->sufficient ? NN_NO_ERROR : NN_OUTPUT_INSUFFICIENT_SIZE;
}

static int shape_of(uint32_t call, ANeuralNetworksExecution *execution, int32_t index, uint32_t *values,
                    const char *function)
{
    struct nn_request r;
    struct shape shape = {.values = values};
    if (!execution || !values)
        return nn_null(function);
    nn_begin(&r, call, execution->id);
    nn_number(&r, index);
    return nn_send(&r, function, read_shape, &shape);
}

NN_PUBLIC int ANeuralNetworksExecution_getOutputOperandRank(ANeuralNetworksExecution *execution, int32_t index,
                                                            uint32_t *rank)
{
    return shape_of(NN_CALL_RANK, execution, index, rank, __func__);
}

NN_PUBLIC int ANeuralNetworksExecution_getOutputOperandDimensions(ANeuralNetworksExecution *execution,
                                                                  int32_t index, uint32_t *dimensions)
{
    return shape_of(NN_CALL_DIMENSIONS, execution, index, dimensions, __func__);
}

NN_PUBLIC int ANeuralNetworksExecution_getDuration(const ANeuralNetworksExecution *execution, int32_t code,
                                                   uint64_t *duration)
{
    struct nn_request r;
    if (!execution || !duration)
        return nn_null(__func__);
    *duration = UINT64_MAX;
    nn_begin(&r, NN_CALL_DURATION, execution->id);
    nn_number(&r, code);
    return nn_send(&r, __func__, nn_read_object, duration);
}

/* -- events ------------------------------------------------------------------------------------------- */

struct job {
    ANeuralNetworksExecution *execution;
    ANeuralNetworksEvent *event;
    ANeuralNetworksEvent **before; /* what it waits for */
    uint32_t count;
    int64_t limit;
};

static ANeuralNetworksEvent *new_event(int fd, enum event_kind kind)
{
    ANeuralNetworksEvent *event = calloc(1, sizeof(*event));
    if (!event)
        return NULL;
    event->fd = fd;
    event->kind = kind;
    event->owners = 1;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    return event;
}

static void drop_event(ANeuralNetworksEvent *event)
{
    if (__atomic_sub_fetch(&event->owners, 1, __ATOMIC_ACQ_REL))
        return;
    if (event->fd >= 0)
        close(event->fd);
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static void finish_event(ANeuralNetworksEvent *event, int result)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&event->lock);
    event->result = result;
    event->done = 1;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    if (event->fd >= 0 && write(event->fd, &one, sizeof(one)) < 0)
        return; /* it was signalled already */
}

/* An event of an execution ends with it, and the calls of an execution have a longest time; the fence of the
 * program is waited for as long as such a call may take. */
static int wait_event(ANeuralNetworksEvent *event)
{
    if (event->kind == FENCE_OF_PROGRAM) {
        struct pollfd one = {.fd = event->fd, .events = POLLIN};
        int ready = poll(&one, 1, NN_FENCE_SECONDS * 1000);
        return ready > 0 && one.revents & POLLIN ? NN_NO_ERROR : NN_OP_FAILED;
    }
    pthread_mutex_lock(&event->lock);
    while (!event->done)
        pthread_cond_wait(&event->changed, &event->lock);
    int result = event->result;
    pthread_mutex_unlock(&event->lock);
    return result;
}

static void *run(void *argument)
{
    struct job *job = argument;
    int code = NN_NO_ERROR;
    for (uint32_t n = 0; n < job->count; n++) {
        if (wait_event(job->before[n]) != NN_NO_ERROR)
            code = NN_OP_FAILED;
        drop_event(job->before[n]);
    }
    if (code == NN_NO_ERROR)
        code = compute(job->execution, job->limit, "ANeuralNetworksExecution_startCompute");
    else
        nn_send_numbers(NN_CALL_GIVE_UP, job->execution->id, "ANeuralNetworksExecution_startCompute", 0, NULL);
    drop_execution(job->execution, "ANeuralNetworksExecution_free");
    finish_event(job->event, code);
    drop_event(job->event);
    free(job->before);
    free(job);
    return NULL;
}

/* Begin an execution in a thread; `before` has a null pointer for nothing. */
static int start(ANeuralNetworksExecution *execution, const ANeuralNetworksEvent *const *before, uint32_t count,
                 int64_t limit, enum event_kind kind, ANeuralNetworksEvent **event, const char *function)
{
    *event = NULL;
    int code = begin(execution, NULL, function);
    if (code != NN_NO_ERROR)
        return code;
    struct job *job = calloc(1, sizeof(*job));
    ANeuralNetworksEvent **list = calloc(count + 1, sizeof(*list));
    ANeuralNetworksEvent *made = new_event(kind == WITH_DESCRIPTOR ? eventfd(0, EFD_CLOEXEC) : -1, kind);
    if (!job || !list || !made) {
        free(job);
        free(list);
        if (made)
            drop_event(made);
        nn_send_numbers(NN_CALL_GIVE_UP, execution->id, function, 0, NULL);
        return NN_OUT_OF_MEMORY;
    }
    for (uint32_t n = 0; n < count; n++) {
        list[n] = (ANeuralNetworksEvent *)before[n];
        __atomic_fetch_add(&list[n]->owners, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&made->owners, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&execution->owners, 1, __ATOMIC_RELAXED);
    *job = (struct job){execution, made, list, count, limit};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, job))
        run(job); /* there are no threads: it is over at once */
    else
        pthread_detach(thread);
    *event = made;
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksExecution_startCompute(ANeuralNetworksExecution *execution,
                                                    ANeuralNetworksEvent **event)
{
    if (event)
        *event = NULL;
    if (!execution || !event)
        return nn_null(__func__);
    return start(execution, NULL, 0, NO_LIMIT, OF_EXECUTION, event, __func__);
}

NN_PUBLIC int ANeuralNetworksExecution_startComputeWithDependencies(
    ANeuralNetworksExecution *execution, const ANeuralNetworksEvent *const *dependencies, uint32_t count,
    uint64_t duration, ANeuralNetworksEvent **event)
{
    if (event)
        *event = NULL;
    if (!execution || !event || (!dependencies && count))
        return nn_null(__func__);
    for (uint32_t n = 0; n < count; n++)
        if (!dependencies[n])
            return nn_null(__func__);
    int64_t limit = !duration ? NO_LIMIT : duration > INT64_MAX ? INT64_MAX : (int64_t)duration;
    return start(execution, dependencies, count, limit, WITH_DESCRIPTOR, event, __func__);
}

NN_PUBLIC int ANeuralNetworksEvent_wait(ANeuralNetworksEvent *event)
{
    return event ? wait_event(event) : nn_null(__func__);
}

NN_PUBLIC void ANeuralNetworksEvent_free(ANeuralNetworksEvent *event)
{
    if (!event)
        return;
    if (event->kind != FENCE_OF_PROGRAM)
        wait_event(event); /* the memory of the execution is in use until then */
    drop_event(event);
}

NN_PUBLIC int ANeuralNetworksEvent_createFromSyncFenceFd(int fd, ANeuralNetworksEvent **event)
{
    if (!event)
        return nn_null(__func__);
    *event = NULL;
    int own = fd > 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (own < 0)
        return NN_BAD_DATA;
    *event = new_event(own, FENCE_OF_PROGRAM);
    if (*event)
        return NN_NO_ERROR;
    close(own);
    return NN_OUT_OF_MEMORY;
}

NN_PUBLIC int ANeuralNetworksEvent_getSyncFenceFd(const ANeuralNetworksEvent *event, int *fd)
{
    if (!fd)
        return nn_null(__func__);
    *fd = -1;
    if (!event)
        return nn_null(__func__);
    *fd = event->kind != OF_EXECUTION && event->fd >= 0 ? fcntl(event->fd, F_DUPFD_CLOEXEC, 0) : -1;
    return *fd < 0 ? NN_BAD_DATA : NN_NO_ERROR;
}
