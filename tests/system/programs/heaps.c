/* heaps MODEL: inputs and outputs in memory of the kernel's heaps, as programs with other drivers allocate it. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct allocation {
    uint64_t len;
    uint32_t fd, fd_flags;
    uint64_t heap_flags;
};
#define HEAP_ALLOC _IOWR('H', 0, struct allocation)
#define BUFFER_SYNC _IOW('b', 0, uint64_t)

static int allocate(const char *heap, uint64_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/dev/dma_heap/%s", heap);
    int node = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(node >= 0);
    struct allocation made = {.len = size, .fd_flags = O_RDWR | O_CLOEXEC};
    CALL(ioctl(node, HEAP_ALLOC, &made), 0);
    CALL(close(node), 0);
    CHECK((fcntl((int)made.fd, F_GETFL) & O_ACCMODE) == O_RDWR && fcntl((int)made.fd, F_GETFD) == FD_CLOEXEC);
    return (int)made.fd;
}

static void touch(int fd, uint64_t flags)
{
    CALL(ioctl(fd, BUFFER_SYNC, &flags), 0);
}

static void run_with(rknn_context ctx, const char *heap, int mapped, unsigned offset, const float *wanted)
{
    rknn_tensor_attr in = {.index = 0}, out = {.index = 0};
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof(in)), 0);
    CALL(rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &out, sizeof(out)), 0);
    out.type = RKNN_TENSOR_FLOAT32;
    out.size = out.n_elems * 4;
    unsigned sizes[2] = {in.size_with_stride, out.size};
    rknn_tensor_mem *mems[2];
    uint8_t *places[2];
    int fds[2];
    for (int n = 0; n < 2; n++) {
        fds[n] = allocate(heap, offset + sizes[n]);
        uint64_t whole = ((uint64_t)offset + sizes[n] + 4095) & ~4095ull;
        CHECK(lseek(fds[n], 0, SEEK_END) == (off_t)whole);
        places[n] = mmap(NULL, offset + sizes[n], PROT_READ | PROT_WRITE, MAP_SHARED, fds[n], 0);
        CHECK(places[n] != MAP_FAILED);
        mems[n] = rknn_create_mem_from_fd(ctx, fds[n], mapped ? places[n] : NULL, sizes[n], (int)offset);
        CHECK(mems[n] && mems[n]->fd == fds[n] && mems[n]->size == sizes[n]);
        CHECK(mems[n]->flags == RKNN_TENSOR_MEMORY_FLAGS_FROM_FD && mems[n]->offset == (int)offset);
        CHECK(!mapped || mems[n]->virt_addr == places[n] + offset);
        CHECK(!rknn_create_mem_from_fd(ctx, fds[n], NULL, (uint32_t)whole, 4096));
    }
    CALL(rknn_set_io_mem(ctx, mems[0], &in), 0);
    CALL(rknn_set_io_mem(ctx, mems[1], &out), 0);
    touch(fds[0], 3); /* the CPU reads and writes: begin, end */
    float *data = malloc(in.n_elems * 4);
    fill(data, in.n_elems, 3);
    for (unsigned n = 0; n < in.n_elems; n++)
        ((int8_t *)places[0])[offset + n] = (int8_t)(__builtin_rintf(data[n] / in.scale) + (float)in.zp);
    free(data);
    touch(fds[0], 7);
    CALL(rknn_run(ctx, NULL), 0);
    CHECK(!memcmp(places[1] + offset, wanted, out.size));
    for (int n = 0; n < 2; n++) {
        CALL(rknn_destroy_mem(ctx, mems[n]), 0);
        CALL(munmap(places[n], offset + sizes[n]), 0);
        CALL(close(fds[n]), 0);
    }
}

int main(int argc, char **argv)
{
    static const char *const heaps[] = {"system", "system-dma32", "system-uncached", "system-uncached-dma32",
                                        "cma", "cma-uncached"};
    rknn_context ctx, plain;
    unsigned count;
    CHECK(argc == 2);
    CALL(rknn_init(&plain, argv[1], 0, 0, NULL), 0);
    float *wanted = frame(plain, 3, &count);
    CALL(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);
    for (unsigned n = 0; n < sizeof(heaps) / sizeof(heaps[0]); n++)
        run_with(ctx, heaps[n], n & 1, n > 2 ? 4096 : 0, wanted);
    CALL(rknn_destroy(ctx), 0);
    CALL(rknn_destroy(plain), 0);
    free(wanted);
    return 0;
}
