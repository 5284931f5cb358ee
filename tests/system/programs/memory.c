/* memory MODEL: zero copy in memory of the library, behind a descriptor, and at an address of the program's. */
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static rknn_tensor_attr in = {.index = 0}, out = {.index = 0};

static void write_input(void *where)
{
    float *data = malloc(in.n_elems * 4);
    int8_t *codes = where;
    fill(data, in.n_elems, 3);
    for (unsigned n = 0; n < in.n_elems; n++)
        codes[n] = (int8_t)(__builtin_rintf(data[n] / in.scale) + (float)in.zp);
    free(data);
}

static void check_frame(rknn_context ctx, rknn_tensor_mem *given, rknn_tensor_mem *taken, const float *wanted)
{
    rknn_tensor_attr as_float = out;
    as_float.type = RKNN_TENSOR_FLOAT32;
    as_float.size = out.n_elems * 4;
    CALL(rknn_set_io_mem(ctx, given, &in), 0);
    CALL(rknn_set_io_mem(ctx, taken, &as_float), 0);
    write_input(given->virt_addr);
    memset(taken->virt_addr, 0x5a, out.n_elems * 4);
    CALL(rknn_mem_sync(ctx, given, RKNN_MEMORY_SYNC_TO_DEVICE), 0);
    CALL(rknn_run(ctx, NULL), 0);
    CALL(rknn_mem_sync(ctx, taken, RKNN_MEMORY_SYNC_FROM_DEVICE), 0);
    CHECK(!memcmp(taken->virt_addr, wanted, out.n_elems * 4));
}

int main(int argc, char **argv)
{
    rknn_context ctx, plain;
    unsigned count;
    CHECK(argc == 2);
    CALL(rknn_init(&plain, argv[1], 0, 0, NULL), 0);
    float *wanted = frame(plain, 3, &count);
    CALL(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof(in)), 0);
    CALL(rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &out, sizeof(out)), 0);
    CHECK(in.type == RKNN_TENSOR_INT8 && in.w_stride == in.dims[2]);

    rknn_tensor_mem *a = rknn_create_mem(ctx, in.size_with_stride), *b = rknn_create_mem(ctx, out.n_elems * 4);
    CHECK(a && b && a->virt_addr && a->fd >= 0 && a->flags == RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE);
    CHECK(a->phys_addr && a->size == in.size_with_stride);
    check_frame(ctx, a, b, wanted);

    /* Its descriptor can be mapped, and shows the same pages. */
    uint8_t *again = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    CHECK(again != MAP_FAILED && !memcmp(again, a->virt_addr, in.n_elems));
    again[0] ^= 1;
    CHECK(*(uint8_t *)a->virt_addr == again[0]);
    rknn_tensor_mem *alias = rknn_create_mem_from_fd(ctx, a->fd, a->virt_addr, a->size, 0);
    CHECK(alias && alias->virt_addr == a->virt_addr && alias->phys_addr == a->phys_addr && alias->fd == a->fd);
    int copy = dup(a->fd);
    rknn_tensor_mem *mapped = rknn_create_mem_from_fd(ctx, copy, NULL, a->size, 0);
    CHECK(mapped && mapped->phys_addr == a->phys_addr && *(uint8_t *)mapped->virt_addr == again[0]);
    rknn_tensor_mem *by_address = rknn_create_mem_from_phys(ctx, a->phys_addr, NULL, a->size);
    CHECK(by_address && *(uint8_t *)by_address->virt_addr == again[0]);
    check_frame(ctx, mapped, b, wanted);
    CALL(rknn_destroy_mem(ctx, by_address), 0);
    CALL(rknn_destroy_mem(ctx, mapped), 0);
    CALL(rknn_destroy_mem(ctx, alias), 0);
    close(copy);

    /* A file of the program's. */
    int file = memfd_create("own", 0);
    CHECK(file >= 0 && !ftruncate(file, 16384));
    uint8_t *own = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    rknn_tensor_mem *c = rknn_create_mem_from_fd(ctx, file, own, in.size_with_stride, 4096);
    CHECK(c && c->virt_addr == own + 4096 && c->flags == RKNN_TENSOR_MEMORY_FLAGS_FROM_FD);
    check_frame(ctx, c, b, wanted);
    CHECK(rknn_create_mem_from_fd(ctx, file, own, 16384, 4096) == NULL);

    /* Bytes of the program's at an address. */
    uint8_t *input = calloc(1, in.size_with_stride);
    float *result = calloc(out.n_elems, 4);
    rknn_tensor_mem *d = rknn_create_mem_from_phys(ctx, 0, input, in.size_with_stride);
    rknn_tensor_mem *e = rknn_create_mem_from_phys(ctx, 0, result, out.n_elems * 4);
    CHECK(d && e && d->virt_addr == input && e->virt_addr == (void *)result);
    check_frame(ctx, d, e, wanted);
    CALL(rknn_destroy_mem(ctx, d), 0);
    CALL(rknn_destroy_mem(ctx, e), 0);
    CHECK(!memcmp(result, wanted, out.n_elems * 4));

    rknn_tensor_mem *loose = rknn_create_mem2(0, 8192, RKNN_MEM_FLAG_ALLOC_NO_CONTEXT);
    CHECK(loose && memset(loose->virt_addr, 1, 8192));
    CALL(rknn_destroy_mem(0, loose), 0);

    /* Without a free descriptor there is no memory, also none that the server still holds. */
    rknn_mem_size before = {0}, after = {0};
    struct rlimit all, few;
    CHECK(!getrlimit(RLIMIT_NOFILE, &all));
    few = all;
    int lowest = dup(0);
    few.rlim_cur = (rlim_t)lowest;
    close(lowest);
    CALL(rknn_query(ctx, RKNN_QUERY_MEM_SIZE, &before, sizeof(before)), 0);
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    CHECK(!rknn_create_mem(ctx, 4096) && !rknn_create_mem2(ctx, 4096, 0));
    CHECK(!rknn_create_mem_from_phys(ctx, 0, input, 4096));
    CHECK(!setrlimit(RLIMIT_NOFILE, &all));
    CALL(rknn_query(ctx, RKNN_QUERY_MEM_SIZE, &after, sizeof(after)), 0);
    CHECK(before.total_dma_allocated_size == after.total_dma_allocated_size);
    rknn_tensor_mem *later = rknn_create_mem(ctx, 4096);
    CHECK(later && later->fd == lowest && memset(later->virt_addr, 1, 4096));
    CALL(rknn_destroy_mem(ctx, later), 0);

    rknn_tensor_mem weights = {0};
    rknn_mem_size sizes = {0};
    CALL(rknn_query(ctx, RKNN_QUERY_DEVICE_MEM_INFO, &weights, sizeof(weights)), 0);
    CALL(rknn_query(ctx, RKNN_QUERY_MEM_SIZE, &sizes, sizeof(sizes)), 0);
    CHECK(weights.virt_addr && weights.size == sizes.total_weight_size);
    unsigned sum = 0;
    for (unsigned n = 0; n < weights.size; n++)
        sum += ((uint8_t *)weights.virt_addr)[n];
    CHECK(sum != 0);
    CALL(rknn_destroy(ctx), 0);
    CALL(rknn_destroy(plain), 0);
    free(wanted);
    return 0;
}
