/* Functions that need no graph, and those of the newer interface only. */
#include "hexagon_abi.h"
#include "hexagon_calls.h"

#include <stdio.h>
#include <stdlib.h>

#define VERSION 0x00021401

int hexagon_nn_config(void)
{
    return 0;
}

int hexagon_nn_version(int *version)
{
    if (!version)
        return -1;
    *version = VERSION;
    return 0;
}

int hexagon_nn_GetHexagonBinaryVersion(int *version)
{
    return hexagon_nn_version(version);
}

int hexagon_nn_set_powersave_level(unsigned int level)
{
    (void)level;
    return 0;
}

int hexagon_nn_disable_dcvs(void)
{
    return 0;
}

int hexagon_nn_PrintLog(const uint8_t *buf, unsigned int length)
{
    if (length && !buf)
        return -1;
    return fwrite(buf, 1, length, stderr) == length ? 0 : -1;
}

#ifdef HEXAGON_NN_V1
hexagon_nn_nn_id hexagon_nn_init(void)
{
    int id = hx_send_numbers(HX_INIT, 0, &(int64_t){0}, 1);
    return id > 0 ? id : 0;
}
#else

int hexagon_nn_init_with_info(hexagon_nn_nn_id *id, const hexagon_nn_initinfo *info)
{
    if (!id)
        return 10; /* as nnlib: a bad class */
    int made = hx_send_numbers(HX_INIT, 0, &(int64_t){info ? info->priority : 0}, 1);
    if (made <= 0)
        return -1;
    *id = made;
    return 0;
}

int hexagon_nn_init(hexagon_nn_nn_id *id)
{
    return hexagon_nn_init_with_info(id, NULL);
}

int hexagon_nn_config_with_options(const hexagon_nn_uint_option *numbers, uint32_t count,
                                   const hexagon_nn_string_option *texts, uint32_t text_count)
{
    return (count && !numbers) || (text_count && !texts) ? -1 : 0; /* threads and memory of the processor */
}

int hexagon_nn_graph_config(hexagon_nn_nn_id id, const hexagon_nn_uint_option *numbers, uint32_t count,
                            const hexagon_nn_string_option *texts, uint32_t text_count)
{
    (void)id;
    return hexagon_nn_config_with_options(numbers, count, texts, text_count);
}

int hexagon_nn_set_graph_option(hexagon_nn_nn_id id, const char *name, int value)
{
    (void)id, (void)name, (void)value; /* there are none here */
    return -1;
}

int hexagon_nn_append_node_list(hexagon_nn_nn_id id, const hexagon_nn_op_node *nodes, int count)
{
    if (count > 0 && !nodes)
        return -1;
    for (int n = 0; n < count; n++)
        if (hexagon_nn_append_node(id, nodes[n].node_id, nodes[n].operation, nodes[n].padding, nodes[n].inputs,
                                   (uint32_t)nodes[n].inputsLen, nodes[n].outputs, (uint32_t)nodes[n].outputsLen))
            return -1;
    return 0;
}

int hexagon_nn_append_const_node_list(hexagon_nn_nn_id id, hexagon_nn_const_node *nodes, int count)
{
    if (count > 0 && !nodes)
        return -1;
    for (int n = 0; n < count; n++) {
        const hexagon_nn_tensordef *one = &nodes[n].tensor;
        if (hexagon_nn_append_const_node(id, nodes[n].node_id, one->batches, one->height, one->width, one->depth,
                                         one->data, (uint32_t)one->dataLen))
            return -1;
    }
    return 0;
}

/* nnlib's function in the program sends the constant in parts, because of the way to its processor. */
__attribute__((weak)) int hexagon_nn_append_empty_const_node_large_array(
    int id, uint32_t node_id, uint32_t batches, uint32_t height, uint32_t width, uint32_t depth,
    const uint8_t *data, uint32_t data_len)
{
    return hexagon_nn_append_const_node(id, node_id, batches, height, width, depth, data, data_len);
}

/* -- operations of users: libraries for another processor ---------------------------------------- */

static int answer(hexagon_nn_udo_err *err, hexagon_nn_udo_err value)
{
    if (!err)
        return -1;
    *err = value;
    return 0;
}

int hexagon_nn_append_udo_node(hexagon_nn_nn_id id, uint32_t node_id, const char *package_name, char *type,
                               char *parameters, uint32_t parameters_size, const hexagon_nn_input *inputs,
                               uint32_t num_inputs, const hexagon_nn_output *outputs, uint32_t num_outputs,
                               hexagon_nn_udo_err *err)
{
    (void)id, (void)node_id, (void)package_name, (void)type, (void)parameters, (void)parameters_size;
    (void)inputs, (void)num_inputs, (void)outputs, (void)num_outputs;
    return answer(err, UDO_LIB_NOT_REGISTERED);
}

int hexagon_nn_udo_register_lib(const char *path, hexagon_nn_udo_err *err)
{
    (void)path;
    return answer(err, UDO_LIB_FAILED_TO_OPEN);
}

int hexagon_nn_free_udo_individual_lib(const char *package_name, hexagon_nn_udo_err *err)
{
    (void)package_name;
    return answer(err, UDO_LIB_NOT_REGISTERED);
}

int hexagon_nn_free_udo_libs(hexagon_nn_udo_err *err)
{
    return answer(err, UDO_SUCCESS);
}

/* -- power ---------------------------------------------------------------------------------------- */

int hexagon_nn_set_powersave_details(hexagon_nn_corner_type corner, hexagon_nn_dcvs_type dcvs,
                                     unsigned int latency)
{
    (void)corner, (void)dcvs, (void)latency;
    return 0;
}

int hexagon_nn_set_clocks(hexagon_nn_corner_type corner, hexagon_nn_dcvs_type dcvs, unsigned int latency)
{
    return hexagon_nn_set_powersave_details(corner, dcvs, latency);
}

int hexagon_nn_remove_clocks(void)
{
    return 0;
}

int hexagon_nn_get_power(int type)
{
    (void)type;
    return 0;
}

int hexagon_nn_get_dsp_offset(uint32_t *library, uint32_t *shell)
{
    if (!library || !shell)
        return -1;
    *library = *shell = 0;
    return 0;
}

/* -- variables ------------------------------------------------------------------------------------ */

struct variable {
    uint32_t node;
    int32_t index;
    uint32_t sizes[4];
    int whole;
    uint8_t *data;
    uint32_t size, room;
};

static void write_place(struct out *out, const void *what)
{
    const struct variable *variable = what;
    put_number(out, variable->node);
    put_number(out, variable->index);
}

static void write_variable(struct out *out, const void *what)
{
    const struct variable *variable = what;
    write_place(out, what);
    put_number(out, variable->whole);
    for (unsigned axis = 0; axis < 4; axis++)
        put_number(out, variable->sizes[axis]);
    put_bytes(out, variable->data, variable->size);
}

static int read_variable(const uint8_t *content, uint64_t size, void *result)
{
    struct variable *variable = result;
    int64_t sizes[5];
    if (size < sizeof(sizes))
        return -1;
    memcpy(sizes, content, sizeof(sizes));
    for (unsigned axis = 0; axis < 4; axis++)
        variable->sizes[axis] = (uint32_t)sizes[axis];
    variable->size = (uint32_t)sizes[4];
    if (variable->size > variable->room || sizeof(sizes) + variable->size > size)
        return -1;
    memcpy(variable->data, content + sizeof(sizes), variable->size);
    return 0;
}

int hexagon_nn_variable_read(hexagon_nn_nn_id id, uint32_t node_id, int32_t output_index, uint32_t *b_out,
                             uint32_t *h_out, uint32_t *w_out, uint32_t *d_out, uint8_t *data_out,
                             uint32_t data_out_max, uint32_t *data_out_len)
{
    struct variable variable = {.node = node_id, .index = output_index, .data = data_out, .room = data_out_max};
    if (!b_out || !h_out || !w_out || !d_out || !data_out_len || (data_out_max && !data_out))
        return -1;
    int result = hx_send(&(struct hx_request){.call = HX_READ,
                                              .graph = (uint32_t)id,
                                              .write = write_place,
                                              .what = &variable,
                                              .room = 64 + (uint64_t)data_out_max,
                                              .read = read_variable,
                                              .result = &variable});
    *b_out = variable.sizes[0];
    *h_out = variable.sizes[1];
    *w_out = variable.sizes[2];
    *d_out = variable.sizes[3];
    *data_out_len = variable.size;
    return result;
}

static int write_to(hexagon_nn_nn_id id, const struct variable *variable)
{
    if (variable->size && !variable->data)
        return -1;
    return hx_send(
        &(struct hx_request){.call = HX_WRITE, .graph = (uint32_t)id, .write = write_variable, .what = variable});
}

int hexagon_nn_variable_write(hexagon_nn_nn_id id, uint32_t node_id, int32_t output_index, uint32_t batches,
                              uint32_t height, uint32_t width, uint32_t depth, const uint8_t *data,
                              uint32_t data_len)
{
    struct variable variable = {
        .node = node_id, .index = output_index, .sizes = {batches, height, width, depth}, .whole = 1,
        .data = (uint8_t *)data, .size = data_len};
    return write_to(id, &variable);
}

int hexagon_nn_variable_write_flat(hexagon_nn_nn_id id, uint32_t node_id, int32_t output_index,
                                   const uint8_t *data, uint32_t data_len)
{
    struct variable variable = {
        .node = node_id, .index = output_index, .data = (uint8_t *)data, .size = data_len};
    return write_to(id, &variable);
}

int hexagon_nn_populate_graph(hexagon_nn_nn_id id, const unsigned char *data, int data_len)
{
    (void)id, (void)data, (void)data_len;
    return -1;
}

/* -- libhexagon_interface.so, and memory ---------------------------------------------------------- */

void hexagon_nn_global_init(void)
{
}

void hexagon_nn_global_teardown(void)
{
}

bool hexagon_nn_is_device_supported(void)
{
    return true;
}

int hexagon_nn_hexagon_interface_version(void)
{
    return VERSION;
}

void rpcmem_init(void)
{
}

void rpcmem_deinit(void)
{
}

void *rpcmem_alloc(int heap, uint32_t flags, int size)
{
    (void)heap, (void)flags;
    return size > 0 ? malloc((size_t)size) : NULL;
}

void rpcmem_free(void *memory)
{
    free(memory);
}

int rpcmem_to_fd(void *memory)
{
    (void)memory;
    return -1; /* there is no descriptor */
}
#endif
