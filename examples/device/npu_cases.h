/* The jobs that the programs of both drivers run; each driver's program implements the functions to run tasks. */
#ifndef NPU_CASES_H
#define NPU_CASES_H
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "npu_program.h"

struct buffer {
    uint32_t handle;
    uint64_t object;
    uint32_t address; /* in the device's address space */
    size_t size;
    uint8_t *bytes;
};

struct task {
    uint32_t address; /* of its command list */
    int words;
    uint32_t blocks;
};

/* Implemented by each driver's program. */
struct buffer new_buffer(size_t size);
void free_buffer(struct buffer *buffer);
/* Runs a chain of tasks on one core, or, if `cores` is 3, one task on each core.  Returns 0 or an error number. */
int run_tasks(const struct task *tasks, int count, int cores, struct buffer *out);

/* One convolution with random data: buffers, command list, and the result of the plain loop. */
struct work {
    struct conv shape;
    struct buffer data, list;
    uint32_t in, weights, table, out; /* offsets in `data` */
    int8_t *want;
    struct task task;
};

static inline uint32_t page_up(uint32_t bytes)
{
    return (bytes + 4095u) & ~4095u;
}

static void place_work(struct work *w, const struct conv *shape, uint32_t seed)
{
    w->shape = *shape;
    w->in = 0;
    w->weights = page_up((uint32_t)conv_input_bytes(shape));
    w->table = w->weights + page_up((uint32_t)conv_weight_bytes(shape));
    w->out = w->table + 4096;
    w->data = new_buffer(w->out + page_up((uint32_t)conv_output_bytes(shape)));
    w->list = new_buffer(4096);
    fill_random(w->data.bytes + w->in, conv_input_bytes(shape), seed);
    fill_random(w->data.bytes + w->weights, conv_weight_bytes(shape), seed + 1);
    int32_t *bias = (int32_t *)(w->data.bytes + w->table);
    for (int n = 0; n < shape->kernels; n++)
        bias[n] = (n - shape->kernels / 2) * 1000 + (int)seed;
    memset(w->data.bytes + w->out, 0x55, (size_t)conv_output_bytes(shape));
}

static void write_list(struct work *w, uint32_t in, const struct work *next)
{
    uint32_t base = w->data.address;
    w->task.address = w->list.address;
    w->task.blocks = conv_blocks(&w->shape);
    w->task.words = conv_list((uint64_t *)w->list.bytes, &w->shape, in, base + w->weights, base + w->table,
                              base + w->out, next ? next->list.address : 0, next ? next->task.words : 0,
                              w->task.blocks);
}

static void want_from(struct work *w, const int8_t *in)
{
    w->want = malloc((size_t)conv_output_bytes(&w->shape));
    conv_plain(&w->shape, in, (const int8_t *)(w->data.bytes + w->weights),
               (const int32_t *)(w->data.bytes + w->table), w->want);
}

static struct work new_work(const struct conv *shape, uint32_t seed)
{
    struct work w;
    place_work(&w, shape, seed);
    write_list(&w, w.data.address + w.in, NULL);
    want_from(&w, (const int8_t *)(w.data.bytes + w.in));
    return w;
}

static int check_work(const struct work *w, const char *name)
{
    const int8_t *got = (const int8_t *)(w->data.bytes + w->out);
    for (int n = 0; n < conv_output_bytes(&w->shape); n++)
        if (got[n] != w->want[n]) {
            printf("%s: byte %d is %d, not %d\n", name, n, got[n], w->want[n]);
            return 1;
        }
    printf("%s: %d bytes right\n", name, conv_output_bytes(&w->shape));
    return 0;
}

static void free_work(struct work *w)
{
    free_buffer(&w->data);
    free_buffer(&w->list);
    free(w->want);
}

/* [32 x 64] times [64 x 64]: a 1 x 1 convolution whose pixels are the rows. */
static const struct conv MATRIX = {4, 8, 64, 64, 1, 8, 0};
static const struct conv BIASED = {6, 7, 32, 32, 3, 9, 1};
static const struct conv SMALL = {4, 4, 32, 32, 1, 7, 0};

static int one_case(const char *name, const struct conv *shape, uint32_t seed)
{
    struct work w = new_work(shape, seed);
    int error = run_tasks(&w.task, 1, 1, &w.data);
    if (error)
        printf("%s: %s\n", name, strerror(error));
    else
        error = check_work(&w, name);
    free_work(&w);
    return error;
}

static int chain_case(void)
{
    struct work first, second;
    place_work(&first, &BIASED, 7);
    place_work(&second, &BIASED, 8);
    /* The second task reads the output of the first; its own input is unused. */
    write_list(&second, first.data.address + first.out, NULL);
    write_list(&first, first.data.address + first.in, &second);
    want_from(&first, (const int8_t *)(first.data.bytes + first.in));
    want_from(&second, first.want);
    struct task tasks[2] = {first.task, second.task};
    int error = run_tasks(tasks, 2, 1, &second.data);
    if (error)
        printf("chain: %s\n", strerror(error));
    else
        error = check_work(&first, "chain, first task") || check_work(&second, "chain, second task");
    free_work(&first);
    free_work(&second);
    return error;
}

static inline int cores_case(void)
{
    struct work works[3];
    struct task tasks[3];
    for (int core = 0; core < 3; core++) {
        works[core] = new_work(core == 1 ? &BIASED : &MATRIX, 20 + (uint32_t)core);
        tasks[core] = works[core].task;
    }
    int error = run_tasks(tasks, 3, 3, &works[2].data);
    if (error)
        printf("cores: %s\n", strerror(error));
    for (int core = 0; core < 3; core++) {
        error |= error ? 0 : check_work(&works[core], "cores");
        free_work(&works[core]);
    }
    return error;
}

/* Runs the same job repeatedly: SMALL, or a 3 x 3 convolution of `side` x `side` pixels. */
static int loop_case(int count, int side)
{
    struct conv shape = {side, side, 32, 32, 3, 9, 1};
    struct work w = new_work(side ? &shape : &SMALL, 3);
    int error = 0;
    for (int n = 0; n < count && !error; n++)
        error = run_tasks(&w.task, 1, 1, &w.data);
    printf("loop: %d jobs, %s\n", count, error ? strerror(error) : "no error");
    error = error || check_work(&w, "loop");
    free_work(&w);
    return error;
}

static int is_right(const struct work *w)
{
    return !memcmp(w->data.bytes + w->out, w->want, (size_t)conv_output_bytes(&w->shape));
}

/* Different jobs on a board that has faults: a job that fails, or whose result is wrong, is run again. */
static int recover_case(int count)
{
    int right = 0, again = 0;
    for (int n = 0; n < count; n++) {
        struct work w = new_work(n % 2 ? &BIASED : &MATRIX, 50 + (uint32_t)n);
        for (int tries = 0; tries < 4; tries++) {
            memset(w.data.bytes + w.out, 0x5a, (size_t)conv_output_bytes(&w.shape));
            int error = run_tasks(&w.task, 1, 1, &w.data);
            if (!error && is_right(&w)) {
                right++;
                break;
            }
            printf("recover: job %d: %s\n", n, error ? strerror(error) : "the result is wrong");
            again++;
        }
        free_work(&w);
    }
    printf("recover: %d of %d jobs right, %d runs again\n", right, count, again);
    return right != count;
}

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s matmul | conv | chain | cores | timeout | loop COUNT [SIDE] | recover [COUNT] | all\n",
            program);
    return 2;
}

#endif
