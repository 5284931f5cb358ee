/* Construction of graphs: nodes, constants, and what is asked about them. */
#include "hexagon_abi.h"
#include "hexagon_calls.h"

#define FORM_SIZES 10 /* numbers of an output: rank, eight sizes, bytes of an element */
#define FORM_BYTES 1

int hexagon_nn_set_debug_level(hexagon_nn_nn_id id, int level)
{
    return hx_send_numbers(HX_DEBUG, (uint32_t)id, &(int64_t){level}, 1);
}

struct node {
    uint32_t number, operation;
    int32_t padding;
    const hexagon_nn_input *inputs;
    uint32_t input_count;
    const hexagon_nn_output *outputs;
    uint32_t output_count;
};

static void write_outputs(struct out *out, const struct node *node)
{
#ifdef HEXAGON_NN_V1
    put_number(out, (int64_t)node->output_count * FORM_BYTES * 8);
    for (uint32_t n = 0; n < node->output_count; n++)
        put_number(out, node->outputs[n].max_size);
#else
    put_number(out, (int64_t)node->output_count * FORM_SIZES * 8);
    for (uint32_t n = 0; n < node->output_count; n++) {
        const hexagon_nn_output *one = node->outputs + n;
        put_number(out, one->rank);
        for (unsigned axis = 0; axis < 8; axis++)
            put_number(out, one->max_sizes[axis]);
        put_number(out, one->elementsize);
    }
#endif
}

static void write_node(struct out *out, const void *what)
{
    const struct node *node = what;
    put_number(out, node->number);
    put_number(out, node->operation);
    put_number(out, node->padding);
#ifdef HEXAGON_NN_V1
    put_number(out, FORM_BYTES);
#else
    put_number(out, FORM_SIZES);
#endif
    put_bytes(out, node->inputs, (uint64_t)node->input_count * sizeof(*node->inputs));
    write_outputs(out, node);
}

int hexagon_nn_append_node(hexagon_nn_nn_id id, uint32_t node_id, uint32_t operation,
                           hexagon_nn_padding_type padding, const hexagon_nn_input *inputs, uint32_t num_inputs,
                           const hexagon_nn_output *outputs, uint32_t num_outputs)
{
    struct node node = {node_id, operation, padding, inputs, num_inputs, outputs, num_outputs};
    if ((num_inputs && !inputs) || (num_outputs && !outputs))
        return -1;
    return hx_send(&(struct hx_request){.call = HX_NODE, .graph = (uint32_t)id, .write = write_node, .what = &node});
}

struct constant {
    uint32_t number;
    uint32_t sizes[4];
    const uint8_t *data;
    uint32_t size;
};

static void write_constant(struct out *out, const void *what)
{
    const struct constant *constant = what;
    put_number(out, constant->number);
    for (unsigned axis = 0; axis < 4; axis++)
        put_number(out, constant->sizes[axis]);
    put_bytes(out, constant->data, constant->size);
}

int hexagon_nn_append_const_node(hexagon_nn_nn_id id, uint32_t node_id, uint32_t batches, uint32_t height,
                                 uint32_t width, uint32_t depth, const uint8_t *data, uint32_t data_len)
{
    struct constant constant = {node_id, {batches, height, width, depth}, data, data ? data_len : 0};
    return hx_send(&(struct hx_request){
        .call = HX_CONSTANT, .graph = (uint32_t)id, .write = write_constant, .what = &constant});
}

int hexagon_nn_append_empty_const_node(hexagon_nn_nn_id id, uint32_t node_id, uint32_t batches, uint32_t height,
                                       uint32_t width, uint32_t depth, uint32_t data_len)
{
    int64_t numbers[] = {node_id, batches, height, width, depth, data_len};
    return hx_send_numbers(HX_EMPTY, (uint32_t)id, numbers, 6);
}

struct part {
    uint32_t number, offset;
    const uint8_t *data;
    uint32_t size;
};

static void write_part(struct out *out, const void *what)
{
    const struct part *part = what;
    put_number(out, part->number);
    put_number(out, part->offset);
    put_bytes(out, part->data, part->size);
}

int hexagon_nn_populate_const_node(hexagon_nn_nn_id id, uint32_t node_id, const uint8_t *data, uint32_t data_len,
                                   uint32_t target_offset)
{
    struct part part = {node_id, target_offset, data, data_len};
    if (data_len && !data)
        return -1;
    return hx_send(
        &(struct hx_request){.call = HX_POPULATE, .graph = (uint32_t)id, .write = write_part, .what = &part});
}

int hexagon_nn_prepare(hexagon_nn_nn_id id)
{
    return hx_send_numbers(HX_PREPARE, (uint32_t)id, NULL, 0);
}

int hexagon_nn_teardown(hexagon_nn_nn_id id)
{
    return hx_send_numbers(HX_TEARDOWN, (uint32_t)id, NULL, 0);
}

/* -- texts ---------------------------------------------------------------------------------------- */

struct text {
    char *to;
    uint64_t room;
    int whole; /* fail if it is cut */
};

static int read_text(const uint8_t *content, uint64_t size, void *result)
{
    struct text *text = result;
    if (!text->to || !text->room)
        return -1;
    uint64_t kept = size < text->room ? size : text->room - 1;
    memcpy(text->to, content, kept);
    text->to[kept] = 0;
    return text->whole && kept < size ? -1 : 0;
}

/* Copy a text of a graph; the text of an unknown graph says so. */
static int take_text(enum hx_call call, hexagon_nn_nn_id id, unsigned char *buf, uint32_t length)
{
    struct text text = {(char *)buf, length, 0};
    int result = hx_send(&(struct hx_request){
        .call = call, .graph = (uint32_t)id, .room = 2u << 20, .read = read_text, .result = &text});
    static const char unknown[] = "id not found\n";
    if (result)
        read_text((const uint8_t *)unknown, sizeof(unknown) - 1, &text);
    return result;
}

#ifdef HEXAGON_NN_V1
void hexagon_nn_getlog(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length)
{
    take_text(HX_LOG, id, buf, length);
}

void hexagon_nn_snpprint(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length)
{
    take_text(HX_PRINT, id, buf, length);
}
#else
int hexagon_nn_getlog(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length)
{
    return take_text(HX_LOG, id, buf, length);
}

int hexagon_nn_snpprint(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length)
{
    return take_text(HX_PRINT, id, buf, length);
}
#endif

/* -- numbers and names ---------------------------------------------------------------------------- */

static void write_name(struct out *out, const void *what)
{
    put_text(out, what);
}

int hexagon_nn_op_name_to_id(const char *name, unsigned int *id)
{
    int64_t number = -1;
    if (!name || !id)
        return -1;
    struct hx_numbers wanted = {&number, 1};
    int result = hx_send(&(struct hx_request){
        .call = HX_NUMBER, .write = write_name, .what = name, .read = hx_read_numbers, .result = &wanted});
    *id = (unsigned int)number;
    return result;
}

static void write_number(struct out *out, const void *what)
{
    put_number(out, *(const uint32_t *)what);
}

int hexagon_nn_op_id_to_name(const unsigned int id, char *name, int name_len)
{
    struct text text = {name, name_len > 0 ? (uint64_t)name_len : 0, 1};
    return hx_send(&(struct hx_request){
        .call = HX_NAME, .write = write_number, .what = &id, .read = read_text, .result = &text});
}

int hexagon_nn_get_nodetype(hexagon_nn_nn_id graph_id, hexagon_nn_nn_id node_id, uint32_t *node_type)
{
    int64_t number = 0;
    if (!node_type)
        return -1;
    struct hx_numbers wanted = {&number, 1};
    int result = hx_send(&(struct hx_request){.call = HX_NODE_TYPE,
                                              .graph = (uint32_t)graph_id,
                                              .write = write_number,
                                              .what = &node_id,
                                              .read = hx_read_numbers,
                                              .result = &wanted});
    if (!result)
        *node_type = (uint32_t)number;
    return result;
}

int hexagon_nn_get_num_nodes_in_graph(hexagon_nn_nn_id id, unsigned int *num_nodes)
{
    int64_t number = 0;
    if (!num_nodes)
        return -1;
    struct hx_numbers wanted = {&number, 1};
    int result = hx_send(
        &(struct hx_request){.call = HX_COUNT, .graph = (uint32_t)id, .read = hx_read_numbers, .result = &wanted});
    *num_nodes = (unsigned int)number;
    return result;
}
