/* Memory, its descriptions, and the stand-ins for Android's functions that make it. */
#define _GNU_SOURCE
#include "AndroidMemory.h"
#include "nnapi_calls.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((uint64_t)1 << 34)

struct AHardwareBuffer {
    AHardwareBuffer_Desc desc;
    int fd, owners; /* owners is changed atomically */
    size_t size;
    void *address; /* changed atomically */
};

static int from_fd(int64_t kind, size_t size, int prot, int fd, size_t offset, ANeuralNetworksMemory **memory,
                   const char *function)
{
    struct nn_request r;
    uint64_t made = 0;
    *memory = NULL;
    nn_begin(&r, NN_CALL_MEMORY, 0);
    const int64_t numbers[] = {kind, getpid(), fd, prot, (int64_t)size, (int64_t)offset};
    for (unsigned n = 0; n < 6; n++)
        nn_number(&r, numbers[n]);
    int code = nn_send(&r, function, nn_read_object, &made);
    if (code == NN_NO_ERROR)
        *memory = (ANeuralNetworksMemory *)(uintptr_t)made;
    return code;
}

NN_PUBLIC int ANeuralNetworksMemory_createFromFd(size_t size, int protect, int fd, size_t offset,
                                                 ANeuralNetworksMemory **memory)
{
    struct stat found;
    if (!memory)
        return nn_null(__func__);
    *memory = NULL;
    if (!size || fd < 0 || fstat(fd, &found))
        return NN_BAD_DATA;
    return from_fd(NN_KIND_DESCRIPTOR, size, protect, fd, offset, memory, __func__);
}

NN_PUBLIC int ANeuralNetworksMemory_createFromAHardwareBuffer(const AHardwareBuffer *buffer,
                                                              ANeuralNetworksMemory **memory)
{
    if (!buffer || !memory)
        return nn_null(__func__);
    int blob = buffer->desc.format == AHARDWAREBUFFER_FORMAT_BLOB;
    return from_fd(blob ? NN_KIND_DESCRIPTOR : NN_KIND_HARDWARE_BUFFER, buffer->size, PROT_READ | PROT_WRITE,
                   buffer->fd, 0, memory, __func__);
}

NN_PUBLIC int ANeuralNetworksMemory_createFromDesc(const ANeuralNetworksMemoryDesc *desc,
                                                   ANeuralNetworksMemory **memory)
{
    if (!desc || !memory)
        return nn_null(__func__);
    return nn_create(NN_CALL_ALLOCATE, NN_ID(desc), __func__, 0, memory);
}

NN_PUBLIC int ANeuralNetworksMemory_copy(const ANeuralNetworksMemory *src, const ANeuralNetworksMemory *dst)
{
    return src && dst ? NN_NUMBERS(NN_CALL_COPY, NN_ID(src), (int64_t)NN_ID(dst)) : nn_null(__func__);
}

NN_PUBLIC void ANeuralNetworksMemory_free(ANeuralNetworksMemory *memory)
{
    nn_free(memory, __func__);
}

NN_PUBLIC int ANeuralNetworksMemoryDesc_create(ANeuralNetworksMemoryDesc **desc)
{
    return desc ? nn_create(NN_CALL_DESC, 0, __func__, 0, desc) : nn_null(__func__);
}

NN_PUBLIC void ANeuralNetworksMemoryDesc_free(ANeuralNetworksMemoryDesc *desc)
{
    nn_free(desc, __func__);
}

static int add_role(ANeuralNetworksMemoryDesc *desc, const ANeuralNetworksCompilation *compilation, int output,
                    uint32_t index, float frequency, const char *function)
{
    uint32_t bits;
    if (!desc || !compilation)
        return nn_null(function);
    memcpy(&bits, &frequency, sizeof(bits));
    const int64_t numbers[] = {output, (int64_t)NN_ID(compilation), index, bits};
    return nn_send_numbers(NN_CALL_ROLE, NN_ID(desc), function, 4, numbers);
}

NN_PUBLIC int ANeuralNetworksMemoryDesc_addInputRole(ANeuralNetworksMemoryDesc *desc,
                                                     const ANeuralNetworksCompilation *compilation, uint32_t index,
                                                     float frequency)
{
    return add_role(desc, compilation, 0, index, frequency, __func__);
}

NN_PUBLIC int ANeuralNetworksMemoryDesc_addOutputRole(ANeuralNetworksMemoryDesc *desc,
                                                      const ANeuralNetworksCompilation *compilation,
                                                      uint32_t index, float frequency)
{
    return add_role(desc, compilation, 1, index, frequency, __func__);
}

NN_PUBLIC int ANeuralNetworksMemoryDesc_setDimensions(ANeuralNetworksMemoryDesc *desc, uint32_t rank,
                                                      const uint32_t *dimensions)
{
    struct nn_request r;
    if (!desc || (!dimensions && rank))
        return nn_null(__func__);
    if (rank > NN_MOST_DIMENSIONS)
        return NN_BAD_DATA;
    nn_begin(&r, NN_CALL_DESC_DIMENSIONS, NN_ID(desc));
    nn_longs(&r, dimensions, rank);
    return nn_send(&r, __func__, NULL, NULL);
}

NN_PUBLIC int ANeuralNetworksMemoryDesc_finish(ANeuralNetworksMemoryDesc *desc)
{
    return desc ? NN_EMPTY(NN_CALL_FINISH_DESC, NN_ID(desc)) : nn_null(__func__);
}

/* -- Android's functions --------------------------------------------------------------------------- */

static int new_file(const char *name, uint64_t size)
{
    int fd = size && size <= MOST_BYTES ? memfd_create(name, MFD_CLOEXEC) : -1;
    if (fd >= 0 && ftruncate(fd, (off_t)size)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

NN_PUBLIC int ASharedMemory_create(const char *name, size_t size)
{
    return new_file(name ? name : "none", size);
}

NN_PUBLIC size_t ASharedMemory_getSize(int fd)
{
    struct stat found;
    return fstat(fd, &found) ? 0 : (size_t)found.st_size;
}

NN_PUBLIC int ASharedMemory_setProt(int fd, int prot)
{
    (void)prot;
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

NN_PUBLIC int AHardwareBuffer_allocate(const AHardwareBuffer_Desc *desc, AHardwareBuffer **buffer)
{
    if (!desc || !buffer)
        return -22; /* -EINVAL, as Android */
    *buffer = NULL;
    uint64_t size = desc->format == AHARDWAREBUFFER_FORMAT_BLOB ? 1 : 4;
    const uint32_t sizes[] = {desc->width, desc->height ? desc->height : 1, desc->layers ? desc->layers : 1};
    for (unsigned n = 0; n < 3; n++)
        if (__builtin_mul_overflow(size, sizes[n], &size))
            return -22;
    AHardwareBuffer *made = calloc(1, sizeof(*made));
    int fd = made ? new_file("AHardwareBuffer", size) : -1;
    if (fd < 0) {
        free(made);
        return -12;
    }
    *made = (AHardwareBuffer){.desc = *desc, .fd = fd, .owners = 1, .size = size};
    made->desc.stride = desc->width;
    *buffer = made;
    return 0;
}

NN_PUBLIC void AHardwareBuffer_acquire(AHardwareBuffer *buffer)
{
    if (buffer)
        __atomic_fetch_add(&buffer->owners, 1, __ATOMIC_RELAXED);
}

NN_PUBLIC void AHardwareBuffer_release(AHardwareBuffer *buffer)
{
    if (!buffer || __atomic_sub_fetch(&buffer->owners, 1, __ATOMIC_ACQ_REL))
        return;
    if (buffer->address)
        munmap(buffer->address, buffer->size);
    close(buffer->fd);
    free(buffer);
}

NN_PUBLIC void AHardwareBuffer_describe(const AHardwareBuffer *buffer, AHardwareBuffer_Desc *desc)
{
    if (buffer && desc)
        *desc = buffer->desc;
}

NN_PUBLIC int AHardwareBuffer_lock(AHardwareBuffer *buffer, uint64_t usage, int32_t fence, const ARect *rect,
                                   void **address)
{
    (void)usage, (void)fence, (void)rect;
    if (!buffer || !address)
        return -22;
    void *none = NULL, *mapped = __atomic_load_n(&buffer->address, __ATOMIC_ACQUIRE);
    if (!mapped) {
        mapped = mmap(NULL, buffer->size, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd, 0);
        if (mapped == MAP_FAILED)
            return -12;
        if (!__atomic_compare_exchange_n(&buffer->address, &none, mapped, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            munmap(mapped, buffer->size); /* another thread was first */
            mapped = none;
        }
    }
    *address = mapped;
    return 0;
}

NN_PUBLIC int AHardwareBuffer_unlock(AHardwareBuffer *buffer, int32_t *fence)
{
    if (fence)
        *fence = -1;
    return buffer ? 0 : -22;
}
