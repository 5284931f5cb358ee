/* Small jobs through the vendor's driver, each checked against a plain loop. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "npu_cases.h"
#include "rknpu_uapi.h"

static int device = -1;
static int wrong_events; /* wait for events that never come */
static uint32_t timeout_ms = 6000;
static uint32_t counted;
static struct buffer records;

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(3);
    }
}

/* Opens the node whose driver has the name rknpu. */
static int open_device(void)
{
    for (int number = 0; number < 8; number++) {
        char path[32], name[16] = "";
        snprintf(path, sizeof(path), "/dev/dri/card%d", number);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        struct drm_version version = {.name_len = sizeof(name) - 1, .name = name};
        if (!ioctl(fd, DRM_IOCTL_VERSION, &version) && !strcmp(name, "rknpu"))
            return fd;
        close(fd);
    }
    fprintf(stderr, "no rknpu device\n");
    exit(3);
}

static struct buffer new_buffer_of(size_t size, uint32_t flags)
{
    struct rknpu_mem_create create = {.flags = flags, .size = size};
    must(ioctl(device, DRM_IOCTL_RKNPU_MEM_CREATE, &create), "MEM_CREATE");
    struct rknpu_mem_map map = {.handle = create.handle};
    must(ioctl(device, DRM_IOCTL_RKNPU_MEM_MAP, &map), "MEM_MAP");
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, device, (off_t)map.offset);
    must(place == MAP_FAILED ? -1 : 0, "mmap");
    return (struct buffer){create.handle, create.obj_addr, (uint32_t)create.dma_addr, size, place};
}

struct buffer new_buffer(size_t size)
{
    return new_buffer_of(size, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE);
}

void free_buffer(struct buffer *buffer)
{
    munmap(buffer->bytes, buffer->size);
    struct rknpu_mem_destroy destroy = {.handle = buffer->handle, .obj_addr = buffer->object};
    must(ioctl(device, DRM_IOCTL_RKNPU_MEM_DESTROY, &destroy), "MEM_DESTROY");
}

static void sync_buffer(const struct buffer *buffer, uint32_t flags)
{
    struct rknpu_mem_sync sync = {.flags = flags, .obj_addr = buffer->object, .size = buffer->size};
    must(ioctl(device, DRM_IOCTL_RKNPU_MEM_SYNC, &sync), "MEM_SYNC");
}

int run_tasks(const struct task *tasks, int count, int cores, struct buffer *out)
{
    if (!records.size)
        records = new_buffer_of(4096, RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE | RKNPU_MEM_KERNEL_MAPPING);
    struct rknpu_task *record = (struct rknpu_task *)records.bytes;
    for (int n = 0; n < count; n++)
        record[n] = (struct rknpu_task){
            .enable_mask = tasks[n].blocks,
            .int_mask = wrong_events ? RK_PC_INTERRUPT_MASK__int_mask__PPU_0 | RK_PC_INTERRUPT_MASK__int_mask__PPU_1
                                     : dpu_done(),
            .int_clear = 0x1ffff,
            .regcfg_amount = (uint32_t)(tasks[n].words - TAIL),
            .regcmd_addr = tasks[n].address,
        };
    struct rknpu_submit submit = {
        .flags = RKNPU_JOB_PC | RKNPU_JOB_PINGPONG,
        .timeout = timeout_ms,
        .task_number = (uint32_t)count,
        .task_obj_addr = records.object,
        .core_mask = cores == 3 ? 7 : 1,
        .fence_fd = -1,
    };
    if (cores == 3)
        for (int core = 0; core < 3; core++)
            submit.subcore_task[core + 2] = (struct rknpu_subcore_task){(uint32_t)core, 1};
    else
        submit.subcore_task[0] = (struct rknpu_subcore_task){0, (uint32_t)count};
    int result = ioctl(device, DRM_IOCTL_RKNPU_SUBMIT, &submit) ? errno : 0;
    counted = submit.task_counter;
    if (!result && submit.task_counter != (uint32_t)count) {
        printf("task_counter is %u, not %d\n", submit.task_counter, count);
        return EPROTO;
    }
    if (!result && submit.hw_elapse_time <= 0) {
        printf("hw_elapse_time is %lld\n", (long long)submit.hw_elapse_time);
        return EPROTO;
    }
    sync_buffer(out, 2);
    return result;
}

static int timeout_case(void)
{
    struct work w = new_work(&SMALL, 5);
    wrong_events = 1;
    timeout_ms = 50;
    int error = run_tasks(&w.task, 1, 1, &w.data);
    wrong_events = 0;
    timeout_ms = 6000;
    printf("timeout: %s, task counter %u\n", strerror(error), counted);
    free_work(&w);
    return error != ETIMEDOUT || one_case("after the timeout", &MATRIX, 6);
}

/* One job of very many tasks, whose list links to itself.  Prints a line when it is about to start. */
static int long_case(int count)
{
    struct work w;
    struct task *tasks = calloc((size_t)count, sizeof(*tasks));
    place_work(&w, &SMALL, 5);
    write_list(&w, w.data.address + w.in, NULL);
    write_list(&w, w.data.address + w.in, &w);
    want_from(&w, (const int8_t *)(w.data.bytes + w.in));
    for (int n = 0; n < count; n++)
        tasks[n] = w.task;
    records = new_buffer_of((size_t)count * sizeof(struct rknpu_task),
                            RKNPU_MEM_NON_CONTIGUOUS | RKNPU_MEM_CACHEABLE | RKNPU_MEM_KERNEL_MAPPING);
    timeout_ms = 600000;
    printf("starting\n");
    fflush(stdout);
    int error = run_tasks(tasks, count, 1, &w.data);
    if (error)
        printf("long: %s\n", strerror(error));
    return error || check_work(&w, "long");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int all = !strcmp(what, "all");
    device = open_device();
    struct rknpu_action action = {.flags = RKNPU_GET_DRV_VERSION};
    must(ioctl(device, DRM_IOCTL_RKNPU_ACTION, &action), "GET_DRV_VERSION");
    int result = argc < 2 ? usage(argv[0]) : 0;
    if (all || !strcmp(what, "matmul"))
        result |= one_case("matmul", &MATRIX, 1);
    if (all || !strcmp(what, "conv"))
        result |= one_case("conv", &BIASED, 2);
    if (all || !strcmp(what, "chain"))
        result |= chain_case();
    if (all || !strcmp(what, "cores"))
        result |= cores_case();
    if (all || !strcmp(what, "timeout"))
        result |= timeout_case();
    if (!strcmp(what, "long"))
        result |= long_case(argc > 2 ? atoi(argv[2]) : 400);
    if (!strcmp(what, "recover")) {
        timeout_ms = 50;
        result |= recover_case(argc > 2 ? atoi(argv[2]) : 6);
    }
    if (!strcmp(what, "loop"))
        result |= loop_case(argc > 2 ? atoi(argv[2]) : 200, argc > 3 ? atoi(argv[3]) : 0);
    return result ? 1 : 0;
}
