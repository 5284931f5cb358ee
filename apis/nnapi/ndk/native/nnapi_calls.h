/* Requests to the process that executes the models; apis/nnapi/ndk/calls.py describes them.  The numbers
 * NN_CALL_... of the calls and NN_... of the results are definitions on the compiler's command line. */
#ifndef NNAPI_CALLS_H
#define NNAPI_CALLS_H

#define RKCOSIM_NDK_LIBRARY
#include "NeuralNetworks.h"
#include "rk_writer.h"

#define NN_PUBLIC __attribute__((visibility("default")))

struct nn_request {
    uint32_t call;
    uint64_t object;
    uint8_t *bytes;
    uint64_t used, size;
    uint64_t room; /* bytes of the answer */
    int failed;    /* there was no memory */
    int sent;      /* the process has it */
};

/* Reads the contents of an answer; return NN_NO_ERROR or another result. */
typedef int nn_reader(const uint8_t *content, uint64_t size, void *result);

void nn_begin(struct nn_request *request, uint32_t call, uint64_t object);
void nn_number(struct nn_request *request, int64_t number);
void nn_bytes(struct nn_request *request, const void *bytes, uint64_t size);
void nn_longs(struct nn_request *request, const uint32_t *numbers, uint32_t count);
void nn_type(struct nn_request *request, const ANeuralNetworksOperandType *type); /* NULL: none */
/* Send the request and free it; start the process at the first one.  Return the function's result; a text of the
 * process goes to standard error, with the name of the function. */
int nn_send(struct nn_request *request, const char *function, nn_reader *read, void *result);
/* Send a request of a few numbers. */
int nn_send_numbers(uint32_t call, uint64_t object, const char *function, unsigned count, const int64_t *numbers);
nn_reader nn_read_object; /* result: uint64_t */

/* Complain about a null pointer, and return NN_UNEXPECTED_NULL. */
int nn_null(const char *function);

#define NN_NUMBERS(call, object, ...) \
    nn_send_numbers(call, object, __func__, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})
#define NN_EMPTY(call, object) nn_send_numbers(call, object, __func__, 0, NULL)

/* A handle is the number of an object and no address: one of an object that was freed, or of none, is an error of
 * the process or of `nn_hold`, whatever the memory there has become. */
#define NN_ID(handle) ((uint64_t)(uintptr_t)(handle))

/* Make an object, and its handle. */
int nn_create(uint32_t call, uint64_t object, const char *function, int64_t number, void *handle);
/* Free the object of a handle. */
void nn_free(const void *handle, const char *function);
/* Complain about a handle that nothing has, and return NN_BAD_DATA. */
int nn_gone(const char *function);

/* What this library keeps for an object itself, by its number. */
struct nn_record {
    struct nn_record *next;
    uint64_t id;
    int owners; /* changed atomically */
};

void nn_keep(struct nn_record *record);                  /* owners is 1, for the handle */
struct nn_record *nn_hold(uint64_t id);                  /* add an owner; NULL: there is none */
struct nn_record *nn_take(uint64_t id);                  /* end the handle; its owner is the caller's now */
int nn_drop(struct nn_record *record);                   /* return 1 for the last owner, who frees the record */

#define NN_EVENTS ((uint64_t)1 << 62) /* numbers of events are above, those of the process's objects below */

/* The longest lists that are read; a count above them is refused. */
#define NN_MOST_DIMENSIONS (1u << 16)
#define NN_MOST_OPERANDS 0xFFFFFFu /* as AOSP's MAX_NUMBER_OF_OPERANDS */
#define NN_MOST_EVENTS (1u << 16)

#endif
