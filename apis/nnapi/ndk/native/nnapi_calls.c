/* The process that executes the models: its start with options from the environment, and requests to it. */
#include "nnapi_calls.h"
#include "rk_environment.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define OPTIONS "RKCOSIM_NNAPI"         /* lines "name=value" (apis/link/settings.py) */
#define RESULTS "RKCOSIM_NNAPI_RESULTS" /* folder for a JSON document of each process */
#define LEAST_ROOM 8192

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rk_worker *worker;

static void tell(const char *function, const char *error)
{
    fprintf(stderr, "rkcosim: %s: %s\n", function, error);
}

static void start(void)
{
    char error[RK_TEXT];
    worker = rk_worker_of_environment(RK_NNAPI, OPTIONS, RESULTS, error);
    if (!worker)
        tell("libneuralnetworks", error);
}

int nn_null(const char *function)
{
    tell(function, "UNEXPECTED_NULL: an argument is a null pointer");
    return NN_UNEXPECTED_NULL;
}

void nn_begin(struct nn_request *r, uint32_t call, uint64_t object)
{
    *r = (struct nn_request){.call = call, .object = object};
}

static void append(struct nn_request *r, const void *bytes, uint64_t size)
{
    if (!r->failed && r->size - r->used < size) {
        uint64_t room = (r->used + size) * 2 + 64;
        uint8_t *larger = room > size ? realloc(r->bytes, room) : NULL;
        r->failed = !larger;
        if (larger) {
            r->bytes = larger;
            r->size = room;
        }
    }
    if (r->failed || !size)
        return;
    memcpy(r->bytes + r->used, bytes, size);
    r->used += size;
}

void nn_number(struct nn_request *r, int64_t number)
{
    append(r, &number, sizeof(number));
}

void nn_bytes(struct nn_request *r, const void *bytes, uint64_t size)
{
    nn_number(r, (int64_t)size);
    append(r, bytes, size);
}

void nn_longs(struct nn_request *r, const uint32_t *numbers, uint32_t count)
{
    nn_number(r, (int64_t)count * 8);
    for (uint32_t n = 0; n < count; n++)
        nn_number(r, numbers[n]);
}

void nn_type(struct nn_request *r, const ANeuralNetworksOperandType *type)
{
    static const ANeuralNetworksOperandType none;
    uint32_t scale;
    nn_number(r, type != NULL);
    type = type ? type : &none;
    memcpy(&scale, &type->scale, sizeof(scale));
    nn_number(r, type->type);
    nn_number(r, scale);
    nn_number(r, type->zeroPoint);
    nn_longs(r, type->dimensions, type->dimensions ? type->dimensionCount : 0);
}

int nn_read_object(const uint8_t *content, uint64_t size, void *result)
{
    if (size < sizeof(uint64_t))
        return NN_OP_FAILED;
    memcpy(result, content, sizeof(uint64_t));
    return NN_NO_ERROR;
}

static int answered(const uint8_t *memory, const struct rk_message *message, const char *function, nn_reader *read,
                    void *result)
{
    if (message->number != NN_NO_ERROR) {
        char text[RK_TEXT];
        snprintf(text, sizeof(text), "%.*s", (int)(message->used < RK_TEXT ? message->used : RK_TEXT - 1), memory);
        tell(function, text);
        return (int)message->number;
    }
    return read ? read(memory, message->used, result) : NN_NO_ERROR;
}

int nn_send(struct nn_request *r, const char *function, nn_reader *read, void *result)
{
    pthread_once(&once, start);
    int code = NN_OP_FAILED;
    uint64_t size = r->used > r->room ? r->used : r->room;
    if (r->failed) {
        code = NN_OUT_OF_MEMORY;
    } else if (worker) {
        uint8_t *memory = rk_worker_begin(worker, size > LEAST_ROOM ? size : LEAST_ROOM);
        char error[RK_TEXT];
        struct rk_message message = {0};
        if (!memory) {
            tell(function, "there is no shared memory for the simulator");
            code = NN_OUT_OF_MEMORY;
        } else {
            if (r->used)
                memcpy(memory, r->bytes, r->used);
            r->sent = 1;
            if (rk_worker_call(worker, (enum rk_call)r->call, r->object, r->used, &message, error) == RK_OK) {
                code = answered(memory, &message, function, read, result);
            } else {
                tell(function, error);
                code = message.status == RK_FAILED ? NN_OP_FAILED : NN_DEAD_OBJECT;
            }
        }
        rk_worker_end(worker);
    }
    free(r->bytes);
    r->bytes = NULL;
    return code;
}

int nn_send_numbers(uint32_t call, uint64_t object, const char *function, unsigned count, const int64_t *numbers)
{
    struct nn_request r;
    nn_begin(&r, call, object);
    for (unsigned n = 0; n < count; n++)
        nn_number(&r, numbers[n]);
    return nn_send(&r, function, NULL, NULL);
}

int nn_create(uint32_t call, uint64_t object, const char *function, int64_t number, void *handle)
{
    struct nn_request r;
    uint64_t made = 0;
    *(void **)handle = NULL;
    nn_begin(&r, call, object);
    nn_number(&r, number);
    int code = nn_send(&r, function, nn_read_object, &made);
    if (code == NN_NO_ERROR)
        *(void **)handle = (void *)(uintptr_t)made;
    return code;
}

void nn_free(const void *handle, const char *function)
{
    if (handle)
        nn_send_numbers(NN_CALL_FREE, NN_ID(handle), function, 0, NULL);
}

int nn_gone(const char *function)
{
    tell(function, "BAD_DATA: an object does not exist any more");
    return NN_BAD_DATA;
}

/* -- records ---------------------------------------------------------------------------------------- */

#define PLACES 256

static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nn_record *records[PLACES];

static void lock_records(void)
{
    pthread_mutex_lock(&records_lock);
}

static void unlock_records(void)
{
    pthread_mutex_unlock(&records_lock);
}

/* A process that is forked has the lock in the state in which it may use it. */
__attribute__((constructor)) static void when_forked(void)
{
    pthread_atfork(lock_records, unlock_records, unlock_records);
}

void nn_keep(struct nn_record *record)
{
    record->owners = 1;
    lock_records();
    record->next = records[record->id % PLACES];
    records[record->id % PLACES] = record;
    unlock_records();
}

struct nn_record *nn_hold(uint64_t id)
{
    lock_records();
    struct nn_record *found = records[id % PLACES];
    while (found && found->id != id)
        found = found->next;
    if (found)
        __atomic_fetch_add(&found->owners, 1, __ATOMIC_RELAXED);
    unlock_records();
    return found;
}

struct nn_record *nn_take(uint64_t id)
{
    lock_records();
    struct nn_record **place = &records[id % PLACES];
    while (*place && (*place)->id != id)
        place = &(*place)->next;
    struct nn_record *found = *place;
    if (found)
        *place = found->next;
    unlock_records();
    return found;
}

int nn_drop(struct nn_record *record)
{
    return !__atomic_sub_fetch(&record->owners, 1, __ATOMIC_ACQ_REL);
}
