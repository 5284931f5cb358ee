/* Two networks of NNAPI, the second of which reads what the first has written: once through shared memory, and
 * once through memory of the driver, which stays in the NPU's layout.  docs/nnapi.md says how to build it. */
#include "AndroidMemory.h"
#include "NeuralNetworks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIDE 12
#define DEPTH 32
#define CLASSES 10
#define MAP (SIDE * SIDE * DEPTH)

static void must(int code, const char *what)
{
    if (code != ANEURALNETWORKS_NO_ERROR) {
        fprintf(stderr, "%s: %d\n", what, code);
        exit(1);
    }
}
#define MUST(call) must(call, #call)

static uint32_t operands;

static uint32_t operand(ANeuralNetworksModel *m, int32_t type, uint32_t rank, const uint32_t *sizes, float scale,
                        int32_t zero)
{
    ANeuralNetworksOperandType made = {type, rank, sizes, scale, zero};
    MUST(ANeuralNetworksModel_addOperand(m, &made));
    return operands++;
}

static uint32_t integer(ANeuralNetworksModel *m, int32_t value)
{
    uint32_t index = operand(m, ANEURALNETWORKS_INT32, 0, NULL, 0, 0);
    MUST(ANeuralNetworksModel_setOperandValue(m, (int32_t)index, &value, sizeof(value)));
    return index;
}

/* Add a constant with pseudo-random bytes, or words up to 2000. */
static uint32_t constant(ANeuralNetworksModel *m, int32_t type, uint32_t rank, const uint32_t *sizes, float scale)
{
    static uint32_t state = 1;
    uint32_t index = operand(m, type, rank, sizes, scale, 0), count = 1;
    for (uint32_t n = 0; n < rank; n++)
        count *= sizes[n];
    size_t bytes = type == ANEURALNETWORKS_TENSOR_INT32 ? 4 : 1;
    int8_t *values = malloc(count * bytes);
    for (uint32_t n = 0; n < count; n++) {
        state = state * 1664525 + 1013904223;
        int32_t value = (int32_t)(state >> 20) - 2048;
        if (bytes == 4)
            memcpy(values + n * 4, &value, 4);
        else
            values[n] = (int8_t)(value % 100);
    }
    MUST(ANeuralNetworksModel_setOperandValue(m, (int32_t)index, values, count * bytes));
    free(values); /* the value was copied */
    return index;
}

static void convolution(ANeuralNetworksModel *m, uint32_t from, uint32_t to, uint32_t side, float scale)
{
    const uint32_t filter[] = {DEPTH, side, side, DEPTH}, bias[] = {DEPTH};
    uint32_t inputs[7] = {from, constant(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 4, filter, 0.01f),
                          constant(m, ANEURALNETWORKS_TENSOR_INT32, 1, bias, scale * 0.01f)};
    inputs[3] = integer(m, ANEURALNETWORKS_PADDING_SAME);
    inputs[4] = inputs[5] = integer(m, 1);
    inputs[6] = integer(m, ANEURALNETWORKS_FUSED_RELU);
    MUST(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_CONV_2D, 7, inputs, 1, &to));
}

static ANeuralNetworksCompilation *compiled(ANeuralNetworksModel *m, uint32_t from, uint32_t to)
{
    ANeuralNetworksDevice *device;
    ANeuralNetworksCompilation *made;
    bool supported[8];
    MUST(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, &from, 1, &to));
    MUST(ANeuralNetworksModel_finish(m));
    MUST(ANeuralNetworks_getDevice(0, &device));
    const ANeuralNetworksDevice *devices[] = {device};
    MUST(ANeuralNetworksModel_getSupportedOperationsForDevices(m, devices, 1, supported));
    MUST(ANeuralNetworksCompilation_createForDevices(m, devices, 1, &made));
    MUST(ANeuralNetworksCompilation_setPreference(made, ANEURALNETWORKS_PREFER_SUSTAINED_SPEED));
    MUST(ANeuralNetworksCompilation_finish(made));
    return made;
}

/* Two convolutions. */
static ANeuralNetworksModel *features(ANeuralNetworksCompilation **made)
{
    const uint32_t map[] = {1, SIDE, SIDE, DEPTH};
    ANeuralNetworksModel *m;
    operands = 0;
    MUST(ANeuralNetworksModel_create(&m));
    uint32_t from = operand(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 4, map, 0.05f, -3);
    uint32_t between = operand(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 4, map, 0.2f, -128);
    uint32_t to = operand(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 4, map, 0.4f, -128);
    convolution(m, from, between, 3, 0.05f);
    convolution(m, between, to, 1, 0.2f);
    *made = compiled(m, from, to);
    return m;
}

/* A convolution, the mean of the map, and a fully connected layer. */
static ANeuralNetworksModel *classes(ANeuralNetworksCompilation **made)
{
    const uint32_t map[] = {1, SIDE, SIDE, DEPTH}, mean[] = {1, 1, 1, DEPTH}, out[] = {1, CLASSES};
    const uint32_t weights[] = {CLASSES, DEPTH}, bias[] = {CLASSES};
    ANeuralNetworksModel *m;
    operands = 0;
    MUST(ANeuralNetworksModel_create(&m));
    uint32_t from = operand(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 4, map, 0.4f, -128);
    uint32_t between = operand(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 4, map, 0.5f, -128);
    uint32_t pooled = operand(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 4, mean, 0.5f, -128);
    uint32_t to = operand(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 2, out, 0.5f, 0);
    convolution(m, from, between, 3, 0.4f);
    uint32_t pool[7] = {between, integer(m, ANEURALNETWORKS_PADDING_VALID)};
    pool[2] = pool[3] = integer(m, 1);
    pool[4] = pool[5] = integer(m, SIDE);
    pool[6] = integer(m, ANEURALNETWORKS_FUSED_NONE);
    MUST(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_AVERAGE_POOL_2D, 7, pool, 1, &pooled));
    uint32_t full[4] = {pooled, constant(m, ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED, 2, weights, 0.01f),
                        constant(m, ANEURALNETWORKS_TENSOR_INT32, 1, bias, 0.5f * 0.01f),
                        integer(m, ANEURALNETWORKS_FUSED_NONE)};
    MUST(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_FULLY_CONNECTED, 4, full, 1, &to));
    *made = compiled(m, from, to);
    return m;
}

/* Execute both networks with `between` as the memory between them. */
static void chain(ANeuralNetworksCompilation *first, ANeuralNetworksCompilation *second, const int8_t *picture,
                  ANeuralNetworksMemory *between, size_t length, int8_t *result)
{
    ANeuralNetworksExecution *one, *two;
    ANeuralNetworksEvent *ended, *end;
    uint64_t cycles[2];
    MUST(ANeuralNetworksExecution_create(first, &one));
    MUST(ANeuralNetworksExecution_setMeasureTiming(one, true));
    MUST(ANeuralNetworksExecution_setInput(one, 0, NULL, picture, MAP));
    MUST(ANeuralNetworksExecution_setOutputFromMemory(one, 0, NULL, between, 0, length));
    MUST(ANeuralNetworksExecution_create(second, &two));
    MUST(ANeuralNetworksExecution_setMeasureTiming(two, true));
    MUST(ANeuralNetworksExecution_setInputFromMemory(two, 0, NULL, between, 0, length));
    MUST(ANeuralNetworksExecution_setOutput(two, 0, NULL, result, CLASSES));
    MUST(ANeuralNetworksExecution_startComputeWithDependencies(one, NULL, 0, 0, &ended));
    const ANeuralNetworksEvent *before[] = {ended};
    MUST(ANeuralNetworksExecution_startComputeWithDependencies(two, before, 1, 0, &end));
    MUST(ANeuralNetworksEvent_wait(end));
    MUST(ANeuralNetworksExecution_getDuration(one, ANEURALNETWORKS_DURATION_ON_HARDWARE, cycles));
    MUST(ANeuralNetworksExecution_getDuration(two, ANEURALNETWORKS_DURATION_ON_HARDWARE, cycles + 1));
    printf("%llu and %llu cycles:", (unsigned long long)cycles[0], (unsigned long long)cycles[1]);
    for (int n = 0; n < CLASSES; n++)
        printf(" %d", result[n]);
    printf("\n");
    ANeuralNetworksEvent_free(end);
    ANeuralNetworksEvent_free(ended);
    ANeuralNetworksExecution_free(two);
    ANeuralNetworksExecution_free(one);
}

int main(void)
{
    ANeuralNetworksCompilation *first, *second;
    ANeuralNetworksModel *one = features(&first), *two = classes(&second);
    int8_t picture[MAP], shared[CLASSES], native[CLASSES];
    for (int n = 0; n < MAP; n++)
        picture[n] = (int8_t)(n * 7 % 251 - 125);

    ANeuralNetworksMemory *memory;
    int fd = ASharedMemory_create("between", MAP);
    MUST(ANeuralNetworksMemory_createFromFd(MAP, PROT_READ | PROT_WRITE, fd, 0, &memory));
    printf("shared memory: ");
    chain(first, second, picture, memory, MAP, shared);
    ANeuralNetworksMemory_free(memory);

    ANeuralNetworksMemoryDesc *desc;
    MUST(ANeuralNetworksMemoryDesc_create(&desc));
    MUST(ANeuralNetworksMemoryDesc_addOutputRole(desc, first, 0, 1.0f));
    MUST(ANeuralNetworksMemoryDesc_addInputRole(desc, second, 0, 1.0f));
    MUST(ANeuralNetworksMemoryDesc_finish(desc));
    MUST(ANeuralNetworksMemory_createFromDesc(desc, &memory));
    ANeuralNetworksMemoryDesc_free(desc);
    printf("memory of the driver: ");
    chain(first, second, picture, memory, 0, native);
    ANeuralNetworksMemory_free(memory);

    ANeuralNetworksCompilation_free(first);
    ANeuralNetworksCompilation_free(second);
    ANeuralNetworksModel_free(one);
    ANeuralNetworksModel_free(two);
    printf("%s\n", memcmp(shared, native, CLASSES) ? "DIFFERENT" : "equal");
    return memcmp(shared, native, CLASSES) ? 1 : 0;
}
