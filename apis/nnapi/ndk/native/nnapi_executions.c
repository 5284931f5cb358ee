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

struct execution {
    struct nn_record record;
    struct pointers sides[2]; /* inputs, outputs; they do not change while the execution is computed */
    pthread_mutex_t lock;     /* held while an argument is set, and at the begin of a computation */
};

enum event_kind { OF_EXECUTION, WITH_DESCRIPTOR, FENCE_OF_PROGRAM };

struct event {
    struct nn_record record;
    int fd; /* readable when the execution has ended, or the program's fence; -1 if there is none */
    enum event_kind kind;
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
    *execution = NULL;
    struct execution *made = calloc(1, sizeof(*made));
    if (!made)
        return NN_OUT_OF_MEMORY;
    int code = nn_create(NN_CALL_EXECUTION, NN_ID(compilation), __func__, 0, execution);
    if (code != NN_NO_ERROR) {
        free(made);
        return code;
    }
    made->record.id = NN_ID(*execution);
    pthread_mutex_init(&made->lock, NULL);
    nn_keep(&made->record);
    return code;
}

static struct execution *hold_execution(const ANeuralNetworksExecution *handle)
{
    return NN_ID(handle) < NN_EVENTS ? (struct execution *)nn_hold(NN_ID(handle)) : NULL;
}

static void drop_execution(struct execution *execution, const char *function)
{
    if (!nn_drop(&execution->record))
        return;
    nn_free((void *)(uintptr_t)execution->record.id, function);
    pthread_mutex_destroy(&execution->lock);
    free(execution->sides[0].list);
    free(execution->sides[1].list);
    free(execution);
}

NN_PUBLIC void ANeuralNetworksExecution_free(ANeuralNetworksExecution *execution)
{
    struct execution *gone =
        NN_ID(execution) < NN_EVENTS ? (struct execution *)nn_take(NN_ID(execution)) : NULL;
    if (gone)
        drop_execution(gone, __func__);
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

static int set_argument(ANeuralNetworksExecution *handle, int output, int32_t index,
                        const ANeuralNetworksOperandType *type, const ANeuralNetworksMemory *memory,
                        const void *buffer, size_t offset, size_t length, const char *function)
{
    struct nn_request r;
    if (type && (!type->dimensions != !type->dimensionCount || type->dimensionCount > NN_MOST_DIMENSIONS))
        return NN_BAD_DATA;
    struct execution *execution = hold_execution(handle);
    if (!execution)
        return nn_gone(function);
    nn_begin(&r, NN_CALL_ARGUMENT, execution->record.id);
    nn_number(&r, output);
    nn_number(&r, index);
    nn_type(&r, type);
    nn_number(&r, !memory && !buffer);
    nn_number(&r, (int64_t)NN_ID(memory));
    nn_number(&r, (int64_t)offset);
    nn_number(&r, (int64_t)length);
    pthread_mutex_lock(&execution->lock);
    int code = nn_send(&r, function, NULL, NULL);
    if (code == NN_NO_ERROR && buffer)
        code = remember(execution->sides + output, index, buffer, length);
    pthread_mutex_unlock(&execution->lock);
    drop_execution(execution, "ANeuralNetworksExecution_free");
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
        return execution ? NN_NUMBERS(call, NN_ID(execution), (int64_t)value) : nn_null(__func__);            \
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

static int compute(struct execution *execution, int64_t limit, const char *function)
{
    struct nn_request r;
    const struct pointers *inputs = execution->sides, *outputs = execution->sides + 1;
    nn_begin(&r, NN_CALL_COMPUTE, execution->record.id);
    nn_number(&r, limit);
    nn_number(&r, inputs->count);
    for (uint32_t n = 0; n < inputs->count; n++)
        nn_bytes(&r, inputs->list[n].at, inputs->list[n].size);
    for (uint32_t n = 0; n < outputs->count; n++)
        if (__builtin_add_overflow(r.room, outputs->list[n].size, &r.room) ||
            __builtin_add_overflow(r.room, sizeof(uint64_t), &r.room))
            r.failed = 1;
    int code = nn_send(&r, function, read_outputs, (void *)outputs);
    if (!r.sent)
        nn_send_numbers(NN_CALL_GIVE_UP, execution->record.id, function, 0, NULL);
    return code;
}

static int begin(struct execution *execution, const ANeuralNetworksBurst *burst, const char *function)
{
    int64_t number = (int64_t)NN_ID(burst);
    pthread_mutex_lock(&execution->lock);
    int code = nn_send_numbers(NN_CALL_BEGIN, execution->record.id, function, 1, &number);
    pthread_mutex_unlock(&execution->lock);
    return code;
}

static int compute_now(ANeuralNetworksExecution *handle, const ANeuralNetworksBurst *burst, const char *function)
{
    struct execution *execution = hold_execution(handle);
    if (!execution)
        return nn_gone(function);
    int code = begin(execution, burst, function);
    if (code == NN_NO_ERROR)
        code = compute(execution, NO_LIMIT, function);
    drop_execution(execution, "ANeuralNetworksExecution_free");
    return code;
}

NN_PUBLIC int ANeuralNetworksExecution_compute(ANeuralNetworksExecution *execution)
{
    return execution ? compute_now(execution, NULL, __func__) : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksExecution_burstCompute(ANeuralNetworksExecution *execution,
                                                    ANeuralNetworksBurst *burst)
{
    return execution && burst ? compute_now(execution, burst, __func__) : nn_null(__func__);
}

NN_PUBLIC int ANeuralNetworksBurst_create(ANeuralNetworksCompilation *compilation, ANeuralNetworksBurst **burst)
{
    if (!compilation || !burst)
        return nn_null(__func__);
    return nn_create(NN_CALL_BURST, NN_ID(compilation), __func__, 0, burst);
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
    nn_begin(&r, call, NN_ID(execution));
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
    nn_begin(&r, NN_CALL_DURATION, NN_ID(execution));
    nn_number(&r, code);
    return nn_send(&r, __func__, nn_read_object, duration);
}

/* -- events ------------------------------------------------------------------------------------------- */

struct job {
    struct execution *execution;
    struct event *event;
    struct event **before; /* what it waits for */
    uint32_t count;
    int64_t limit;
};

/* Make an event with one owner, which has no handle yet. */
static struct event *new_event(int fd, enum event_kind kind)
{
    static uint64_t numbers = NN_EVENTS; /* changed atomically */
    struct event *event = calloc(1, sizeof(*event));
    if (!event)
        return NULL;
    event->record.id = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
    event->record.owners = 1;
    event->fd = fd;
    event->kind = kind;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    return event;
}

static void drop_event(struct event *event)
{
    if (!nn_drop(&event->record))
        return;
    if (event->fd >= 0)
        close(event->fd);
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static struct event *hold_event(const ANeuralNetworksEvent *handle)
{
    return NN_ID(handle) > NN_EVENTS ? (struct event *)nn_hold(NN_ID(handle)) : NULL;
}

/* Give the owner of an event to a handle. */
static ANeuralNetworksEvent *handle_of(struct event *event)
{
    ANeuralNetworksEvent *handle = (ANeuralNetworksEvent *)(uintptr_t)event->record.id;
    nn_keep(&event->record);
    return handle;
}

static void finish_event(struct event *event, int result)
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
static int wait_event(struct event *event)
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
        nn_send_numbers(NN_CALL_GIVE_UP, job->execution->record.id, "ANeuralNetworksExecution_startCompute", 0, NULL);
    drop_execution(job->execution, "ANeuralNetworksExecution_free");
    finish_event(job->event, code);
    drop_event(job->event);
    free(job->before);
    free(job);
    return NULL;
}

static void drop_events(struct event **list, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++)
        drop_event(list[n]);
    free(list);
}

/* Return the events of `count` handles with an owner each, or NULL and the reason in `code`. */
static struct event **hold_events(const ANeuralNetworksEvent *const *handles, uint32_t count, int *code,
                                  const char *function)
{
    struct event **list = calloc((size_t)count + 1, sizeof(*list));
    *code = NN_OUT_OF_MEMORY;
    for (uint32_t n = 0; list && n < count; n++) {
        list[n] = hold_event(handles[n]);
        if (!list[n]) {
            drop_events(list, n);
            *code = nn_gone(function);
            return NULL;
        }
    }
    return list;
}

/* Begin an execution in a thread. */
static int start(ANeuralNetworksExecution *handle, const ANeuralNetworksEvent *const *before, uint32_t count,
                 int64_t limit, enum event_kind kind, ANeuralNetworksEvent **event, const char *function)
{
    int code;
    struct execution *execution = hold_execution(handle);
    if (!execution)
        return nn_gone(function);
    struct event **list = hold_events(before, count, &code, function);
    if (!list) {
        drop_execution(execution, function);
        return code;
    }
    struct job *job = calloc(1, sizeof(*job));
    struct event *made = new_event(kind == WITH_DESCRIPTOR ? eventfd(0, EFD_CLOEXEC) : -1, kind);
    code = job && made ? begin(execution, NULL, function) : NN_OUT_OF_MEMORY;
    if (code != NN_NO_ERROR) {
        free(job);
        drop_events(list, count);
        if (made)
            drop_event(made);
        drop_execution(execution, function);
        return code;
    }
    *event = handle_of(made);
    __atomic_fetch_add(&made->record.owners, 1, __ATOMIC_RELAXED);
    *job = (struct job){execution, made, list, count, limit};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, job))
        run(job); /* there are no threads: it is over at once */
    else
        pthread_detach(thread);
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
    if (count > NN_MOST_EVENTS)
        return NN_BAD_DATA;
    for (uint32_t n = 0; n < count; n++)
        if (!dependencies[n])
            return nn_null(__func__);
    int64_t limit = !duration ? NO_LIMIT : duration > INT64_MAX ? INT64_MAX : (int64_t)duration;
    return start(execution, dependencies, count, limit, WITH_DESCRIPTOR, event, __func__);
}

NN_PUBLIC int ANeuralNetworksEvent_wait(ANeuralNetworksEvent *event)
{
    if (!event)
        return nn_null(__func__);
    struct event *found = hold_event(event);
    if (!found)
        return nn_gone(__func__);
    int code = wait_event(found);
    drop_event(found);
    return code;
}

NN_PUBLIC void ANeuralNetworksEvent_free(ANeuralNetworksEvent *event)
{
    struct event *gone = NN_ID(event) > NN_EVENTS ? (struct event *)nn_take(NN_ID(event)) : NULL;
    if (!gone)
        return;
    if (gone->kind != FENCE_OF_PROGRAM)
        wait_event(gone); /* the memory of the execution is in use until then */
    drop_event(gone);
}

NN_PUBLIC int ANeuralNetworksEvent_createFromSyncFenceFd(int fd, ANeuralNetworksEvent **event)
{
    if (!event)
        return nn_null(__func__);
    *event = NULL;
    int own = fd > 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (own < 0)
        return NN_BAD_DATA;
    struct event *made = new_event(own, FENCE_OF_PROGRAM);
    if (!made) {
        close(own);
        return NN_OUT_OF_MEMORY;
    }
    *event = handle_of(made);
    return NN_NO_ERROR;
}

NN_PUBLIC int ANeuralNetworksEvent_getSyncFenceFd(const ANeuralNetworksEvent *event, int *fd)
{
    if (!fd)
        return nn_null(__func__);
    *fd = -1;
    if (!event)
        return nn_null(__func__);
    struct event *found = hold_event(event);
    if (!found)
        return nn_gone(__func__);
    *fd = found->kind != OF_EXECUTION && found->fd >= 0 ? fcntl(found->fd, F_DUPFD_CLOEXEC, 0) : -1;
    drop_event(found);
    return *fd < 0 ? NN_BAD_DATA : NN_NO_ERROR;
}
