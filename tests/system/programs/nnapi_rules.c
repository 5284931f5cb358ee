/* The rules of NNAPI's C interface: order of calls, null pointers, wrong sizes, memory, events, threads.
 * The program ends with 0 if every call returns what it should. */
#include "AndroidMemory.h"
#include "NeuralNetworks.h"
#include "nnapi_check.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define NULL_ERROR(call) IS(call, ANEURALNETWORKS_UNEXPECTED_NULL)
#define BAD_STATE(call) IS(call, ANEURALNETWORKS_BAD_STATE)

static const uint32_t known[] = {1}, unknown[] = {0};

static void operation(ANeuralNetworksModel *m, int32_t kind, uint32_t a, uint32_t b, uint32_t to)
{
    const uint32_t inputs[] = {a, b, 6};
    OK(ANeuralNetworksModel_addOperation(m, kind, 3, inputs, 1, &to));
}

/* The model of AOSP's TestMemoryDomain: (a + b) = output 0, (a + b) * (b - c) = output 1 of unknown size. */
static ANeuralNetworksModel *model(void)
{
    ANeuralNetworksModel *m;
    const int32_t none = ANEURALNETWORKS_FUSED_NONE;
    const uint32_t inputs[] = {0, 1, 2}, outputs[] = {4, 5};
    OK(ANeuralNetworksModel_create(&m));
    for (int n = 0; n < 5; n++)
        add(m, ANEURALNETWORKS_TENSOR_FLOAT32, known);
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, unknown);
    add(m, ANEURALNETWORKS_INT32, NULL);
    OK(ANeuralNetworksModel_setOperandValue(m, 6, &none, 4));
    operation(m, ANEURALNETWORKS_MUL, 4, 3, 5); /* before its inputs are made: the runtime sorts */
    operation(m, ANEURALNETWORKS_ADD, 0, 1, 4);
    operation(m, ANEURALNETWORKS_SUB, 1, 2, 3);
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(m, 3, inputs, 2, outputs));
    OK(ANeuralNetworksModel_finish(m));
    return m;
}

static ANeuralNetworksMemory *shared(size_t size, int *fd)
{
    ANeuralNetworksMemory *memory;
    *fd = ASharedMemory_create("test", size);
    OK(ANeuralNetworksMemory_createFromFd(size, PROT_READ | PROT_WRITE, *fd, 0, &memory));
    return memory;
}

static ANeuralNetworksMemory *driver(ANeuralNetworksCompilation *c, int output, uint32_t index)
{
    ANeuralNetworksMemoryDesc *desc;
    ANeuralNetworksMemory *memory;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    if (output)
        OK(ANeuralNetworksMemoryDesc_addOutputRole(desc, c, index, 1.0f));
    else
        OK(ANeuralNetworksMemoryDesc_addInputRole(desc, c, index, 0.5f));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    OK(ANeuralNetworksMemory_createFromDesc(desc, &memory));
    ANeuralNetworksMemoryDesc_free(desc);
    return memory;
}

static void test_devices(void)
{
    uint32_t count;
    const char *text;
    int32_t type;
    int64_t level;
    bool flag = true;
    ANeuralNetworksDevice *device;
    NULL_ERROR(ANeuralNetworks_getDeviceCount(NULL));
    OK(ANeuralNetworks_getDeviceCount(&count));
    IS((int)count, 1);
    BAD_DATA(ANeuralNetworks_getDevice(1, &device));
    OK(ANeuralNetworks_getDevice(0, &device));
    OK(ANeuralNetworksDevice_getName(device, &text));
    OK(ANeuralNetworksDevice_getType(device, &type));
    IS(type, ANEURALNETWORKS_DEVICE_ACCELERATOR);
    OK(ANeuralNetworksDevice_getFeatureLevel(device, &level));
    IS(level == ANeuralNetworks_getRuntimeFeatureLevel(), 1);
    OK(ANeuralNetworksDevice_getExtensionSupport(device, "com.example", &flag));
    IS(flag, 0);
    OK(ANeuralNetworksDevice_wait(device));
    IS(ANeuralNetworks_getDefaultLoopTimeout() <= ANeuralNetworks_getMaximumLoopTimeout(), 1);
    devices[0] = device;
}

static void test_models(void)
{
    ANeuralNetworksModel *m, *other = model();
    ANeuralNetworksCompilation *c;
    ANeuralNetworksOperandType wrong = {ANEURALNETWORKS_TENSOR_QUANT8_ASYMM, 1, known, 0, 0};
    const uint32_t ends[] = {0, 1}, inputs[] = {0, 9, 1};
    uint8_t bytes[8] = {0};
    bool supported[3] = {0};
    NULL_ERROR(ANeuralNetworksModel_create(NULL));
    OK(ANeuralNetworksModel_create(&m));
    NULL_ERROR(ANeuralNetworksModel_addOperand(m, NULL));
    BAD_DATA(ANeuralNetworksModel_addOperand(m, &wrong)); /* no scale */
    wrong.type = 77;
    BAD_DATA(ANeuralNetworksModel_addOperand(m, &wrong));
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, known);
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, known);
    NULL_ERROR(ANeuralNetworksModel_setOperandValue(m, 0, NULL, 4));
    BAD_DATA(ANeuralNetworksModel_setOperandValue(m, 0, bytes, 8));
    BAD_DATA(ANeuralNetworksModel_setOperandValue(m, 7, bytes, 4));
    BAD_DATA(ANeuralNetworksModel_setOperandValue(m, -1, bytes, 4));
    BAD_DATA(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_ADD, 3, inputs, 1, ends + 1));
    BAD_DATA(ANeuralNetworksModel_addOperation(m, 5000, 1, ends, 1, ends + 1));
    BAD_DATA(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_RELU, 2, ends, 1, ends + 1));
    /* lists are needed even if they are empty, and 32 bits for the bytes of a tensor */
    NULL_ERROR(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_RELU, 0, NULL, 1, ends + 1));
    NULL_ERROR(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_RELU, 1, ends, 0, NULL));
    NULL_ERROR(ANeuralNetworksModel_identifyInputsAndOutputs(m, 0, NULL, 1, ends + 1));
    NULL_ERROR(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, ends, 0, NULL));
    const uint32_t large[] = {1u << 16, 1u << 14}, larger[] = {5, 4, 4, 786433, 5, 3, 16777216, 4, 5};
    ANeuralNetworksOperandType huge = {ANEURALNETWORKS_TENSOR_FLOAT32, 2, large, 0, 0};
    BAD_DATA(ANeuralNetworksModel_addOperand(m, &huge));
    huge.dimensionCount = 9;
    huge.dimensions = larger;
    BAD_DATA(ANeuralNetworksModel_addOperand(m, &huge));
    BAD_DATA(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, ends, 1, ends));
    BAD_DATA(ANeuralNetworksModel_finish(m)); /* no operation */
    BAD_STATE(ANeuralNetworksModel_addOperand(m, &wrong));
    BAD_STATE(ANeuralNetworksCompilation_create(m, &c));
    ANeuralNetworksModel_free(m);
    ANeuralNetworksModel_free(NULL);

    BAD_STATE(ANeuralNetworksModel_finish(other));
    BAD_STATE(ANeuralNetworksModel_setOperandValue(other, 0, bytes, 4));
    OK(ANeuralNetworksModel_getSupportedOperationsForDevices(other, devices, 1, supported));
    IS(supported[0] && supported[1] && supported[2], 1);
    BAD_DATA(ANeuralNetworksModel_getSupportedOperationsForDevices(other, devices, 0, supported));
    OK(ANeuralNetworksCompilation_create(other, &c));
    BAD_DATA(ANeuralNetworksCompilation_setPreference(c, 3));
    OK(ANeuralNetworksCompilation_setPriority(c, ANEURALNETWORKS_PRIORITY_HIGH));
    BAD_DATA(ANeuralNetworksCompilation_setPriority(c, 1));
    BAD_DATA(ANeuralNetworksCompilation_setTimeout(c, 1)); /* not for one device */
    OK(ANeuralNetworksCompilation_setCaching(c, "/tmp", (const uint8_t[32]){0}));
    ANeuralNetworksExecution *e;
    BAD_STATE(ANeuralNetworksExecution_create(c, &e));
    OK(ANeuralNetworksCompilation_finish(c));
    BAD_STATE(ANeuralNetworksCompilation_finish(c));
    BAD_STATE(ANeuralNetworksCompilation_setPreference(c, 0));
    ANeuralNetworksCompilation_free(c);
    ANeuralNetworksModel_free(other);
}

static void test_executions(ANeuralNetworksCompilation *c)
{
    ANeuralNetworksExecution *e;
    ANeuralNetworksBurst *burst;
    ANeuralNetworksOperandType one = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, known, 0, 0};
    const uint32_t two_sizes[] = {2};
    ANeuralNetworksOperandType two = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, two_sizes, 0, 0};
    float a = 1.5f, b = 2, x = 0.5f, sum = 0, product[16] = {0};
    uint32_t rank, sizes[4];
    uint64_t duration;
    OK(ANeuralNetworksExecution_create(c, &e));
    OK(ANeuralNetworksExecution_setReusable(e, true));
    OK(ANeuralNetworksExecution_setMeasureTiming(e, true));
    BAD_DATA(ANeuralNetworksExecution_setInput(e, 3, NULL, &a, 4));
    BAD_DATA(ANeuralNetworksExecution_setInput(e, 0, NULL, &a, 3));
    BAD_DATA(ANeuralNetworksExecution_setInput(e, 0, &two, &a, 8));
    NULL_ERROR(ANeuralNetworksExecution_setInput(e, 0, NULL, NULL, 4));
    OK(ANeuralNetworksExecution_setInput(e, 0, &one, &a, 4));
    BAD_STATE(ANeuralNetworksExecution_setInput(e, 0, NULL, &a, 4)); /* set already */
    OK(ANeuralNetworksExecution_setInput(e, 2, NULL, &x, 4));
    OK(ANeuralNetworksExecution_setInput(e, 1, NULL, &b, 4));
    OK(ANeuralNetworksExecution_setOutput(e, 1, NULL, product, sizeof(product)));
    BAD_STATE(ANeuralNetworksExecution_getOutputOperandRank(e, 0, &rank));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, &sum, 4));
    OK(ANeuralNetworksExecution_compute(e));
    IS(sum == 3.5f && product[0] == 5.25f, 1);
    OK(ANeuralNetworksExecution_getOutputOperandRank(e, 1, &rank));
    OK(ANeuralNetworksExecution_getOutputOperandDimensions(e, 1, sizes));
    IS(rank == 1 && sizes[0] == 1, 1);
    BAD_DATA(ANeuralNetworksExecution_getOutputOperandRank(e, 2, &rank));
    OK(ANeuralNetworksExecution_getDuration(e, ANEURALNETWORKS_DURATION_IN_DRIVER, &duration));
    IS(duration != UINT64_MAX, 1);
    BAD_STATE(ANeuralNetworksExecution_setInput(e, 0, NULL, &a, 4));
    a = 10; /* pointers are read at each computation */
    OK(ANeuralNetworksBurst_create(c, &burst));
    OK(ANeuralNetworksExecution_burstCompute(e, burst));
    IS(sum == 12, 1);
    ANeuralNetworksBurst_free(burst);
    ANeuralNetworksExecution_free(e);

    OK(ANeuralNetworksExecution_create(c, &e));
    BAD_DATA(ANeuralNetworksExecution_compute(e)); /* nothing is set */
    BAD_STATE(ANeuralNetworksExecution_compute(e));
    ANeuralNetworksExecution_free(e);

    OK(ANeuralNetworksExecution_create(c, &e));
    for (int n = 0; n < 3; n++)
        OK(ANeuralNetworksExecution_setInput(e, n, NULL, &a, 4));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, &sum, 4));
    OK(ANeuralNetworksExecution_setOutput(e, 1, NULL, product, 2)); /* too small */
    IS(ANeuralNetworksExecution_compute(e), ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE);
    IS(ANeuralNetworksExecution_getOutputOperandDimensions(e, 1, sizes), ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE);
    IS((int)sizes[0], 1);
    BAD_STATE(ANeuralNetworksExecution_compute(e));
    ANeuralNetworksExecution_free(e);
}

static void test_memory(ANeuralNetworksCompilation *c)
{
    int fd_1, fd_2;
    ANeuralNetworksMemory *memory, *m1 = shared(4, &fd_1), *m2 = shared(4, &fd_2);
    ANeuralNetworksMemory *d1 = driver(c, 0, 0), *d2 = driver(c, 0, 0), *dynamic = driver(c, 1, 1);
    ANeuralNetworksMemoryDesc *desc;
    ANeuralNetworksExecution *e;
    AHardwareBuffer *blob, *picture;
    AHardwareBuffer_Desc form = {.width = 4, .height = 1, .layers = 1, .format = AHARDWAREBUFFER_FORMAT_BLOB};
    float value = 3.14f, back = 0, sum;
    void *at;
    NULL_ERROR(ANeuralNetworksMemory_copy(NULL, m1));
    BAD_DATA(ANeuralNetworksMemory_createFromFd(4, PROT_READ, 9999, 0, &memory));
    BAD_DATA(ANeuralNetworksMemory_createFromFd(0, PROT_READ, fd_1, 0, &memory));

    /* AOSP's MemoryCopyTest: shared -> driver -> driver -> shared */
    IS((int)pwrite(fd_1, &value, 4, 0), 4);
    BAD_DATA(ANeuralNetworksMemory_copy(d2, m2)); /* no content */
    OK(ANeuralNetworksMemory_copy(m1, d1));
    OK(ANeuralNetworksMemory_copy(d1, d2));
    OK(ANeuralNetworksMemory_copy(d2, m2));
    IS((int)pread(fd_2, &back, 4, 0), 4);
    IS(back == value, 1);

    /* roles, offsets, content */
    OK(ANeuralNetworksExecution_create(c, &e));
    BAD_DATA(ANeuralNetworksExecution_setInputFromMemory(e, 1, NULL, d1, 0, 0));
    BAD_DATA(ANeuralNetworksExecution_setOutputFromMemory(e, 0, NULL, d1, 0, 0));
    BAD_DATA(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, d1, 0, 4));
    BAD_DATA(ANeuralNetworksExecution_setInputFromMemory(e, 1, NULL, m1, 0, 0));
    BAD_DATA(ANeuralNetworksExecution_setInputFromMemory(e, 1, NULL, m1, 4, 4));
    OK(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, d1, 0, 0));
    OK(ANeuralNetworksExecution_setInputFromMemory(e, 1, NULL, m1, 0, 4));
    OK(ANeuralNetworksExecution_setInputFromMemory(e, 2, NULL, m1, 0, 4));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, &sum, 4));
    OK(ANeuralNetworksExecution_setOutputFromMemory(e, 1, NULL, dynamic, 0, 0)); /* gets its size now */
    OK(ANeuralNetworksExecution_compute(e));
    IS(fabsf(sum - 2 * value) < 1e-5f, 1);
    OK(ANeuralNetworksMemory_copy(dynamic, m2));
    ANeuralNetworksExecution_free(e);

    /* descriptions */
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    BAD_DATA(ANeuralNetworksMemoryDesc_finish(desc)); /* no role */
    BAD_DATA(ANeuralNetworksMemoryDesc_addInputRole(desc, c, 3, 1));
    BAD_DATA(ANeuralNetworksMemoryDesc_addInputRole(desc, c, 0, 0));
    BAD_DATA(ANeuralNetworksMemoryDesc_addInputRole(desc, c, 0, 1.5f));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, c, 0, 1));
    BAD_DATA(ANeuralNetworksMemoryDesc_addInputRole(desc, c, 0, 1));
    BAD_DATA(ANeuralNetworksMemoryDesc_setDimensions(desc, 1, (const uint32_t[]){2}));
    BAD_STATE(ANeuralNetworksMemory_createFromDesc(desc, &memory));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    BAD_STATE(ANeuralNetworksMemoryDesc_finish(desc));
    ANeuralNetworksMemoryDesc_free(desc);

    /* buffers of Android */
    IS(AHardwareBuffer_allocate(&form, &blob), 0);
    OK(ANeuralNetworksMemory_createFromAHardwareBuffer(blob, &memory));
    OK(ANeuralNetworksMemory_copy(m1, memory));
    IS(AHardwareBuffer_lock(blob, 0, -1, NULL, &at), 0);
    IS(*(float *)at == value, 1);
    AHardwareBuffer_unlock(blob, NULL);
    ANeuralNetworksMemory_free(memory);
    AHardwareBuffer_release(blob);
    form.format = 1;
    IS(AHardwareBuffer_allocate(&form, &picture), 0);
    OK(ANeuralNetworksMemory_createFromAHardwareBuffer(picture, &memory));
    IS(ANeuralNetworksMemory_copy(m1, memory), ANEURALNETWORKS_UNMAPPABLE);
    OK(ANeuralNetworksExecution_create(c, &e));
    OK(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, 0, 0));
    OK(ANeuralNetworksExecution_setInputFromMemory(e, 1, NULL, m1, 0, 4));
    OK(ANeuralNetworksExecution_setInputFromMemory(e, 2, NULL, m1, 0, 4));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, &sum, 4));
    OK(ANeuralNetworksExecution_setOutput(e, 1, NULL, &back, 4));
    IS(ANeuralNetworksExecution_compute(e), ANEURALNETWORKS_OP_FAILED);
    ANeuralNetworksExecution_free(e);
    ANeuralNetworksMemory_free(memory);
    AHardwareBuffer_release(picture);
    ANeuralNetworksMemory *all[] = {m1, m2, d1, d2, dynamic};
    for (int n = 0; n < 5; n++)
        ANeuralNetworksMemory_free(all[n]);
    close(fd_1);
    close(fd_2);
}

static ANeuralNetworksExecution *ready(ANeuralNetworksCompilation *c, const float *in, float *out)
{
    ANeuralNetworksExecution *e;
    OK(ANeuralNetworksExecution_create(c, &e));
    for (int n = 0; n < 3; n++)
        OK(ANeuralNetworksExecution_setInput(e, n, NULL, in + n, 4));
    for (int n = 0; n < 2; n++)
        OK(ANeuralNetworksExecution_setOutput(e, n, NULL, out + n, 4));
    return e;
}

static void test_events(ANeuralNetworksCompilation *c)
{
    const float in[] = {1, 2, 3};
    float out[4];
    ANeuralNetworksEvent *first, *second, *fence, *none;
    int fd, own = eventfd(0, 0);
    ANeuralNetworksExecution *one = ready(c, in, out), *two = ready(c, in, out + 2);
    NULL_ERROR(ANeuralNetworksExecution_startCompute(one, NULL));
    NULL_ERROR(ANeuralNetworksEvent_wait(NULL));
    OK(ANeuralNetworksExecution_startCompute(one, &first));
    BAD_STATE(ANeuralNetworksExecution_startCompute(one, &none));
    BAD_DATA(ANeuralNetworksEvent_createFromSyncFenceFd(-1, &none));
    OK(ANeuralNetworksEvent_createFromSyncFenceFd(own, &fence));
    const ANeuralNetworksEvent *before[] = {first, fence};
    OK(ANeuralNetworksExecution_startComputeWithDependencies(two, before, 2, 0, &second));
    OK(ANeuralNetworksEvent_wait(first));
    BAD_DATA(ANeuralNetworksEvent_getSyncFenceFd(first, &fd));
    OK(ANeuralNetworksEvent_getSyncFenceFd(second, &fd));
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    IS(poll(&poll_fd, 1, 50), 0); /* it waits for the fence of the program */
    IS((int)write(own, &(uint64_t){1}, 8), 8);
    OK(ANeuralNetworksEvent_wait(second));
    IS(poll(&poll_fd, 1, 1000), 1);
    IS(out[0] == 3 && out[2] == 3 && out[1] == -3, 1);
    ANeuralNetworksEvent_free(first);
    ANeuralNetworksEvent_free(second);
    ANeuralNetworksEvent_free(fence);
    ANeuralNetworksEvent_free(NULL);
    ANeuralNetworksExecution_free(one);
    ANeuralNetworksExecution_free(two);
    close(fd);
    close(own);
}

static void *work(void *compilation)
{
    for (int n = 0; n < 20; n++) {
        const float in[] = {(float)n, 2, 3};
        float out[2] = {0};
        ANeuralNetworksExecution *e = ready(compilation, in, out);
        OK(ANeuralNetworksExecution_compute(e));
        IS(out[0] == (float)n + 2, 1);
        ANeuralNetworksExecution_free(e);
    }
    return NULL;
}

/* A subgraph that compares its input with 0, or adds 0 to it. */
static ANeuralNetworksModel *part(bool compares)
{
    ANeuralNetworksModel *m;
    const int32_t zero = 0;
    const uint32_t inputs[] = {0, 1, 3}, in = 0, out = 2, one[] = {1};
    OK(ANeuralNetworksModel_create(&m));
    add(m, ANEURALNETWORKS_TENSOR_INT32, one);
    add(m, ANEURALNETWORKS_TENSOR_INT32, one);
    add(m, compares ? ANEURALNETWORKS_TENSOR_BOOL8 : ANEURALNETWORKS_TENSOR_INT32, one);
    add(m, ANEURALNETWORKS_INT32, NULL);
    OK(ANeuralNetworksModel_setOperandValue(m, 1, &zero, 4));
    OK(ANeuralNetworksModel_setOperandValue(m, 3, &zero, 4));
    OK(ANeuralNetworksModel_addOperation(m, compares ? ANEURALNETWORKS_GREATER_EQUAL : ANEURALNETWORKS_ADD,
                                         compares ? 2 : 3, inputs, 1, &out));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, &in, 1, &out));
    OK(ANeuralNetworksModel_finish(m));
    return m;
}

/* A WHILE without end: its own limit, that of the execution, and that of a fenced one. */
static void test_endless(void)
{
    ANeuralNetworksModel *condition = part(true), *body = part(false), *m;
    const uint32_t inputs[] = {0, 1, 2}, in = 2, out = 3, one[] = {1};
    OK(ANeuralNetworksModel_create(&m));
    add(m, ANEURALNETWORKS_MODEL, NULL);
    add(m, ANEURALNETWORKS_MODEL, NULL);
    add(m, ANEURALNETWORKS_TENSOR_INT32, one);
    add(m, ANEURALNETWORKS_TENSOR_INT32, one);
    OK(ANeuralNetworksModel_setOperandValueFromModel(m, 0, condition));
    OK(ANeuralNetworksModel_setOperandValueFromModel(m, 1, condition));
    BAD_DATA(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_WHILE, 3, inputs, 1, &out)); /* a BOOL8 */
    OK(ANeuralNetworksModel_setOperandValueFromModel(m, 1, body));
    OK(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_WHILE, 3, inputs, 1, &out));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, &in, 1, &out));
    OK(ANeuralNetworksModel_finish(m));
    ANeuralNetworksCompilation *c = compiled(m);
    for (int n = 0; n < 3; n++) {
        int32_t x = 1, y = 0;
        ANeuralNetworksEvent *event;
        ANeuralNetworksExecution *e;
        OK(ANeuralNetworksExecution_create(c, &e));
        OK(ANeuralNetworksExecution_setInput(e, 0, NULL, &x, 4));
        OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, &y, 4));
        if (n == 0)
            OK(ANeuralNetworksExecution_setLoopTimeout(e, 1000000));
        if (n == 1)
            OK(ANeuralNetworksExecution_setTimeout(e, 300000000));
        if (n < 2) {
            IS(ANeuralNetworksExecution_compute(e), ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT);
        } else {
            OK(ANeuralNetworksExecution_startComputeWithDependencies(e, NULL, 0, 300000000, &event));
            IS(ANeuralNetworksEvent_wait(event), ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT);
            ANeuralNetworksEvent_free(event);
        }
        ANeuralNetworksExecution_free(e);
    }
    ANeuralNetworksCompilation_free(c);
    ANeuralNetworksModel_free(m);
    ANeuralNetworksModel_free(condition);
    ANeuralNetworksModel_free(body);
}

/* What is behind a pointer of a result after an error. */
static void test_results_of_errors(void)
{
    int fd = -100;
    ANeuralNetworksEvent *event = (ANeuralNetworksEvent *)&fd;
    NULL_ERROR(ANeuralNetworksEvent_getSyncFenceFd(NULL, &fd));
    IS(fd, -1);
    NULL_ERROR(ANeuralNetworksExecution_startCompute(NULL, &event));
    IS(event == NULL, 1);
    event = (ANeuralNetworksEvent *)&fd;
    NULL_ERROR(ANeuralNetworksExecution_startComputeWithDependencies(NULL, NULL, 0, 0, &event));
    IS(event == NULL, 1);
}

int main(void)
{
    test_devices();
    test_models();
    test_endless();
    test_results_of_errors();
    ANeuralNetworksModel *m = model();
    ANeuralNetworksCompilation *c = compiled(m);
    test_executions(c);
    test_memory(c);
    test_events(c);
    pthread_t threads[3];
    for (int n = 0; n < 3; n++)
        pthread_create(threads + n, NULL, work, c);
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    ANeuralNetworksCompilation_free(c);
    ANeuralNetworksModel_free(m);
    printf("%d failures\n", failures);
    return failures != 0;
}
