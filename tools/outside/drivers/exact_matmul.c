/* The calls of rknn_matmul_api.h that a program with int8 products needs, on the processor: sums are exact.
 *
 * A program that computes the same with this library and with the NPU's gets exact products from the NPU.  A and
 * C are in rows, B in the native layout [N / 32, K / 32, 32, 32]. */
#include "rkcosim_rknn.h"

#include <stdlib.h>
#include <string.h>

struct product {
    rknn_matmul_info info;
    rknn_tensor_mem *memory[3];
};

int rknn_matmul_create(rknn_context *context, rknn_matmul_info *info, rknn_matmul_io_attr *attributes)
{
    size_t m = (size_t)info->M, k = (size_t)info->K, n = (size_t)info->N;
    if (info->type != RKNN_INT8_MM_INT8_TO_INT32 || info->B_layout != RKNN_MM_LAYOUT_NATIVE ||
        info->AC_layout != RKNN_MM_LAYOUT_NORM || k % 32 || n % 32)
        return RKNN_ERR_PARAM_INVALID;
    struct product *made = calloc(1, sizeof(*made));
    if (!made)
        return RKNN_ERR_MALLOC_FAIL;
    made->info = *info;
    memset(attributes, 0, sizeof(*attributes));
    strcpy(attributes->A.name, "A");
    strcpy(attributes->B.name, "B");
    strcpy(attributes->C.name, "C");
    attributes->A.size = (uint32_t)(m * k);
    attributes->B.size = (uint32_t)(k * n);
    attributes->C.size = (uint32_t)(m * n * sizeof(int32_t));
    attributes->A.type = attributes->B.type = RKNN_TENSOR_INT8;
    attributes->C.type = RKNN_TENSOR_INT32;
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

int rknn_matmul_set_io_mem(rknn_context context, rknn_tensor_mem *memory, rknn_matmul_tensor_attr *attribute)
{
    struct product *product = (struct product *)(uintptr_t)context;
    product->memory[attribute->name[0] - 'A'] = memory;
    return 0;
}

int rknn_matmul_run(rknn_context context)
{
    struct product *product = (struct product *)(uintptr_t)context;
    size_t m = (size_t)product->info.M, k = (size_t)product->info.K, n = (size_t)product->info.N;
    const int8_t *a = product->memory[0]->virt_addr, *b = product->memory[1]->virt_addr;
    int32_t *c = product->memory[2]->virt_addr;
    for (size_t row = 0; row < m; row++)
        for (size_t column = 0; column < n; column++) {
            int32_t sum = 0;
            for (size_t i = 0; i < k; i++) {
                size_t block = column / 32 * (k / 32) + i / 32;
                sum += a[row * k + i] * b[(block * 32 + column % 32) * 32 + i % 32];
            }
            c[row * n + column] = sum;
        }
    return 0;
}

int rknn_matmul_destroy(rknn_context context)
{
    free((void *)(uintptr_t)context);
    return 0;
}
