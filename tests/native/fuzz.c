/* Hostile calls on the device's nodes: random and mutated structures, pointers, descriptors, processes.
 *
 * fuzz SEED COUNT; prints how many calls were made, how many succeeded, and how often each error came. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../examples/device/rknpu_uapi.h"
#include "../../examples/device/rocket_uapi.h"

#define FDS 24
#define MAPS 16

static uint64_t state;
static int fds[FDS];
static struct {
    uint8_t *place;
    size_t size;
} maps[MAPS];
static uint32_t handles[8];
static uint64_t objects[8], addresses[8], offsets[8];
static uint8_t *edge; /* a readable page, then a page of nothing */
static uint8_t *readonly;
static long calls, good, errors[200];

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t limit)
{
    return draw() % limit;
}

static uint64_t number(void)
{
    static const uint64_t corners[] = {0, 1, 2, 3, 7, 0xff, 0x1000, 0x7fffffff, 0x80000000, 0xffffffff,
                                       0x100000000, 0x7fffffffffffffff, 0x8000000000000000, ~0ull};
    switch (below(4)) {
    case 0:
        return corners[below(sizeof(corners) / sizeof(corners[0]))];
    case 1:
        return below(64);
    case 2:
        return below(8) * 4096;
    default:
        return draw() >> below(64);
    }
}

static void *pointer(void)
{
    static uint8_t room[8192];
    switch (below(10)) {
    case 0:
        return NULL;
    case 1:
        return (void *)(uintptr_t)draw();
    case 2:
        return edge + 4096 - below(120);
    case 3:
        return readonly + below(64);
    case 4:
        return maps[below(MAPS)].place;
    default:
        return room + below(64) * 8;
    }
}

static int fd_of(void)
{
    return below(12) ? fds[below(FDS)] : (int)below(64) - 2;
}

static void count(long result)
{
    calls++;
    if (result >= 0)
        good++;
    else if (errno < 200)
        errors[errno]++;
}

/* A structure that makes sense, for the drivers to look deeper into. */
static unsigned long sensible(uint8_t *data, int *kept)
{
    int n = (int)below(8);
    *kept = n;
    switch (below(11)) {
    case 0:
        *(struct rknpu_action *)data = (struct rknpu_action){(uint32_t)below(28), (uint32_t)number()};
        return DRM_IOCTL_RKNPU_ACTION;
    case 1:
    case 2:
        *(struct rknpu_mem_create *)data =
            (struct rknpu_mem_create){.flags = (uint32_t)below(0x800), .size = below(16) * 4096 + below(3)};
        return DRM_IOCTL_RKNPU_MEM_CREATE;
    case 3:
        *(struct rknpu_mem_map *)data = (struct rknpu_mem_map){.handle = handles[n]};
        return DRM_IOCTL_RKNPU_MEM_MAP;
    case 4:
        *(struct rknpu_mem_destroy *)data = (struct rknpu_mem_destroy){.handle = handles[n]};
        return DRM_IOCTL_RKNPU_MEM_DESTROY;
    case 5:
        *(struct rknpu_mem_sync *)data = (struct rknpu_mem_sync){(uint32_t)below(4), 0, objects[n], number(), number()};
        return DRM_IOCTL_RKNPU_MEM_SYNC;
    case 6: {
        struct rknpu_submit *submit = (struct rknpu_submit *)data;
        *submit = (struct rknpu_submit){.flags = 1 | (uint32_t)below(32),
                                        .timeout = (uint32_t)below(100),
                                        .task_number = 1 + (uint32_t)below(4),
                                        .task_obj_addr = objects[n],
                                        .core_mask = (uint32_t)below(8),
                                        .fence_fd = fd_of()};
        for (int core = 0; core < 5; core++)
            submit->subcore_task[core] = (struct rknpu_subcore_task){(uint32_t)below(3), (uint32_t)below(4)};
        return DRM_IOCTL_RKNPU_SUBMIT;
    }
    case 7:
        *(struct drm_rocket_create_bo *)data = (struct drm_rocket_create_bo){.size = (uint32_t)below(9) * 4096};
        return DRM_IOCTL_ROCKET_CREATE_BO;
    case 8: {
        struct drm_rocket_job *job = (struct drm_rocket_job *)(data + 1024);
        uint32_t *list = (uint32_t *)(data + 2048);
        for (int word = 0; word < 64; word++)
            list[word] = (uint32_t)(below(2) ? handles[n] : below(2) ? addresses[n] : number());
        *job = (struct drm_rocket_job){(uintptr_t)(below(9) ? list : pointer()), (uintptr_t)(list + 8),
                                       (uintptr_t)(list + 9), (uint32_t)below(4), 8, (uint32_t)below(2), 1};
        *(struct drm_rocket_submit *)data = (struct drm_rocket_submit){
            (uintptr_t)(below(9) ? (void *)job : pointer()), (uint32_t)below(3), 40, 0};
        return DRM_IOCTL_ROCKET_SUBMIT;
    }
    case 9:
        *(struct drm_rocket_prep_bo *)data = (struct drm_rocket_prep_bo){handles[n], 0, (int64_t)number()};
        return DRM_IOCTL_ROCKET_PREP_BO;
    default: {
        uint32_t *prime = (uint32_t *)data; /* export and import of buffers */
        prime[0] = handles[n];
        prime[1] = (uint32_t)below(2) * O_CLOEXEC | O_RDWR;
        prime[2] = (uint32_t)fd_of();
        return below(2) ? 0xC00C642Dul : 0xC00C642Eul;
    }
    }
}

static void remember(unsigned long request, const uint8_t *data, int kept)
{
    if (request == DRM_IOCTL_RKNPU_MEM_CREATE) {
        const struct rknpu_mem_create *create = (const struct rknpu_mem_create *)data;
        handles[kept] = create->handle;
        objects[kept] = create->obj_addr;
        addresses[kept] = create->dma_addr;
    } else if (request == DRM_IOCTL_RKNPU_MEM_MAP) {
        offsets[kept] = ((const struct rknpu_mem_map *)data)->offset;
    } else if (request == DRM_IOCTL_ROCKET_CREATE_BO) {
        const struct drm_rocket_create_bo *create = (const struct drm_rocket_create_bo *)data;
        handles[kept] = create->handle;
        addresses[kept] = create->dma_address;
        offsets[kept] = create->offset;
    } else if (request == 0xC00C642Dul) {
        int at = (int)below(FDS);
        close(fds[at]);
        fds[at] = ((const int32_t *)data)[2];
    }
}

static void one_ioctl(void)
{
    static _Alignas(16) uint8_t data[8192];
    int kept = 0;
    unsigned long request;
    if (below(4)) {
        request = sensible(data, &kept);
        size_t size = (request >> 16) & 0x3fff;
        for (uint64_t flips = below(3) ? 0 : below(4); flips; flips--)
            if (below(2))
                data[below(size)] ^= (uint8_t)(1u << below(8));
            else
                *(uint64_t *)(data + below(size / 8 + 1) * 8) = number();
        if (!below(20))
            request ^= 1ul << below(32);
    } else {
        for (size_t n = 0; n < 256; n += 8)
            *(uint64_t *)(data + n) = number();
        request = below(3) ? (below(4) << 30 | below(200) << 16 | 'd' << 8 | (below(2) ? 0x40 + below(8) : below(256)))
                           : draw() & 0xffffffff;
    }
    void *argument = below(12) ? data : pointer();
    long result = ioctl(fd_of(), request, argument);
    count(result);
    if (!result && argument == data)
        remember(request, data, kept);
}

static void one_map(void)
{
    int at = (int)below(MAPS);
    if (maps[at].place)
        munmap(maps[at].place, maps[at].size);
    maps[at].place = NULL;
    size_t size = below(6) ? (1 + below(4)) * 4096 : (size_t)number();
    off_t offset = (off_t)(below(5) ? offsets[below(8)] : number());
    int flags = below(8) ? MAP_SHARED : MAP_PRIVATE;
    struct stat status;
    int fd = fd_of();
    if (!fstat(fd, &status) && S_ISREG(status.st_mode))
        return; /* an ordinary file may end before its mapping does */
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, offset);
    count(place == MAP_FAILED ? -1 : 0);
    if (place == MAP_FAILED)
        return;
    maps[at].place = place;
    maps[at].size = size;
    /* Mapped addresses are memory: use all of them, up to a page. */
    for (size_t n = 0; n < size && n < 65536; n += 8)
        *(uint64_t *)(maps[at].place + n) = below(2) ? number() : 0;
}

static void one_other(void)
{
    static const char *const paths[] = {"/dev/dri/card1", "/dev/dri/renderD129", "/dev/accel/accel0",
                                        "/sys/kernel/debug/rknpu/delayms", "/dev/dri/by-path", "/dev/dri/none",
                                        "/proc/device-tree/compatible"};
    static const int flags[] = {O_RDWR, O_RDONLY, O_WRONLY, O_RDWR | O_NONBLOCK, O_PATH};
    struct stat status;
    char text[64];
    int at = (int)below(FDS), fd;
    switch (below(9)) {
    case 0:
    case 1:
        close(fds[at]);
        fds[at] = open(paths[below(below(3) ? 3 : 7)], flags[below(3) ? 0 : below(5)]);
        count(fds[at]);
        break;
    case 2:
        fd = dup(fd_of());
        count(fd);
        if (fd >= 0) {
            close(fds[at]);
            fds[at] = fd;
        }
        break;
    case 3:
        count(fstat(fd_of(), &status));
        break;
    case 4:
        count(lseek(fd_of(), (off_t)number(), (int)below(4)));
        break;
    case 5:
        if (fd_of() > 2 && fcntl(fds[at], F_GETFL) & O_NONBLOCK)
            count(read(fds[at], text, sizeof(text)));
        break;
    case 6:
        snprintf(text, sizeof(text), "%llu\n", (unsigned long long)number());
        fd = fds[at];
        if (fd > 2)
            count(write(fd, below(4) ? text : pointer(), below(sizeof(text))));
        break;
    case 7: {
        struct pollfd waits = {.fd = fd_of(), .events = (short)number()};
        count(poll(&waits, 1, 0));
        break;
    }
    default:
        if (!below(6)) {
            pid_t child = fork();
            if (!child) {
                for (int n = 0; n < 4; n++)
                    one_ioctl();
                if (below(2))
                    raise(SIGKILL);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    state = strtoull(argv[1], NULL, 0) * 2654435761u + 88172645463325252ull;
    long wanted = atol(argv[2]);
    signal(SIGPIPE, SIG_IGN);
    edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(edge + 4096, 4096, PROT_NONE);
    readonly = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int n = 0; n < FDS; n++)
        fds[n] = open(n % 3 == 2 ? "/dev/accel/accel0" : "/dev/dri/card1", O_RDWR);
    if (fds[0] < 0 || fds[2] < 0)
        return 3;
    while (calls < wanted)
        switch (below(8)) {
        case 0:
            one_map();
            break;
        case 1:
            one_other();
            break;
        default:
            one_ioctl();
        }
    printf("%ld calls, %ld succeeded", calls, good);
    for (int n = 0; n < 200; n++)
        if (errors[n])
            printf(", %s %ld", strerrorname_np(n), errors[n]);
    puts("");
    return 0;
}
