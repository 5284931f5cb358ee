/* Command lists of small int8 convolutions, their layouts in memory, and plain loops to check them.
 *
 * Features are stored as surfaces of 16 channels, [channels / 16][height][width][16]; weights of every 32
 * kernels as [channels / 32][kernel height][kernel width][32 kernels][32 channels]. */
#ifndef NPU_PROGRAM_H
#define NPU_PROGRAM_H
#include <stdint.h>
#include <stdlib.h>

#include "npu_registers.h" /* generated from the register description */

enum { ATOM = 16, TAIL = 4 };

/* Channels and kernels are multiples of 32; the kernel is `taps` x `taps`, padded so that sizes do not change. */
struct conv {
    int height, width, channels, kernels, taps, shift;
    int bias; /* whether a table of int32, one for each kernel, is added */
};

static inline int conv_input_bytes(const struct conv *c)
{
    return c->height * c->width * c->channels;
}

static inline int conv_output_bytes(const struct conv *c)
{
    return c->height * c->width * c->kernels;
}

static inline int conv_weight_bytes(const struct conv *c)
{
    return c->kernels * c->taps * c->taps * c->channels;
}

static inline size_t feature_at(const struct conv *c, int y, int x, int channel)
{
    return (((size_t)(channel / ATOM) * c->height + y) * c->width + x) * ATOM + channel % ATOM;
}

static inline size_t weight_at(const struct conv *c, int kernel, int channel, int y, int x)
{
    size_t place = (size_t)(kernel / 32) * (c->channels / 32) + channel / 32;
    place = (place * c->taps + y) * c->taps + x;
    return (place * 32 + kernel % 32) * 32 + channel % 32;
}

/* value / 2^shift, halves to even, within int8. */
static inline int8_t narrow(int64_t value, int shift)
{
    int64_t result = value >> shift, rest = value - result * ((int64_t)1 << shift);
    int64_t half = shift ? (int64_t)1 << (shift - 1) : 0;
    if (shift && (rest > half || (rest == half && (result & 1))))
        result++;
    return (int8_t)(result > 127 ? 127 : result < -128 ? -128 : result);
}

/* The expected result. */
static inline void conv_plain(const struct conv *c, const int8_t *in, const int8_t *weights,
                              const int32_t *bias, int8_t *out)
{
    int pad = c->taps / 2;
    for (int kernel = 0; kernel < c->kernels; kernel++)
        for (int y = 0; y < c->height; y++)
            for (int x = 0; x < c->width; x++) {
                int64_t sum = c->bias ? bias[kernel] : 0;
                for (int ky = 0; ky < c->taps; ky++)
                    for (int kx = 0; kx < c->taps; kx++) {
                        int row = y + ky - pad, column = x + kx - pad;
                        if (row < 0 || row >= c->height || column < 0 || column >= c->width)
                            continue;
                        for (int channel = 0; channel < c->channels; channel++)
                            sum += in[feature_at(c, row, column, channel)] *
                                   weights[weight_at(c, kernel, channel, ky, kx)];
                    }
                out[feature_at(c, y, x, kernel)] = narrow(sum, c->shift);
            }
}

/* ---- command lists ---------------------------------------------------------------------------- */

struct list {
    uint64_t *words;
    int count;
};

static inline void add_word(struct list *list, uint64_t word)
{
    list->words[list->count++] = word;
}

#define SET(block, reg, value) \
    add_word(list, rk_word(RK_##block##_TARGET, RK_##block##_##reg, (uint32_t)(value)))
#define SET0(block, reg) SET(block, reg, 0)
#define PART(block, reg, field, value) RK_##block##_##reg##__##field(value)
#define SET1(block, reg, f, v) SET(block, reg, PART(block, reg, f, v))
#define SET2(block, reg, f, v, g, w) SET(block, reg, PART(block, reg, f, v) | PART(block, reg, g, w))
#define SET3(block, reg, f, v, g, w, h, x) \
    SET(block, reg, PART(block, reg, f, v) | PART(block, reg, g, w) | PART(block, reg, h, x))
#define SET4(block, reg, f, v, g, w, h, x, i, z)                                                      \
    SET(block, reg, PART(block, reg, f, v) | PART(block, reg, g, w) | PART(block, reg, h, x) |        \
                        PART(block, reg, i, z))

/* The blocks that a convolution starts. */
static inline uint32_t conv_blocks(const struct conv *c)
{
    uint32_t mask = RK_GLOBAL_OPERATION_ENABLE__CNA_OP_EN(1) | RK_GLOBAL_OPERATION_ENABLE__CORE_OP_EN(1) |
                    RK_GLOBAL_OPERATION_ENABLE__DPU_OP_EN(1);
    return c->bias ? mask | RK_GLOBAL_OPERATION_ENABLE__DPU_RDMA_OP_EN(1) : mask;
}

/* Interrupt events that end a task of the DPU. */
static inline uint32_t dpu_done(void)
{
    return RK_PC_INTERRUPT_MASK__int_mask__DPU_0 | RK_PC_INTERRUPT_MASK__int_mask__DPU_1;
}

/* Amount for the driver or for the previous task's tail: 16-byte fetches of a list of `words`, minus one. */
static inline uint32_t amount_code(int words)
{
    return (uint32_t)(words + 1) / 2 - 1;
}

static inline void conv_feature(struct list *list, const struct conv *c, uint32_t in, uint32_t weights)
{
    int area = c->height * c->width;
    SET0(CNA, CONV_CON1);
    SET1(CNA, CONV_CON2, FEATURE_GRAINS, c->height);
    SET2(CNA, CONV_CON3, CONV_Y_STRIDE, 1, CONV_X_STRIDE, 1);
    SET2(CNA, DATA_SIZE0, DATAIN_WIDTH, c->width, DATAIN_HEIGHT, c->height);
    SET2(CNA, DATA_SIZE1, DATAIN_CHANNEL_REAL, (c->channels - 1) % 64, DATAIN_CHANNEL, c->channels);
    SET1(CNA, DATA_SIZE2, DATAOUT_WIDTH, c->width);
    SET1(CNA, DATA_SIZE3, DATAOUT_ATOMICS, area);
    SET1(CNA, WEIGHT_SIZE0, WEIGHT_BYTES, conv_weight_bytes(c));
    SET1(CNA, WEIGHT_SIZE1, WEIGHT_BYTES_PER_KERNEL, conv_weight_bytes(c) / c->kernels);
    SET3(CNA, WEIGHT_SIZE2, WEIGHT_WIDTH, c->taps, WEIGHT_HEIGHT, c->taps, WEIGHT_KERNELS, c->kernels);
    SET2(CNA, CBUF_CON0, DATA_BANK, 4, WEIGHT_BANK, 8);
    SET1(CNA, CBUF_CON1, DATA_ENTRIES, (c->width * c->channels + 63) / 64);
    SET3(CNA, CVT_CON0, DATA_SIGN, 1, CVT_TYPE, 1, CVT_BYPASS, 1);
    SET2(CNA, PAD_CON0, PAD_LEFT, c->taps / 2, PAD_TOP, c->taps / 2);
    SET0(CNA, PAD_CON1);
    SET(CNA, FEATURE_DATA_ADDR, in);
    SET(CNA, DCOMP_ADDR0, weights);
    SET2(CNA, DMA_CON0, WEIGHT_BURST_LEN, 15, DATA_BURST_LEN, 15);
    SET1(CNA, DMA_CON1, LINE_STRIDE, 4 * c->width);
    SET1(CNA, DMA_CON2, SURF_STRIDE, area - 4 * c->width);
    SET2(CNA, FC_DATA_SIZE0, DMA_WIDTH, c->width, DMA_HEIGHT, c->height);
    SET1(CNA, FC_DATA_SIZE1, DMA_CHANNEL, c->channels);
    SET0(CORE, MISC_CFG);
    SET2(CORE, DATAOUT_SIZE_0, DATAOUT_HEIGHT, c->height - 1, DATAOUT_WIDTH, c->width - 1);
    SET1(CORE, DATAOUT_SIZE_1, DATAOUT_CHANNEL, c->kernels - 1);
    SET0(CORE, CLIP_TRUNCATE);
}

static inline void conv_result(struct list *list, const struct conv *c, uint32_t table, uint32_t out)
{
    int area = c->height * c->width;
    SET3(DPU, S_POINTER, POINTER_PP_MODE, 1, EXECUTER_PP_EN, 1, POINTER_PP_EN, 1);
    SET2(DPU, FEATURE_MODE_CFG, BURST_LEN, 15, OUTPUT_MODE, 2);
    SET0(DPU, DATA_FORMAT);
    SET(DPU, DST_BASE_ADDR, out);
    SET1(DPU, DST_SURF_STRIDE, DST_SURF_STRIDE, area);
    SET1(DPU, DATA_CUBE_WIDTH, WIDTH, c->width - 1);
    SET1(DPU, DATA_CUBE_HEIGHT, HEIGHT, c->height - 1);
    SET2(DPU, DATA_CUBE_CHANNEL, CHANNEL, c->kernels - 1, ORIG_CHANNEL, c->kernels - 1);
    if (c->bias)
        SET4(DPU, BS_CFG, BS_ALU_ALGO, 2, BS_ALU_SRC, 1, BS_MUL_BYPASS, 1, BS_RELU_BYPASS, 1);
    else
        SET1(DPU, BS_CFG, BS_BYPASS, 1);
    SET4(DPU, BS_OW_CFG, SIZE_E_0, 1, SIZE_E_1, 1, SIZE_E_2, 1, OD_BYPASS, 1);
    SET1(DPU, WDMA_SIZE_0, CHANNEL_WDMA, c->kernels - 1);
    SET2(DPU, WDMA_SIZE_1, HEIGHT_WDMA, c->height - 1, WIDTH_WDMA, c->width - 1);
    SET1(DPU, BN_CFG, BN_BYPASS, 1);
    SET4(DPU, EW_CFG, EW_BYPASS, 1, EW_LUT_BYPASS, 1, EW_OP_CVT_BYPASS, 1, EW_OP_BYPASS, 1);
    SET0(DPU, OUT_CVT_OFFSET);
    SET1(DPU, OUT_CVT_SCALE, OUT_CVT_SCALE, 1);
    SET1(DPU, OUT_CVT_SHIFT, OUT_CVT_SHIFT, c->shift);
    SET1(DPU, SURFACE_ADD, SURF_ADD, 2 * area);
    if (!c->bias)
        return;
    SET3(DPU_RDMA, S_POINTER, POINTER_PP_MODE, 1, EXECUTER_PP_EN, 1, POINTER_PP_EN, 1);
    SET1(DPU_RDMA, DATA_CUBE_WIDTH, WIDTH, c->width - 1);
    SET1(DPU_RDMA, DATA_CUBE_HEIGHT, HEIGHT, c->height - 1);
    SET1(DPU_RDMA, DATA_CUBE_CHANNEL, CHANNEL, c->kernels - 1);
    SET1(DPU_RDMA, BRDMA_CFG, BRDMA_DATA_USE, 1);
    SET(DPU_RDMA, BS_BASE_ADDR, table);
    SET0(DPU_RDMA, NRDMA_CFG);
    SET1(DPU_RDMA, ERDMA_CFG, ERDMA_DISABLE, 1);
    SET2(DPU_RDMA, FEATURE_MODE_CFG, BURST_LEN, 15, MRDMA_DISABLE, 1);
}

/* Writes the whole list of a convolution to `place` (a multiple of 16).  Addresses are the device's; `next` and
 * `next_words` are the following task of a chain, or 0; `blocks` are the blocks that the last word starts.
 * Returns the number of words including TAIL, which is always even. */
static inline int conv_list(uint64_t *place, const struct conv *c, uint32_t in, uint32_t weights,
                            uint32_t table, uint32_t out, uint32_t next, int next_words, uint32_t blocks)
{
    struct list own = {place, 0}, *list = &own;
    conv_feature(list, c, in, weights);
    conv_result(list, c, table, out);
    if (list->count % 2)
        add_word(list, 0);
    if (next) {
        SET(PC, BASE_ADDRESS, next);
        SET(PC, REGISTER_AMOUNTS, RK_PC_REGISTER_AMOUNTS__PC_DATA_AMOUNT(amount_code(next_words)));
    } else {
        add_word(list, 0);
        SET0(PC, REGISTER_AMOUNTS);
    }
    add_word(list, rk_word(RK_TARGET_CONFIG_END, 0, 0));
    add_word(list, rk_word(RK_TARGET_OP_ENABLE, RK_PC_OPERATION_ENABLE, blocks));
    return list->count;
}

/* A small random number generator with the same results on every machine. */
static inline void fill_random(void *place, int bytes, uint32_t seed)
{
    uint8_t *to = place;
    for (int n = 0; n < bytes; n++) {
        seed = seed * 1664525u + 1013904223u;
        to[n] = (uint8_t)(seed >> 24);
    }
}

#endif
