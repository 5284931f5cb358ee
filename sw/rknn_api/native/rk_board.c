/* Conversion of quantised inputs and outputs in the process of the program, without a message to the server;
 * sw/rknn_api/server/board.py describes boards.  The arithmetic is that of the server in float32:
 * code = saturate(round_half_even(value / scale) + zero), value = (code - zero) * scale. */
#include "rknnrt.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Comparisons of floats become selections, so that the loops are vectorised; results do not change. */
#pragma GCC optimize("O3", "no-trapping-math")

#define PART 4096             /* elements that are converted at a time */
#define HALF_EVEN 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds a float below 2^22 */
#define BEYOND 1048576.0f     /* a quotient beyond all codes, which rounding leaves exact */

static const struct rk_board_tensor *tensor_of(const struct rk_board *board, uint32_t number, uint64_t size,
                                               int input)
{
    const struct rk_board_tensor *t = &board->tensors[number];
    if (!__atomic_load_n(&t->usable, __ATOMIC_ACQUIRE) || !t->step || t->channels > 65535 || !t->scale)
        return NULL;
    uint64_t last = t->at + (uint64_t)(t->channels - 1) / t->step * t->surface + (t->channels - 1) % t->step +
                    (t->height - 1) * t->line + (t->width - 1) * t->pixel;
    if (last >= size || (input && t->at + t->size > size))
        return NULL;
    return t;
}

/* Convert `count` numbers to stored bytes; return whether all are finite. */
static int to_bytes(const struct rk_board_tensor *t, const float *values, uint8_t *bytes, size_t count)
{
    float scale = t->scale, zero = t->zero, low = (float)t->low, high = (float)t->high;
    uint8_t flip = (uint8_t)t->flip;
    uint32_t bad = 0;
    for (size_t n = 0; n < count; n++) {
        uint32_t bits;
        memcpy(&bits, &values[n], sizeof(bits));
        bad |= (uint32_t)((bits & 0x7f800000u) == 0x7f800000u);
        float q = values[n] / scale;
        q = q < BEYOND ? q : BEYOND;
        q = q > -BEYOND ? q : -BEYOND;
        q = (q + HALF_EVEN) - HALF_EVEN + zero;
        q = q < high ? q : high;
        q = q > low ? q : low;
        bytes[n] = (uint8_t)((uint8_t)(int32_t)q ^ flip);
    }
    return !bad;
}

/* Write the converted elements `at` to `at + count` of a buffer in the order NHWC or NCHW. */
static void scatter(const struct rk_board_tensor *t, uint8_t *base, const uint8_t *bytes, size_t at,
                    size_t count, int nchw)
{
    size_t channels = t->channels, width = t->width, height = t->height, step = t->step;
    if (!nchw && t->pixel == channels && step >= channels && t->line == width * channels) {
        memcpy(base + t->at + at, bytes, count);
        return;
    }
    while (count) {
        size_t channel = nchw ? at / (width * height) : at % channels;
        size_t row = nchw ? at / width % height : at / channels / width;
        size_t column = nchw ? at % width : at / channels % width;
        uint8_t *to = base + t->at + channel / step * t->surface + channel % step;
        to += row * t->line + column * t->pixel;
        size_t run = nchw ? width - column : channels - channel;
        if (!nchw && run > step - channel % step)
            run = step - channel % step;
        run = run < count ? run : count;
        size_t pitch = nchw ? t->pixel : 1;
        for (size_t n = 0; n < run; n++)
            to[n * pitch] = bytes[n];
        bytes += run, at += run, count -= run;
    }
}

static int set_input(struct rk_board *board, uint64_t size, const rknn_input *input)
{
    const struct rk_board_tensor *t = tensor_of(board, input->index, size, 1);
    if (!t || !input->buf || input->pass_through)
        return 0;
    int floats = input->type == RKNN_TENSOR_FLOAT32;
    if (!floats && input->type != RKNN_TENSOR_UINT8)
        return 0;
    if (input->fmt != RKNN_TENSOR_NHWC && input->fmt != RKNN_TENSOR_NCHW)
        return 0;
    size_t count = (size_t)t->channels * t->height * t->width;
    if (input->size < count * (floats ? sizeof(float) : 1) || (floats && (uintptr_t)input->buf % sizeof(float)))
        return 0;
    uint8_t bytes[PART];
    float values[PART];
    for (size_t first = 0; first < count; first += PART) {
        size_t part = count - first < PART ? count - first : PART;
        const float *given = (const float *)input->buf + first;
        if (!floats) {
            for (size_t n = 0; n < part; n++)
                values[n] = (float)((const uint8_t *)input->buf)[first + n];
            given = values;
        }
        if (!to_bytes(t, given, bytes, part))
            return 0; /* the server says what is wrong */
        scatter(t, (uint8_t *)board, bytes, first, part, input->fmt == RKNN_TENSOR_NCHW);
    }
    return 1;
}

/* Set all inputs of a call on the board; return 0 if the server has to do it. */
int rk_board_inputs(struct rk_board *board, uint64_t size, uint64_t count, const rknn_input *inputs)
{
    if (!board || !inputs || !count || count > board->inputs ||
        __atomic_load_n(&board->sequence, __ATOMIC_ACQUIRE) & 1)
        return 0;
    for (uint64_t n = 0; n < count; n++)
        if (inputs[n].index >= board->inputs || !set_input(board, size, &inputs[n]))
            return 0;
    for (uint64_t n = 0; n < count; n++)
        __atomic_store_n(&board->tensors[inputs[n].index].given, 1, __ATOMIC_RELEASE);
    return 1;
}

static void read_output(const struct rk_board_tensor *t, const uint8_t *pages, float *values)
{
    float table[256];
    for (int n = 0; n < 256; n++) {
        uint8_t code = (uint8_t)(n ^ (int)t->flip);
        table[n] = ((t->low < 0 ? (float)(int8_t)code : (float)code) - t->zero) * t->scale;
    }
    for (uint32_t first = 0; first < t->channels; first += t->step) {
        uint32_t step = t->channels - first < t->step ? t->channels - first : t->step;
        const uint8_t *surface = pages + t->at + first / t->step * t->surface;
        for (uint32_t row = 0; row < t->height; row++)
            for (uint32_t channel = 0; channel < step; channel++) {
                const uint8_t *from = surface + row * t->line + channel;
                float *to = values + ((uint64_t)(first + channel) * t->height + row) * t->width;
                for (uint32_t column = 0; column < t->width; column++)
                    to[column] = table[from[column * t->pixel]];
            }
    }
}

/* Read all outputs of a call; return 0 if the server has to do it. `reserve` returns memory of a size. */
int rk_board_outputs(const struct rk_board *board, const uint8_t *pages, uint64_t pages_size, uint64_t count,
                     rknn_output *outputs, void *(*reserve)(size_t))
{
    if (!board || !pages || !outputs || !count || count > board->outputs)
        return 0;
    uint32_t sequence = __atomic_load_n(&board->sequence, __ATOMIC_ACQUIRE);
    if (sequence & 1)
        return 0;
    for (uint64_t n = 0; n < count; n++) {
        const rknn_output *o = &outputs[n];
        if (o->index >= board->outputs || !o->want_float)
            return 0;
        const struct rk_board_tensor *t = tensor_of(board, board->inputs + o->index, pages_size, 0);
        if (!t)
            return 0;
        uint64_t bytes = (uint64_t)t->channels * t->height * t->width * sizeof(float);
        if (o->is_prealloc && (!o->buf || o->size < bytes || (uintptr_t)o->buf % sizeof(float)))
            return 0;
        if (bytes > UINT32_MAX)
            return 0;
    }
    for (uint64_t n = 0; n < count; n++)
        if (outputs[n].is_prealloc)
            read_output(&board->tensors[board->inputs + outputs[n].index], pages, outputs[n].buf);
    for (uint64_t n = 0; n < count; n++)
        if (!outputs[n].is_prealloc) {
            const struct rk_board_tensor *t = &board->tensors[board->inputs + outputs[n].index];
            size_t bytes = (size_t)t->channels * t->height * t->width * sizeof(float);
            void *made = reserve(bytes);
            if (!made)
                return 0;
            read_output(t, pages, made);
            outputs[n].buf = made;
            outputs[n].size = (uint32_t)bytes;
        }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&board->sequence, __ATOMIC_RELAXED) == sequence;
}

/* Map a file that came with an answer, and close its descriptor; NULL if that is not possible. */
void *rk_map(int fd, uint64_t size)
{
    void *memory = size ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}
