/* The calls of rknn_matmul_api.h that llama.cpp's back ends need, on the processor: sums are exact.
 *
 * A program that computes the same with this library and with the NPU's gets exact products from the NPU.  A and
 * C are in rows, B in the native layout [N / n, K / 32, n, 32] with n = 16 (fp16), 32 (int8) or 64 (int4, two in
 * a byte, the lower half first).  Sums of int4 keep their lowest 16 bits. */
#include "rkcosim_rknn.h"

#include <stdlib.h>
#include <string.h>

struct product {
    rknn_matmul_info info;
    rknn_tensor_mem *memory[3];
};

static int block_of(int type)
{
    return type == RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32 ? 16
         : type == RKNN_INT8_MM_INT8_TO_INT32         ? 32
         : type == RKNN_INT4_MM_INT4_TO_INT16         ? 64
                                                      : 0;
}

int rknn_matmul_create(rknn_context *context, rknn_matmul_info *info, rknn_matmul_io_attr *attributes)
{
    size_t m = (size_t)info->M, k = (size_t)info->K, n = (size_t)info->N;
    int block = block_of(info->type);
    if (!block || info->AC_layout != RKNN_MM_LAYOUT_NORM || k % 32 || n % (size_t)block)
        return RKNN_ERR_PARAM_INVALID;
    struct product *made = calloc(1, sizeof(*made));
    if (!made)
        return RKNN_ERR_MALLOC_FAIL;
    made->info = *info;
    memset(attributes, 0, sizeof(*attributes));
    strcpy(attributes->A.name, "A");
    strcpy(attributes->B.name, "B");
    strcpy(attributes->C.name, "C");
    size_t bits = block == 16 ? 16 : block == 32 ? 8 : 4;
    attributes->A.size = (uint32_t)(m * k * bits / 8);
    attributes->B.size = (uint32_t)(k * n * bits / 8);
    attributes->C.size = (uint32_t)(m * n * (block == 64 ? sizeof(int16_t) : sizeof(int32_t)));
    *context = (rknn_context)(uintptr_t)made;
    return 0;
}

int rknn_matmul_set_core_mask(rknn_context context, int32_t mask)
{
    (void)context;
    (void)mask;
    return 0;
}

rknn_tensor_mem *rknn_create_mem_from_fd(rknn_context context, int fd, void *address, uint32_t size, int offset)
{
    (void)context;
    rknn_tensor_mem *memory = calloc(1, sizeof(*memory));
    if (memory) {
        memory->virt_addr = address;
        memory->fd = fd;
        memory->size = size;
        memory->offset = offset;
    }
    return memory;
}

rknn_tensor_mem *rknn_create_mem(rknn_context context, uint32_t size)
{
    return rknn_create_mem_from_fd(context, -1, calloc(1, size), size, 0);
}

int rknn_destroy_mem(rknn_context context, rknn_tensor_mem *memory)
{
    (void)context;
    free(memory);
    return 0;
}

int rknn_mem_sync(rknn_context context, rknn_tensor_mem *memory, int32_t mode)
{
    (void)context;
    (void)memory;
    (void)mode;
    return 0;
}

int rknn_matmul_set_io_mem(rknn_context context, rknn_tensor_mem *memory, rknn_matmul_tensor_attr *attribute)
{
    struct product *product = (struct product *)(uintptr_t)context;
    product->memory[attribute->name[0] - 'A'] = memory;
    return 0;
}

static double element(const void *data, size_t index, int block)
{
    if (block == 16)
        return (double)((const _Float16 *)data)[index];
    if (block == 32)
        return ((const int8_t *)data)[index];
    uint8_t both = ((const uint8_t *)data)[index / 2];
    int half = index % 2 ? both >> 4 : both & 15;
    return half < 8 ? half : half - 16;
}

int rknn_matmul_run(rknn_context context)
{
    struct product *product = (struct product *)(uintptr_t)context;
    size_t m = (size_t)product->info.M, k = (size_t)product->info.K, n = (size_t)product->info.N;
    int block = block_of(product->info.type);
    size_t wide = (size_t)block;
    const char *place[3];
    for (int i = 0; i < 3; i++)
        place[i] = (const char *)product->memory[i]->virt_addr + product->memory[i]->offset;
    for (size_t row = 0; row < m; row++)
        for (size_t column = 0; column < n; column++) {
            double sum = 0; /* exact: below 2^53 steps of the smallest product */
            for (size_t i = 0; i < k; i++) {
                size_t tile = column / wide * (k / 32) + i / 32;
                double b = element(place[1], (tile * wide + column % wide) * 32 + i % 32, block);
                sum += element(place[0], row * k + i, block) * b;
            }
            size_t index = row * n + column;
            if (block == 16)
                ((float *)place[2])[index] = (float)sum;
            else if (block == 32)
                ((int32_t *)place[2])[index] = (int32_t)sum;
            else
                ((int16_t *)place[2])[index] = (int16_t)(int64_t)sum;
        }
    return 0;
}

int rknn_matmul_destroy(rknn_context context)
{
    free((void *)(uintptr_t)context);
    return 0;
}
