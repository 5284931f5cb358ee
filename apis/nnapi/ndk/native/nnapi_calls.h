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

/* All objects are handles of objects in the process. */
struct ANeuralNetworksModel { uint64_t id; };
struct ANeuralNetworksCompilation { uint64_t id; uint32_t inputs, outputs; };
struct ANeuralNetworksMemory { uint64_t id; };
struct ANeuralNetworksMemoryDesc { uint64_t id; };
struct ANeuralNetworksBurst { uint64_t id; };

/* Make a handle of `size` bytes, whose first member is the number of the new object. */
int nn_create(uint32_t call, uint64_t object, const char *function, int64_t number, size_t size, void *handle);
/* Free the object of a handle, and the handle. */
void nn_free(void *handle, const char *function);

#endif
