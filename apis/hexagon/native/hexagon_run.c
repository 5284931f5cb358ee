/* Execution of graphs, and what it took. */
#include "hexagon_abi.h"
#include "hexagon_calls.h"

#include <stdlib.h>

struct run {
    const hexagon_nn_tensordef *inputs;
    uint32_t input_count;
    hexagon_nn_tensordef *outputs;
    uint32_t output_count;
    int64_t result, node, operation;
};

static void write_run(struct out *out, const void *what)
{
    const struct run *run = what;
    put_number(out, run->input_count);
    for (uint32_t n = 0; n < run->input_count; n++) {
        const hexagon_nn_tensordef *one = run->inputs + n;
        const unsigned sizes[] = {one->batches, one->height, one->width, one->depth};
        for (unsigned axis = 0; axis < 4; axis++)
            put_number(out, sizes[axis]);
        uint64_t bytes = one->data_valid_len ? one->data_valid_len : one->dataLen > 0 ? (uint64_t)one->dataLen : 0;
        put_bytes(out, one->data, one->data ? bytes : 0);
    }
    put_number(out, run->output_count);
    for (uint32_t n = 0; n < run->output_count; n++)
        put_number(out, run->outputs[n].data && run->outputs[n].dataLen > 0 ? run->outputs[n].dataLen : 0);
}

static uint64_t room_of(const struct run *run)
{
    uint64_t room = 64 + (uint64_t)run->output_count * 40;
    for (uint32_t n = 0; n < run->output_count; n++)
        room += run->outputs[n].dataLen > 0 ? (uint64_t)run->outputs[n].dataLen : 0;
    return room;
}

static int read_run(const uint8_t *content, uint64_t size, void *result)
{
    struct run *run = result;
    int64_t head[4];
    if (size < sizeof(head))
        return -1;
    memcpy(head, content, sizeof(head));
    run->result = head[0];
    run->node = head[1];
    run->operation = head[2];
    uint64_t count = (uint64_t)head[3], at = sizeof(head) + count * 40;
    if (count > run->output_count || at > size)
        return -1;
    for (uint64_t n = 0; n < count; n++) {
        hexagon_nn_tensordef *one = run->outputs + n;
        int64_t sizes[5];
        memcpy(sizes, content + sizeof(head) + n * 40, sizeof(sizes));
        one->batches = (unsigned)sizes[0];
        one->height = (unsigned)sizes[1];
        one->width = (unsigned)sizes[2];
        one->depth = (unsigned)sizes[3];
        one->data_valid_len = (unsigned)sizes[4];
        if (!one->data || sizes[4] > one->dataLen)
            continue; /* it does not fit, and its bytes were not sent */
        if (at + (uint64_t)sizes[4] > size)
            return -1;
        memcpy(one->data, content + at, (size_t)sizes[4]);
        at += (uint64_t)sizes[4];
    }
    return 0;
}

static int execute(hexagon_nn_nn_id id, struct run *run)
{
    run->result = 1;
    return hx_send(&(struct hx_request){.call = HX_EXECUTE,
                                        .graph = (uint32_t)id,
                                        .write = write_run,
                                        .what = run,
                                        .room = room_of(run),
                                        .read = read_run,
                                        .result = run});
}

/* The value that the program gets: 2 if an output is too small for its memory, as nnlib has it. */
static int value_of(int result, const struct run *run)
{
    return result && run->result == 2 ? 2 : result;
}

int hexagon_nn_execute_new(hexagon_nn_nn_id id, const hexagon_nn_tensordef *inputs, uint32_t n_inputs,
                           hexagon_nn_tensordef *outputs, uint32_t n_outputs)
{
    struct run run = {.inputs = inputs, .input_count = n_inputs, .outputs = outputs, .output_count = n_outputs};
    if ((n_inputs && !inputs) || (n_outputs && !outputs))
        return -1;
    int result = execute(id, &run);
    return value_of(result, &run);
}

int hexagon_nn_execute(hexagon_nn_nn_id id, uint32_t batches_in, uint32_t height_in, uint32_t width_in,
                       uint32_t depth_in, const uint8_t *data_in, uint32_t data_len_in, uint32_t *batches_out,
                       uint32_t *height_out, uint32_t *width_out, uint32_t *depth_out, uint8_t *data_out,
                       uint32_t data_out_max, uint32_t *data_out_size)
{
    if (!batches_out || !height_out || !width_out || !depth_out || !data_out_size)
        return -1;
    if ((data_len_in && !data_in) || (data_out_max && !data_out))
        return -1;
    hexagon_nn_tensordef in = {batches_in, height_in,   width_in, depth_in, (unsigned char *)data_in,
                               (int)data_len_in, data_len_in, 0};
    hexagon_nn_tensordef out = {.data = data_out, .dataLen = (int)data_out_max};
    int result = hexagon_nn_execute_new(id, &in, 1, &out, 1);
    *batches_out = out.batches;
    *height_out = out.height;
    *width_out = out.width;
    *depth_out = out.depth;
    *data_out_size = out.data_valid_len;
    return result;
}

#ifndef HEXAGON_NN_V1
int hexagon_nn_execute_with_info(hexagon_nn_nn_id id, const hexagon_nn_tensordef *inputs, uint32_t n_inputs,
                                 hexagon_nn_tensordef *outputs, uint32_t n_outputs, hexagon_nn_execute_info *info)
{
    struct run run = {.inputs = inputs, .input_count = n_inputs, .outputs = outputs, .output_count = n_outputs};
    if (!info || (n_inputs && !inputs) || (n_outputs && !outputs))
        return -1;
    execute(id, &run);
    info->result = (hexagon_nn_execute_result)run.result;
    info->extraInfoValidLen = 0;
    const uint32_t found[] = {(uint32_t)run.node, (uint32_t)run.operation};
    if (info->extraInfo && info->extraInfoLen >= (int)sizeof(found) && (run.result == 1 || run.result == 2)) {
        memcpy(info->extraInfo, found, sizeof(found));
        info->extraInfoValidLen = (int)sizeof(found);
    }
    return 0;
}
#endif

/* -- counters ------------------------------------------------------------------------------------- */

struct counters {
    hexagon_nn_perfinfo *to;
    unsigned room, count;
};

static int read_counters(const uint8_t *content, uint64_t size, void *result)
{
    struct counters *counters = result;
    counters->count = (unsigned)(size / 32);
    if (counters->count > counters->room)
        return -1;
    for (unsigned n = 0; n < counters->count; n++) {
        int64_t row[4]; /* node, operation, executions, counter */
        memcpy(row, content + n * sizeof(row), sizeof(row));
        counters->to[n] = (hexagon_nn_perfinfo){
            .node_id = (uint32_t)row[0],
#ifdef HEXAGON_NN_WIDE_PERFINFO
            .node_type = (uint32_t)row[1],
#endif
            .executions = (uint32_t)row[2],
            .counter_lo = (uint32_t)row[3],
            .counter_hi = (uint32_t)((uint64_t)row[3] >> 32),
        };
    }
    return 0;
}

int hexagon_nn_get_perfinfo(hexagon_nn_nn_id id, hexagon_nn_perfinfo *info, unsigned int info_len,
                            unsigned int *n_items)
{
    struct counters counters = {info, info_len, 0};
    if (!n_items || (info_len && !info))
        return -1;
    int result = hx_send(&(struct hx_request){.call = HX_PERFINFO,
                                              .graph = (uint32_t)id,
                                              .room = 1u << 22,
                                              .read = read_counters,
                                              .result = &counters});
    *n_items = result ? ~0u : counters.count;
    return result;
}

int hexagon_nn_reset_perfinfo(hexagon_nn_nn_id id, uint32_t event)
{
    return hx_send_numbers(HX_RESET, (uint32_t)id, &(int64_t){event}, 1);
}

static int cycles(hexagon_nn_nn_id id, unsigned which, unsigned int *lo, unsigned int *hi)
{
    int64_t found[2];
    if (!lo || !hi)
        return -1;
    struct hx_numbers wanted = {found, 2};
    int result = hx_send(
        &(struct hx_request){.call = HX_CYCLES, .graph = (uint32_t)id, .read = hx_read_numbers, .result = &wanted});
    if (!result) {
        *lo = (unsigned int)found[which];
        *hi = (unsigned int)((uint64_t)found[which] >> 32);
    }
    return result;
}

int hexagon_nn_last_execution_cycles(hexagon_nn_nn_id id, unsigned int *cycles_lo, unsigned int *cycles_hi)
{
    return cycles(id, 0, cycles_lo, cycles_hi);
}

int hexagon_nn_multi_execution_cycles(hexagon_nn_nn_id id, unsigned int *cycles_lo, unsigned int *cycles_hi)
{
    return cycles(id, 1, cycles_lo, cycles_hi);
}
