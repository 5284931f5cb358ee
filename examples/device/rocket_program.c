/* Small jobs through the mainline driver, each checked against a plain loop. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "npu_cases.h"
#include "rocket_uapi.h"

/* The jobs of one file run one after the other, so three cores need three files. */
static int devices[3] = {-1, -1, -1};
static int current;
static int64_t wait_seconds = 60;
static uint32_t other_blocks;

struct drm_gem_close {
    uint32_t handle;
    uint32_t pad;
};
#define DRM_IOCTL_GEM_CLOSE _IOW('d', 0x09, struct drm_gem_close)

static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(3);
    }
}

static int open_device(void)
{
    int fd = open("/dev/accel/accel0", O_RDWR | O_CLOEXEC);
    must(fd, "/dev/accel/accel0");
    return fd;
}

struct buffer new_buffer(size_t size)
{
    struct drm_rocket_create_bo create = {.size = (uint32_t)size};
    must(ioctl(devices[current], DRM_IOCTL_ROCKET_CREATE_BO, &create), "CREATE_BO");
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, devices[current], (off_t)create.offset);
    must(place == MAP_FAILED ? -1 : 0, "mmap");
    return (struct buffer){create.handle, 0, (uint32_t)create.dma_address, size, place};
}

void free_buffer(struct buffer *buffer)
{
    munmap(buffer->bytes, buffer->size);
    struct drm_gem_close gone = {.handle = buffer->handle};
    must(ioctl(devices[current], DRM_IOCTL_GEM_CLOSE, &gone), "GEM_CLOSE");
}

static int submit_tasks(int fd, const struct task *tasks, int count, uint32_t out)
{
    struct drm_rocket_task records[8];
    for (int n = 0; n < count; n++)
        records[n] = (struct drm_rocket_task){tasks[n].address, (uint32_t)tasks[n].words};
    struct drm_rocket_job job = {
        .tasks = (uint64_t)(uintptr_t)records,
        .out_bo_handles = (uint64_t)(uintptr_t)&out,
        .task_count = (uint32_t)count,
        .task_struct_size = sizeof(records[0]),
        .out_bo_handle_count = 1,
    };
    struct drm_rocket_submit submit = {
        .jobs = (uint64_t)(uintptr_t)&job,
        .job_count = 1,
        .job_struct_size = sizeof(job),
    };
    return ioctl(fd, DRM_IOCTL_ROCKET_SUBMIT, &submit) ? errno : 0;
}

static int wait_for(int fd, uint32_t handle)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct drm_rocket_prep_bo prep = {.handle = handle};
    prep.timeout_ns = (now.tv_sec + wait_seconds) * INT64_C(1000000000) + now.tv_nsec;
    return ioctl(fd, DRM_IOCTL_ROCKET_PREP_BO, &prep) < 0 ? errno : 0;
}

int run_tasks(const struct task *tasks, int count, int cores, struct buffer *out)
{
    (void)cores;
    struct drm_rocket_fini_bo fini = {.handle = out->handle};
    must(ioctl(devices[current], DRM_IOCTL_ROCKET_FINI_BO, &fini), "FINI_BO");
    int error = submit_tasks(devices[current], tasks, count, out->handle);
    return error ? error : wait_for(devices[current], out->handle);
}

static int three_files_case(void)
{
    struct work works[3];
    int error = 0;
    for (current = 0; current < 3; current++) {
        works[current] = new_work(current == 1 ? &BIASED : &MATRIX, 20 + (uint32_t)current);
        error |= submit_tasks(devices[current], &works[current].task, 1, works[current].data.handle);
    }
    for (current = 0; current < 3; current++) {
        error |= wait_for(devices[current], works[current].data.handle);
        error |= error ? 0 : check_work(&works[current], "three files");
        free_work(&works[current]);
    }
    current = 0;
    return error;
}

/* A task that never raises the events for which this driver waits: the wait ends nevertheless, and the output
 * is unchanged. */
static int timeout_case(void)
{
    struct work w = new_work(&SMALL, 5);
    uint64_t *words = (uint64_t *)w.list.bytes;
    words[w.task.words - 1] = rk_word(RK_TARGET_OP_ENABLE, RK_PC_OPERATION_ENABLE, other_blocks);
    int error = run_tasks(&w.task, 1, 1, &w.data);
    uint8_t byte = w.data.bytes[w.out];
    printf("timeout: %s, output %s\n", strerror(error), byte == 0x55 ? "untouched" : "changed");
    free_work(&w);
    return error || byte != 0x55 || one_case("after the timeout", &MATRIX, 6);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int all = !strcmp(what, "all");
    other_blocks = RK_GLOBAL_OPERATION_ENABLE__CNA_OP_EN(1) | RK_GLOBAL_OPERATION_ENABLE__CORE_OP_EN(1);
    for (current = 0; current < 3; current++) {
        devices[current] = open_device();
        new_buffer(4096); /* occupies address 0, which no task should use */
    }
    current = 0;
    int result = argc < 2 ? usage(argv[0]) : 0;
    if (all || !strcmp(what, "matmul"))
        result |= one_case("matmul", &MATRIX, 1);
    if (all || !strcmp(what, "conv"))
        result |= one_case("conv", &BIASED, 2);
    if (all || !strcmp(what, "chain"))
        result |= chain_case();
    if (all || !strcmp(what, "cores"))
        result |= three_files_case();
    if (all || !strcmp(what, "timeout"))
        result |= timeout_case();
    if (!strcmp(what, "recover"))
        result |= recover_case(argc > 2 ? atoi(argv[2]) : 6);
    if (!strcmp(what, "loop"))
        result |= loop_case(argc > 2 ? atoi(argv[2]) : 200, argc > 3 ? atoi(argv[3]) : 0);
    return result ? 1 : 0;
}
