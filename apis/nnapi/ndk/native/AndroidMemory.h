/* Stand-ins for functions of Android's libraries that give memory to NNAPI: a memfd in each case. */
#ifndef RKCOSIM_ANDROID_MEMORY_H
#define RKCOSIM_ANDROID_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AHardwareBuffer AHardwareBuffer;

typedef struct ARect {
    int32_t left, top, right, bottom;
} ARect;

typedef struct AHardwareBuffer_Desc {
    uint32_t width; /* bytes of a BLOB */
    uint32_t height, layers, format;
    uint64_t usage;
    uint32_t stride, rfu0;
    uint64_t rfu1;
} AHardwareBuffer_Desc;

#define AHARDWAREBUFFER_FORMAT_BLOB 0x21

int ASharedMemory_create(const char *name, size_t size);
size_t ASharedMemory_getSize(int fd);
int ASharedMemory_setProt(int fd, int prot);

int AHardwareBuffer_allocate(const AHardwareBuffer_Desc *desc, AHardwareBuffer **buffer);
void AHardwareBuffer_acquire(AHardwareBuffer *buffer);
void AHardwareBuffer_release(AHardwareBuffer *buffer);
void AHardwareBuffer_describe(const AHardwareBuffer *buffer, AHardwareBuffer_Desc *desc);
int AHardwareBuffer_lock(AHardwareBuffer *buffer, uint64_t usage, int32_t fence, const ARect *rect, void **address);
int AHardwareBuffer_unlock(AHardwareBuffer *buffer, int32_t *fence);

#ifdef __cplusplus
}
#endif

#endif
