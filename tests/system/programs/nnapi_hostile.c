/* Attacks on NNAPI's C interface: handles of objects that were freed or never existed, wrong counts and sizes,
 * negative indices, memory whose file becomes shorter, all calls from several threads at once, a forked process.
 * The program ends with 0 if every wrong call is refused and the interface works afterwards. */
#define _GNU_SOURCE
#include "AndroidMemory.h"
#include "NeuralNetworks.h"
#include "nnapi_check.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void refuse(int found, const char *what, int line)
{
    if (found != ANEURALNETWORKS_NO_ERROR)
        return;
    printf("line %d: %s was done\n", line, what);
    failures++;
}
#define REFUSED(call) refuse(call, #call, __LINE__)

static const uint32_t two[] = {2}, unknown[] = {0};

/* Output = input + constant, all of float32 [2]; sizes of input and output may be unknown. */
static ANeuralNetworksModel *model(const uint32_t *sizes)
{
    ANeuralNetworksModel *m;
    static const float one[] = {1, 2};
    static const int32_t none = ANEURALNETWORKS_FUSED_NONE;
    const uint32_t inputs[] = {0, 1, 2}, first[] = {0}, last[] = {3};
    OK(ANeuralNetworksModel_create(&m));
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, sizes);
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, two);
    add(m, ANEURALNETWORKS_INT32, NULL);
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, sizes);
    OK(ANeuralNetworksModel_setOperandValue(m, 1, one, sizeof(one)));
    OK(ANeuralNetworksModel_setOperandValue(m, 2, &none, sizeof(none)));
    OK(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_ADD, 3, inputs, 1, last));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, first, 1, last));
    OK(ANeuralNetworksModel_finish(m));
    return m;
}

/* The interface still computes. */
static void works(ANeuralNetworksCompilation *c)
{
    const float x[] = {3, 4};
    float y[] = {0, 0};
    ANeuralNetworksExecution *e;
    OK(ANeuralNetworksExecution_create(c, &e));
    OK(ANeuralNetworksExecution_setInput(e, 0, NULL, x, sizeof(x)));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
    OK(ANeuralNetworksExecution_compute(e));
    IS(y[0] == 4 && y[1] == 6, 1);
    ANeuralNetworksExecution_free(e);
}

/* Every function with a handle of each type that is none of its own objects. */
static void test_handles(void *bad, void *good_model, void *good_compilation)
{
    char room[256];
    uint32_t number, list[] = {0};
    uint64_t time;
    int fd;
    bool supported[64];
    void *made;
    const int32_t value = 0;
    const float scales[] = {1};
    ANeuralNetworksOperandType type = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, two, 0, 0};
    ANeuralNetworksSymmPerChannelQuantParams quant = {0, 1, scales};
    const ANeuralNetworksEvent *events[] = {bad};

    REFUSED(ANeuralNetworksModel_addOperand(bad, &type));
    REFUSED(ANeuralNetworksModel_setOperandValue(bad, 0, &value, 4));
    REFUSED(ANeuralNetworksModel_setOperandValue(bad, 0, NULL, 0));
    REFUSED(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(bad, 0, &quant));
    REFUSED(ANeuralNetworksModel_setOperandValueFromMemory(bad, 0, bad, 0, 4));
    REFUSED(ANeuralNetworksModel_setOperandValueFromModel(bad, 0, bad));
    REFUSED(ANeuralNetworksModel_setOperandExtensionData(bad, 0, room, 4));
    REFUSED(ANeuralNetworksModel_addOperation(bad, ANEURALNETWORKS_ADD, 1, list, 1, list));
    REFUSED(ANeuralNetworksModel_identifyInputsAndOutputs(bad, 1, list, 1, list));
    REFUSED(ANeuralNetworksModel_relaxComputationFloat32toFloat16(bad, true));
    REFUSED(ANeuralNetworksModel_finish(bad));
    REFUSED(ANeuralNetworksModel_getSupportedOperationsForDevices(bad, devices, 1, supported));
    REFUSED(ANeuralNetworksCompilation_create(bad, (void *)&made));
    REFUSED(ANeuralNetworksCompilation_createForDevices(bad, devices, 1, (void *)&made));
    IS(made == NULL, 1);
    REFUSED(ANeuralNetworksCompilation_setPreference(bad, 1));
    REFUSED(ANeuralNetworksCompilation_setPriority(bad, 90));
    REFUSED(ANeuralNetworksCompilation_setTimeout(bad, 1));
    REFUSED(ANeuralNetworksCompilation_setCaching(bad, "/tmp", (const uint8_t *)room));
    REFUSED(ANeuralNetworksCompilation_finish(bad));
    REFUSED(ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(bad, 0, &number));
    REFUSED(ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput(bad, 0, &number));
    REFUSED(ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput(bad, 0, &number));
    REFUSED(ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput(bad, 0, &number));
    REFUSED(ANeuralNetworksExecution_create(bad, (void *)&made));
    REFUSED(ANeuralNetworksExecution_setInput(bad, 0, &type, room, 8));
    REFUSED(ANeuralNetworksExecution_setInputFromMemory(bad, 0, &type, bad, 0, 8));
    REFUSED(ANeuralNetworksExecution_setOutput(bad, 0, &type, room, 8));
    REFUSED(ANeuralNetworksExecution_setOutputFromMemory(bad, 0, &type, bad, 0, 8));
    REFUSED(ANeuralNetworksExecution_setTimeout(bad, 1));
    REFUSED(ANeuralNetworksExecution_setLoopTimeout(bad, 1));
    REFUSED(ANeuralNetworksExecution_setMeasureTiming(bad, true));
    REFUSED(ANeuralNetworksExecution_setReusable(bad, true));
    REFUSED(ANeuralNetworksExecution_enableInputAndOutputPadding(bad, true));
    REFUSED(ANeuralNetworksExecution_compute(bad));
    REFUSED(ANeuralNetworksExecution_burstCompute(bad, bad));
    REFUSED(ANeuralNetworksExecution_startCompute(bad, (void *)&made));
    REFUSED(ANeuralNetworksExecution_startComputeWithDependencies(bad, events, 1, 0, (void *)&made));
    REFUSED(ANeuralNetworksExecution_getOutputOperandRank(bad, 0, &number));
    REFUSED(ANeuralNetworksExecution_getOutputOperandDimensions(bad, 0, list));
    REFUSED(ANeuralNetworksExecution_getDuration(bad, 0, &time));
    REFUSED(ANeuralNetworksBurst_create(bad, (void *)&made));
    REFUSED(ANeuralNetworksEvent_wait(bad));
    REFUSED(ANeuralNetworksEvent_getSyncFenceFd(bad, &fd));
    REFUSED(ANeuralNetworksMemory_createFromDesc(bad, (void *)&made));
    REFUSED(ANeuralNetworksMemory_copy(bad, bad));
    REFUSED(ANeuralNetworksMemoryDesc_addInputRole(bad, good_compilation, 0, 1));
    REFUSED(ANeuralNetworksMemoryDesc_addOutputRole(bad, good_compilation, 0, 1));
    REFUSED(ANeuralNetworksMemoryDesc_setDimensions(bad, 1, two));
    REFUSED(ANeuralNetworksMemoryDesc_finish(bad));

    /* a bad handle beside good ones */
    ANeuralNetworksExecution *e;
    ANeuralNetworksMemoryDesc *desc;
    const float x[] = {0, 0};
    float y[2];
    OK(ANeuralNetworksExecution_create(good_compilation, &e));
    REFUSED(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, bad, 0, 8));
    REFUSED(ANeuralNetworksExecution_setOutputFromMemory(e, 0, NULL, bad, 0, 8));
    OK(ANeuralNetworksExecution_setInput(e, 0, NULL, x, sizeof(x)));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
    REFUSED(ANeuralNetworksExecution_burstCompute(e, bad));
    REFUSED(ANeuralNetworksExecution_startComputeWithDependencies(e, events, 1, 0, (void *)&made));
    OK(ANeuralNetworksExecution_compute(e));
    ANeuralNetworksExecution_free(e);
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    REFUSED(ANeuralNetworksMemoryDesc_addInputRole(desc, bad, 0, 1));
    ANeuralNetworksMemoryDesc_free(desc);
    REFUSED(ANeuralNetworksModel_setOperandValueFromModel(good_model, 0, bad));

    /* none of these is anybody's */
    ANeuralNetworksExecution_free(bad);
    ANeuralNetworksEvent_free(bad);
    if ((uintptr_t)bad > 1u << 20) { /* no handle of another object */
        ANeuralNetworksModel_free(bad);
        ANeuralNetworksCompilation_free(bad);
        ANeuralNetworksBurst_free(bad);
        ANeuralNetworksMemory_free(bad);
        ANeuralNetworksMemoryDesc_free(bad);
    }
}

static void test_freed(ANeuralNetworksModel *m, ANeuralNetworksCompilation *c)
{
    ANeuralNetworksModel *other;
    ANeuralNetworksCompilation *compilation;
    ANeuralNetworksExecution *e;
    ANeuralNetworksBurst *burst;
    ANeuralNetworksMemoryDesc *desc;
    ANeuralNetworksEvent *event;
    const float x[] = {0, 0};
    float y[2];
    int here;
    void *wild[] = {(void *)(uintptr_t)0x1000, (void *)(uintptr_t)-1, &here, (void *)((uintptr_t)1 << 62),
                    (void *)(uintptr_t)0x7FFFFFFFFFFFFFFF};
    for (unsigned n = 0; n < sizeof(wild) / sizeof(*wild); n++)
        test_handles(wild[n], m, c);

    OK(ANeuralNetworksModel_create(&other));
    ANeuralNetworksModel_free(other);
    ANeuralNetworksModel_free(other);
    test_handles(other, m, c);
    OK(ANeuralNetworksCompilation_create(m, &compilation));
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksCompilation_free(compilation);
    test_handles(compilation, m, c);
    OK(ANeuralNetworksBurst_create(c, &burst));
    ANeuralNetworksBurst_free(burst);
    ANeuralNetworksBurst_free(burst);
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    ANeuralNetworksMemoryDesc_free(desc);
    ANeuralNetworksMemoryDesc_free(desc);
    test_handles(desc, m, c);
    OK(ANeuralNetworksExecution_create(c, &e));
    OK(ANeuralNetworksExecution_setInput(e, 0, NULL, x, sizeof(x)));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
    OK(ANeuralNetworksExecution_startCompute(e, &event));
    ANeuralNetworksExecution_free(e); /* while it is computed */
    ANeuralNetworksExecution_free(e);
    OK(ANeuralNetworksEvent_wait(event));
    ANeuralNetworksEvent_free(event);
    ANeuralNetworksEvent_free(event);
    REFUSED(ANeuralNetworksEvent_wait(event));
    test_handles(e, m, c);
    test_handles(event, m, c);

    /* models and memory that others use */
    ANeuralNetworksModel *short_lived = model(two);
    compilation = compiled(short_lived);
    ANeuralNetworksModel_free(short_lived);
    works(compilation);
    OK(ANeuralNetworksExecution_create(compilation, &e));
    ANeuralNetworksCompilation_free(compilation);
    OK(ANeuralNetworksExecution_setInput(e, 0, NULL, x, sizeof(x)));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
    ANeuralNetworksExecution_compute(e); /* with a compilation that is gone: any result */
    ANeuralNetworksExecution_free(e);
}

static void test_sizes(ANeuralNetworksCompilation *c)
{
    static const size_t lengths[] = {0, 3, 5, 4096, 1u << 20, (size_t)1 << 40, (size_t)1 << 63,
                                     SIZE_MAX - 100, SIZE_MAX - 8, SIZE_MAX};
    static const uint32_t counts[] = {0, 2, 100, 1u << 20, 1u << 30, UINT32_MAX};
    static const int32_t indices[] = {-1, INT32_MIN, INT32_MAX, 7};
    static const uint32_t four[] = {4};
    const float scales[4] = {1, 1, 1, 1};
    const int32_t value = 0;
    ANeuralNetworksModel *m;
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    uint32_t *last = (uint32_t *)(edge + 4096 - 8); /* two numbers before memory that does not exist */
    OK(ANeuralNetworksModel_create(&m));
    add(m, ANEURALNETWORKS_INT32, NULL);
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, two);
    ANeuralNetworksOperandType channels = {ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL, 1, four, 0, 0};
    OK(ANeuralNetworksModel_addOperand(m, &channels));
    for (unsigned n = 0; n < sizeof(lengths) / sizeof(*lengths); n++) {
        REFUSED(ANeuralNetworksModel_setOperandValue(m, 0, last + 1, lengths[n]));
        if (lengths[n])
            REFUSED(ANeuralNetworksModel_setOperandValue(m, 1, last, lengths[n]));
    }
    for (unsigned n = 0; n < sizeof(counts) / sizeof(*counts); n++) {
        ANeuralNetworksSymmPerChannelQuantParams quant = {0, counts[n], (const float *)last};
        REFUSED(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(m, 2, &quant));
        quant = (ANeuralNetworksSymmPerChannelQuantParams){counts[n] ? counts[n] : 1, 4, scales};
        REFUSED(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(m, 2, &quant));
        if (counts[n] < 1u << 30) /* as many numbers as said are read up to the limit */
            continue;
        ANeuralNetworksOperandType type = {ANEURALNETWORKS_TENSOR_FLOAT32, counts[n], last, 0, 0};
        REFUSED(ANeuralNetworksModel_addOperand(m, &type));
        REFUSED(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_ADD, counts[n], last, 1, last));
        REFUSED(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_ADD, 1, last, counts[n], last));
        REFUSED(ANeuralNetworksModel_identifyInputsAndOutputs(m, counts[n], last, 1, last));
    }
    for (unsigned n = 0; n < sizeof(indices) / sizeof(*indices); n++) {
        uint32_t as_index[] = {(uint32_t)indices[n], 0, 0};
        REFUSED(ANeuralNetworksModel_setOperandValue(m, indices[n], &value, 4));
        REFUSED(ANeuralNetworksModel_setOperandValue(m, indices[n], NULL, 0));
        REFUSED(ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_ADD, 3, as_index, 1, as_index + 1));
        REFUSED(ANeuralNetworksModel_addOperation(m, indices[n], 3, as_index + 1, 1, as_index + 1));
        REFUSED(ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, as_index, 1, as_index + 1));
    }
    ANeuralNetworksModel_free(m);

    ANeuralNetworksExecution *e;
    float y[2];
    ANeuralNetworksOperandType wide = {ANEURALNETWORKS_TENSOR_FLOAT32, UINT32_MAX, last, 0, 0};
    OK(ANeuralNetworksExecution_create(c, &e));
    for (unsigned n = 0; n < sizeof(lengths) / sizeof(*lengths); n++) {
        if (lengths[n]) {
            REFUSED(ANeuralNetworksExecution_setInput(e, 0, NULL, last, lengths[n]));
            REFUSED(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, lengths[n]));
        }
    }
    for (unsigned n = 0; n < sizeof(indices) / sizeof(*indices); n++) {
        REFUSED(ANeuralNetworksExecution_setInput(e, indices[n], NULL, last, 8));
        REFUSED(ANeuralNetworksExecution_setOutput(e, indices[n], NULL, y, 8));
    }
    REFUSED(ANeuralNetworksExecution_setInput(e, 0, &wide, last, 8));
    REFUSED(ANeuralNetworksExecution_setOutput(e, 0, &wide, y, 8));
    ANeuralNetworksEvent *event;
    const ANeuralNetworksEvent *none[1] = {0};
    REFUSED(ANeuralNetworksExecution_startComputeWithDependencies(e, none, UINT32_MAX, 0, &event));
    ANeuralNetworksExecution_free(e);
    munmap(edge, 4096);
}

/* An output of unknown size and a room that no memory has: the execution can be given up. */
static void test_rooms(void)
{
    static const size_t rooms[] = {SIZE_MAX, SIZE_MAX - 7, (size_t)1 << 63, (size_t)1 << 50};
    const float x[] = {3, 4};
    float y[2];
    ANeuralNetworksOperandType type = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, two, 0, 0};
    ANeuralNetworksModel *m = model(unknown);
    ANeuralNetworksCompilation *c = compiled(m);
    for (unsigned n = 0; n < sizeof(rooms) / sizeof(*rooms); n++) {
        ANeuralNetworksExecution *e;
        OK(ANeuralNetworksExecution_create(c, &e));
        OK(ANeuralNetworksExecution_setReusable(e, true));
        OK(ANeuralNetworksExecution_setInput(e, 0, &type, x, sizeof(x)));
        if (ANeuralNetworksExecution_setOutput(e, 0, NULL, y, rooms[n]) == ANEURALNETWORKS_NO_ERROR) {
            REFUSED(ANeuralNetworksExecution_compute(e));
            int again = ANeuralNetworksExecution_compute(e);
            IS(again != ANEURALNETWORKS_BAD_STATE && again != ANEURALNETWORKS_NO_ERROR, 1);
        }
        ANeuralNetworksExecution_free(e);
    }
    ANeuralNetworksCompilation_free(c);
    ANeuralNetworksModel_free(m);
}

/* A model with a constant behind the end of the file cannot be executed. */
static void constant(ANeuralNetworksMemory *memory, size_t offset)
{
    ANeuralNetworksModel *m;
    ANeuralNetworksCompilation *c;
    ANeuralNetworksExecution *e;
    static const int32_t none = ANEURALNETWORKS_FUSED_NONE;
    const uint32_t inputs[] = {0, 1, 2}, first[] = {0}, last[] = {3};
    const float x[] = {0, 0};
    float y[2];
    OK(ANeuralNetworksModel_create(&m));
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, two);
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, two);
    add(m, ANEURALNETWORKS_INT32, NULL);
    add(m, ANEURALNETWORKS_TENSOR_FLOAT32, two);
    ANeuralNetworksModel_setOperandValueFromMemory(m, 1, memory, offset, 8);
    OK(ANeuralNetworksModel_setOperandValue(m, 2, &none, sizeof(none)));
    int code = ANeuralNetworksModel_addOperation(m, ANEURALNETWORKS_ADD, 3, inputs, 1, last) ||
               ANeuralNetworksModel_identifyInputsAndOutputs(m, 1, first, 1, last) ||
               ANeuralNetworksModel_finish(m);
    if (!code && !(code = ANeuralNetworksCompilation_createForDevices(m, devices, 1, &c))) {
        code = ANeuralNetworksCompilation_finish(c);
        if (!code && !(code = ANeuralNetworksExecution_create(c, &e))) {
            OK(ANeuralNetworksExecution_setInput(e, 0, NULL, x, sizeof(x)));
            OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
            code = ANeuralNetworksExecution_compute(e);
            ANeuralNetworksExecution_free(e);
        }
        ANeuralNetworksCompilation_free(c);
    }
    REFUSED(code);
    ANeuralNetworksModel_free(m);
}

static void test_files(ANeuralNetworksCompilation *c)
{
    ANeuralNetworksMemory *memory, *other;
    ANeuralNetworksExecution *e;
    float y[2];
    int fd = ASharedMemory_create("x", 64), pair[2], more[2];
    OK(ANeuralNetworksMemory_createFromFd(64, PROT_READ | PROT_WRITE, fd, 0, &memory));
    OK(ANeuralNetworksMemory_createFromFd(64, PROT_READ | PROT_WRITE, fd, 0, &other));
    OK(ANeuralNetworksExecution_create(c, &e));
    OK(ANeuralNetworksExecution_setReusable(e, true));
    REFUSED(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, SIZE_MAX, 8));
    REFUSED(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, SIZE_MAX - 7, 8));
    REFUSED(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, 60, 8));
    REFUSED(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, 16, SIZE_MAX));
    OK(ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, 56, 8));
    OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
    OK(ANeuralNetworksExecution_compute(e));
    IS(ftruncate(fd, 57), 0);
    REFUSED(ANeuralNetworksExecution_compute(e));
    REFUSED(ANeuralNetworksMemory_copy(memory, other));
    IS(ftruncate(fd, 64), 0);
    OK(ANeuralNetworksExecution_compute(e));
    ANeuralNetworksMemory_free(memory);
    ANeuralNetworksMemory_free(memory);
    REFUSED(ANeuralNetworksExecution_compute(e));
    ANeuralNetworksExecution_free(e);
    ANeuralNetworksMemory_free(other);
    close(fd);

    static const char *const paths[] = {"/dev/zero", "/dev/null", "/", "/proc/self/mem", "/dev/tty"};
    for (unsigned n = 0; n < sizeof(paths) / sizeof(*paths); n++) {
        fd = open(paths[n], O_RDONLY | O_CLOEXEC);
        memory = NULL;
        if (fd >= 0 && !ANeuralNetworksMemory_createFromFd(64, PROT_READ, fd, 0, &memory)) {
            OK(ANeuralNetworksExecution_create(c, &e));
            ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, 0, 8);
            OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
            ANeuralNetworksExecution_compute(e); /* an error, or zeros */
            ANeuralNetworksExecution_free(e);
            ANeuralNetworksMemory_free(memory);
        }
        close(fd);
    }
    IS(pipe(pair), 0);
    IS(socketpair(AF_UNIX, SOCK_STREAM, 0, more), 0);
    const int odd[] = {pair[0], pair[1], more[0], eventfd(0, 0), open("/", O_PATH), 9999, -1, INT32_MAX};
    for (unsigned n = 0; n < sizeof(odd) / sizeof(*odd); n++)
        for (size_t size = 0; size < 128; size += 64) {
            memory = (void *)1;
            if (!ANeuralNetworksMemory_createFromFd(size, PROT_READ, odd[n], 0, &memory)) {
                OK(ANeuralNetworksExecution_create(c, &e));
                ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, 0, 8);
                OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
                REFUSED(ANeuralNetworksExecution_compute(e));
                ANeuralNetworksExecution_free(e);
                ANeuralNetworksMemory_free(memory);
            } else {
                IS(memory == NULL, 1);
            }
        }
    static const size_t sizes[] = {SIZE_MAX, (size_t)1 << 63, (size_t)1 << 45, (size_t)1 << 33};
    fd = ASharedMemory_create("y", 64);
    for (int prot = -2; prot < 16; prot++)
        for (unsigned n = 0; n < sizeof(sizes) / sizeof(*sizes); n++) {
            if (ANeuralNetworksMemory_createFromFd(sizes[n], prot, fd, 0, &memory))
                continue; /* else it has as many bytes as its file when it is used */
            OK(ANeuralNetworksMemory_createFromFd(sizes[n], prot, fd, 0, &other));
            REFUSED(ANeuralNetworksMemory_copy(memory, other));
            ANeuralNetworksMemory_free(other);
            OK(ANeuralNetworksExecution_create(c, &e));
            ANeuralNetworksExecution_setInputFromMemory(e, 0, NULL, memory, sizes[n] - 8, 8);
            OK(ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(y)));
            REFUSED(ANeuralNetworksExecution_compute(e));
            ANeuralNetworksExecution_free(e);
            constant(memory, sizes[n] - 8);
            ANeuralNetworksMemory_free(memory);
        }
    close(fd);
    AHardwareBuffer *buffer = NULL;
    AHardwareBuffer_Desc huge = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 1, 0, 0, 0, 0};
    IS(AHardwareBuffer_allocate(&huge, &buffer) < 0, 1);
    huge.width = huge.height = 1u << 31; /* 4 x 2^31 x 2^31 is 0 modulo 2^64 */
    huge.layers = 1;
    IS(AHardwareBuffer_allocate(&huge, &buffer) < 0, 1);
    AHardwareBuffer_acquire(NULL);
    AHardwareBuffer_release(NULL);
    AHardwareBuffer_describe(NULL, &huge);
}

/* -- threads ------------------------------------------------------------------------------------------ */

#define THREADS 8
#define SHARED 4
#define ROUNDS 60

static ANeuralNetworksCompilation *common;
static ANeuralNetworksExecution *executions[SHARED]; /* changed atomically */
static ANeuralNetworksEvent *events[SHARED];

static void *mix(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    static float results[THREADS + 1][2];
    static const float x[] = {1, 2};
    float *y = results[(uintptr_t)seed];
    for (int n = 0; n < ROUNDS; n++) {
        int place = rand_r(&state) % SHARED;
        ANeuralNetworksExecution *e = __atomic_load_n(&executions[place], __ATOMIC_ACQUIRE), *made;
        ANeuralNetworksEvent *event = NULL, *old;
        switch (rand_r(&state) % 8) {
        case 0:
            if (ANeuralNetworksExecution_create(common, &made))
                break;
            ANeuralNetworksExecution_setReusable(made, true);
            e = __atomic_exchange_n(&executions[place], made, __ATOMIC_ACQ_REL);
            ANeuralNetworksExecution_free(e);
            break;
        case 1:
            ANeuralNetworksExecution_setInput(e, 0, NULL, x, sizeof(x));
            break;
        case 2:
            ANeuralNetworksExecution_setOutput(e, 0, NULL, y, sizeof(results[0]));
            break;
        case 3:
            ANeuralNetworksExecution_compute(e);
            break;
        case 4:
            ANeuralNetworksExecution_startCompute(e, &event);
            break;
        case 5:
            old = __atomic_load_n(&events[place], __ATOMIC_ACQUIRE);
            if (old)
                ANeuralNetworksExecution_startComputeWithDependencies(
                    e, (const ANeuralNetworksEvent *const *)&old, 1, 0, &event);
            break;
        case 6:
            ANeuralNetworksEvent_wait(__atomic_load_n(&events[place], __ATOMIC_ACQUIRE));
            break;
        default:
            ANeuralNetworksExecution_free(e);
        }
        if (event) {
            old = __atomic_exchange_n(&events[place], event, __ATOMIC_ACQ_REL);
            ANeuralNetworksEvent_free(old);
        }
    }
    return NULL;
}

static void test_threads(ANeuralNetworksCompilation *c)
{
    pthread_t threads[THREADS];
    common = c;
    for (int n = 0; n < SHARED; n++)
        OK(ANeuralNetworksExecution_create(c, &executions[n]));
    for (uintptr_t n = 0; n < THREADS; n++)
        pthread_create(&threads[n], NULL, mix, (void *)(n + 1));
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    for (int n = 0; n < SHARED; n++) {
        ANeuralNetworksEvent_free(events[n]);
        ANeuralNetworksExecution_free(executions[n]);
    }
}

/* -- a forked process --------------------------------------------------------------------------------- */

static void *forks(void *compilation)
{
    for (int n = 0; n < 20; n++) {
        pid_t child = fork();
        if (!child) {
            ANeuralNetworksModel *m;
            ANeuralNetworksExecution *e;
            static const float large[1 << 16];
            int done = !ANeuralNetworksModel_create(&m);
            done += !ANeuralNetworksExecution_create(compilation, &e);
            done += !ANeuralNetworksModel_setOperandValue((void *)(uintptr_t)1, 0, large, sizeof(large));
            ANeuralNetworksExecution_free(executions[0]);
            _exit(done);
        }
        int status = 1;
        waitpid(child, &status, 0);
        IS(status, 0);
    }
    return NULL;
}

static void test_fork(ANeuralNetworksCompilation *c)
{
    pthread_t thread;
    OK(ANeuralNetworksExecution_create(c, &executions[0]));
    pthread_create(&thread, NULL, forks, c);
    for (int n = 0; n < 100; n++)
        works(c);
    pthread_join(thread, NULL);
    ANeuralNetworksExecution_free(executions[0]);
}

int main(void)
{
    ANeuralNetworksDevice *device;
    OK(ANeuralNetworks_getDevice(0, &device));
    devices[0] = device;
    ANeuralNetworksModel *m = model(two);
    ANeuralNetworksCompilation *c = compiled(m);
    works(c);
    test_freed(m, c);
    works(c);
    test_sizes(c);
    works(c);
    test_rooms();
    works(c);
    test_files(c);
    works(c);
    test_threads(c);
    works(c);
    test_fork(c);
    works(c);
    ANeuralNetworksCompilation_free(c);
    ANeuralNetworksModel_free(m);
    printf("%d failures\n", failures);
    return failures != 0;
}
