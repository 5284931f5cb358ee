/* The rules of Hexagon NN's interface, on either library: order of calls, return codes, memory, counters, texts. */
#ifdef HEXAGON_NN_V1
#include "hexagon_nn_v1.h"
#else
#include "hexagon_nn.h"
#endif
#include "hexagon_nn_ops.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                            \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)

static hexagon_nn_nn_id start(void)
{
    hexagon_nn_nn_id id = 0;
#ifdef HEXAGON_NN_V1
    id = hexagon_nn_init();
#else
    CHECK(hexagon_nn_init(&id) == 0);
#endif
    CHECK(id > 0);
    return id;
}

static hexagon_nn_output room(unsigned bytes)
{
#ifdef HEXAGON_NN_V1
    return (hexagon_nn_output){.max_size = bytes};
#else
    return (hexagon_nn_output){.rank = 4, .max_sizes = {1, 1, 1, bytes / 4}, .elementsize = 4};
#endif
}

static int append(hexagon_nn_nn_id id, unsigned node, unsigned operation, unsigned source, unsigned bytes)
{
    hexagon_nn_input input = {source, 0};
    hexagon_nn_output output = room(bytes);
    return hexagon_nn_append_node(id, node, operation, NN_PAD_NA, &input, source != 0, &output, bytes != 0);
}

static void says(hexagon_nn_nn_id id, const char *wanted)
{
    static unsigned char text[1 << 16];
    hexagon_nn_getlog(id, text, sizeof(text));
    if (!strstr((char *)text, wanted)) {
        fprintf(stderr, "the log has no \"%s\":\n%s", wanted, text);
        exit(1);
    }
}

/* INPUT (1), Relu_f (2) with room for four numbers, OUTPUT (3) */
static hexagon_nn_nn_id simple(void)
{
    hexagon_nn_nn_id id = start();
    CHECK(append(id, 1, OP_INPUT, 0, 32) == 0);
    CHECK(append(id, 2, OP_Relu_f, 1, 16) == 0);
    CHECK(append(id, 3, OP_OUTPUT, 2, 0) == 0);
    return id;
}

static int run(hexagon_nn_nn_id id, const float *in, unsigned count, float *out, unsigned most, unsigned *size)
{
    uint32_t sizes[4];
    return hexagon_nn_execute(id, 1, 1, 1, count, (const uint8_t *)in, count * 4, sizes, sizes + 1, sizes + 2,
                              sizes + 3, (uint8_t *)out, most * 4, size);
}

static void order(void)
{
    const float in[] = {-1, 2, -3, 4, 5};
    float out[5] = {0};
    unsigned size, lo, hi;
    hexagon_nn_nn_id id = simple();
    CHECK(run(id, in, 4, out, 4, &size) == -1); /* not prepared */
    says(id, "the graph is not prepared");
    CHECK(hexagon_nn_get_num_nodes_in_graph(id, &size) == -1);
    CHECK(hexagon_nn_prepare(id) == 0);
    CHECK(hexagon_nn_prepare(id) == -1);
    says(id, "prepare: the graph is not under construction");
    CHECK(append(id, 4, OP_Relu_f, 1, 16) == -1);
    says(id, "append: the graph is not under construction");
    CHECK(hexagon_nn_append_const_node(id, 5, 1, 1, 1, 1, (const uint8_t *)in, 4) == -1);
    CHECK(hexagon_nn_append_empty_const_node(id, 5, 1, 1, 1, 1, 4) == -1);
    CHECK(run(id, in, 4, out, 4, &size) == 0 && size == 16);
    CHECK(out[0] == 0 && out[1] == 2 && out[2] == 0 && out[3] == 4);
    CHECK(run(id, in, 2, out, 4, &size) == 0 && size == 8); /* the shape is found at execution */
    CHECK(run(id, in, 5, out, 5, &size) == -1);
    says(id, "node 0x2 (Relu_f): output 0 is too small: 16 of 20 bytes");
    out[3] = 99;
    CHECK(run(id, in, 4, out, 3, &size) == 2 && out[3] == 99);
    CHECK(size == 16); /* what it would need */
    CHECK(hexagon_nn_get_num_nodes_in_graph(id, &size) == 0 && size == 3);
    CHECK(hexagon_nn_last_execution_cycles(id, &lo, &hi) == 0 && lo == 0 && hi == 0);
    CHECK(hexagon_nn_multi_execution_cycles(id, &lo, &hi) == 0);
    CHECK(hexagon_nn_teardown(id) == 0);
    CHECK(hexagon_nn_teardown(id) == -1);
    CHECK(hexagon_nn_prepare(id) == -1 && append(id, 1, OP_INPUT, 0, 16) == -1);
    CHECK(run(id, in, 4, out, 4, &size) == -1);
    CHECK(hexagon_nn_last_execution_cycles(id, &lo, &hi) == -1);
    CHECK(hexagon_nn_set_debug_level(id, 1) == -1);
}

static void numbers(void)
{
    hexagon_nn_nn_id id = start();
    CHECK(append(id, 0, OP_INPUT, 0, 16) == -1);
    CHECK(append(id, 0xF0000001, OP_INPUT, 0, 16) == -1);
    says(id, "is reserved");
    CHECK(append(id, 1, OP_Proposal_f, 1, 16) == -1);
    says(id, "node 0x1 (Proposal_f): the operation 251 is not implemented");
    CHECK(append(id, 1, 100000, 1, 16) == -1);
    CHECK(append(id, 1, OP_Relu_f, 0, 16) == -1);
    says(id, "0 inputs, but 1 is expected");
    hexagon_nn_output output = room(16);
    CHECK(hexagon_nn_append_node(id, 1, OP_INPUT, 77, NULL, 0, &output, 1) == -1);
    says(id, "there is no padding 77");
#ifdef HEXAGON_NN_V1
    CHECK(NN_PAD_SAME_CAFFE == 3 && hexagon_nn_append_node(id, 1, OP_INPUT, 4, NULL, 0, &output, 1) == -1);
    CHECK(hexagon_nn_append_node(id, 7, OP_INPUT, NN_PAD_SAME_CAFFE, NULL, 0, &output, 1) == 0);
    unsigned char text[4096];
    hexagon_nn_snpprint(id, text, sizeof(text));
    CHECK(strstr((char *)text, "padding SAME_CAFFE"));
#else
    CHECK(NN_PAD_SAME_CAFFE == 5);
    CHECK(hexagon_nn_append_node(id, 7, OP_INPUT, NN_PAD_MIRROR_REFLECT, NULL, 0, &output, 1) == 0);
#endif
    CHECK(append(id, 2, OP_Relu_f, 9, 16) == 0); /* references are checked by prepare */
    CHECK(hexagon_nn_prepare(id) == -1);
    says(id, "refers to node 0x9, which does not exist");
    CHECK(hexagon_nn_teardown(id) == 0);
}

static void constants(void)
{
    float data[] = {1, -2}, part = 7, out[2];
    unsigned size;
    hexagon_nn_nn_id id = start();
    CHECK(append(id, 1, OP_INPUT, 0, 16) == 0);
    CHECK(hexagon_nn_append_const_node(id, 2, 1, 1, 1, 2, (uint8_t *)data, sizeof(data)) == 0);
    data[0] = data[1] = 0; /* the library has a copy */
    CHECK(hexagon_nn_append_empty_const_node(id, 3, 1, 1, 1, 2, 8) == 0);
    CHECK(hexagon_nn_populate_const_node(id, 3, (uint8_t *)&part, 4, 4) == 0);
    CHECK(hexagon_nn_populate_const_node(id, 3, (uint8_t *)&part, 4, 8) == -1);
    hexagon_nn_input inputs[] = {{2, 0}, {3, 0}};
    hexagon_nn_output output = room(8);
    CHECK(hexagon_nn_append_node(id, 4, OP_Add_f, NN_PAD_NA, inputs, 2, &output, 1) == 0);
    CHECK(append(id, 5, OP_OUTPUT, 4, 0) == 0);
    CHECK(hexagon_nn_prepare(id) == 0);
    CHECK(run(id, data, 1, out, 2, &size) == 0 && size == 8 && out[0] == 1 && out[1] == 5);
    CHECK(hexagon_nn_teardown(id) == 0);
}

static void counters(void)
{
    const float in[] = {1};
    float out[1];
    unsigned size, count;
    hexagon_nn_perfinfo rows[8];
    uint32_t type = 0;
    hexagon_nn_nn_id id = simple();
    CHECK(hexagon_nn_prepare(id) == 0);
    CHECK(run(id, in, 1, out, 1, &size) == 0 && run(id, in, 1, out, 1, &size) == 0);
    CHECK(hexagon_nn_get_perfinfo(id, rows, 8, &count) == 0 && count == 3);
    CHECK(rows[1].node_id == 2 && rows[1].executions == 2 && rows[1].counter_lo == 0 && rows[1].counter_hi == 0);
#ifdef HEXAGON_NN_WIDE_PERFINFO
    CHECK(sizeof(*rows) == 24 && rows[1].node_type == OP_Relu_f);
#else
    CHECK(sizeof(*rows) == 16);
#endif
    CHECK(hexagon_nn_get_perfinfo(id, rows, 2, &count) == -1);
    CHECK(hexagon_nn_reset_perfinfo(id, 1) == 0 && hexagon_nn_reset_perfinfo(id, 2) == 0);
    CHECK(hexagon_nn_reset_perfinfo(id, 3) == -1);
    says(id, "there is no event 3");
    CHECK(hexagon_nn_get_perfinfo(id, rows, 8, &count) == 0 && rows[1].executions == 0);
    CHECK(hexagon_nn_get_nodetype(id, 2, &type) == 0 && type == OP_Relu_f);
    CHECK(hexagon_nn_get_nodetype(id, 9, &type) == -1);
    CHECK(hexagon_nn_teardown(id) == 0);
}

static void texts(void)
{
    unsigned char text[4096], small[8];
    unsigned id = 0;
    int version = 0;
    char name[64];
    hexagon_nn_nn_id graph = simple();
    CHECK(hexagon_nn_set_debug_level(graph, 3) == 0);
    hexagon_nn_snpprint(graph, text, sizeof(text));
    CHECK(strstr((char *)text, "node 0x2: operation 49 (Relu_f), padding NA, 1 inputs, 1 outputs"));
    hexagon_nn_snpprint(graph, small, sizeof(small));
    CHECK(strlen((char *)small) == 7);
    hexagon_nn_getlog(12345, text, sizeof(text));
    CHECK(!strcmp((char *)text, "id not found\n"));
    append(graph, 0, OP_INPUT, 0, 4);
    hexagon_nn_getlog(graph, text, sizeof(text));
    CHECK(strlen((char *)text) > 10);
    hexagon_nn_getlog(graph, text, sizeof(text));
    CHECK(!*text); /* it was emptied */
    CHECK(hexagon_nn_op_name_to_id("QuantizedConv2d_8x8to32", &id) == 0 && id == 15);
    CHECK(hexagon_nn_op_name_to_id("NoSuchOperation", &id) == -1);
    CHECK(hexagon_nn_op_id_to_name(49, name, sizeof(name)) == 0 && !strcmp(name, "Relu_f"));
    CHECK(hexagon_nn_op_id_to_name(49, name, 6) == -1 && hexagon_nn_op_id_to_name(434, name, 64) == -1);
    CHECK(hexagon_nn_version(&version) == 0 && version == 0x00021401);
    CHECK(hexagon_nn_set_powersave_level(0) == 0 && hexagon_nn_disable_dcvs() == 0);
    CHECK(hexagon_nn_teardown(graph) == 0);
}

static void *thread(void *given)
{
    const float *in = given;
    float out[1];
    unsigned size;
    hexagon_nn_nn_id id = simple();
    CHECK(hexagon_nn_prepare(id) == 0);
    for (int n = 0; n < 20; n++)
        CHECK(run(id, in, 1, out, 1, &size) == 0 && out[0] == in[0]);
    CHECK(hexagon_nn_teardown(id) == 0);
    return NULL;
}

static void several(void)
{
    static const float values[] = {1, 2, 3, 4};
    pthread_t threads[4];
    for (int n = 0; n < 4; n++)
        CHECK(!pthread_create(threads + n, NULL, thread, (void *)(values + n)));
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
}

/* A null pointer where bytes, a list or a result is needed: -1, before anything is done. */
static void nulls(void)
{
    float x[4] = {1}, y[4];
    uint32_t s[4], got;
    const uint8_t *in = (const uint8_t *)x;
    uint8_t *out = (uint8_t *)y;
    hexagon_nn_perfinfo counter[8];
    hexagon_nn_input input = {1, 0};
    hexagon_nn_output output = room(16);
    hexagon_nn_tensordef to = {.data = out, .dataLen = 16};
    hexagon_nn_nn_id id = simple();
    CHECK(hexagon_nn_append_node(id, 9, OP_Relu_f, NN_PAD_NA, NULL, 1, &output, 1) == -1);
    CHECK(hexagon_nn_append_node(id, 9, OP_Relu_f, NN_PAD_NA, &input, 1, NULL, 1) == -1);
    CHECK(hexagon_nn_append_empty_const_node(id, 9, 1, 1, 1, 4, 16) == 0);
    CHECK(hexagon_nn_populate_const_node(id, 9, NULL, 16, 0) == -1);
    CHECK(hexagon_nn_get_num_nodes_in_graph(id, NULL) == -1 && hexagon_nn_get_nodetype(id, 2, NULL) == -1);
    CHECK(hexagon_nn_op_name_to_id(NULL, &got) == -1 && hexagon_nn_op_name_to_id("Relu_f", NULL) == -1);
    CHECK(hexagon_nn_op_id_to_name(1, NULL, 64) == -1);
    CHECK(hexagon_nn_version(NULL) == -1 && hexagon_nn_GetHexagonBinaryVersion(NULL) == -1);
    CHECK(hexagon_nn_PrintLog(NULL, 10) == -1);
    hexagon_nn_getlog(id, NULL, 10);
    hexagon_nn_snpprint(id, NULL, 10);
    CHECK(hexagon_nn_prepare(id) == 0);
    CHECK(hexagon_nn_execute(id, 1, 1, 1, 4, in, 16, s, s, s, s, out, 16, NULL) == -1);
    CHECK(hexagon_nn_execute(id, 1, 1, 1, 4, in, 16, NULL, s, s, s, out, 16, &got) == -1);
    CHECK(hexagon_nn_execute(id, 1, 1, 1, 4, in, 16, s, s, s, NULL, out, 16, &got) == -1);
    CHECK(hexagon_nn_execute(id, 1, 1, 1, 4, NULL, 16, s, s, s, s, out, 16, &got) == -1);
    CHECK(hexagon_nn_execute(id, 1, 1, 1, 4, in, 16, s, s, s, s, NULL, 16, &got) == -1);
    CHECK(hexagon_nn_execute(id, 1, 1, 1, 4, in, 16, s, s, s, s, NULL, 0, &got) == 2 && got == 16);
    CHECK(hexagon_nn_execute_new(id, NULL, 1, &to, 1) == -1);
    CHECK(hexagon_nn_execute_new(id, &to, 1, NULL, 1) == -1);
    CHECK(hexagon_nn_get_perfinfo(id, NULL, 8, s) == -1 && hexagon_nn_get_perfinfo(id, counter, 8, NULL) == -1);
    CHECK(hexagon_nn_last_execution_cycles(id, NULL, s) == -1);
    CHECK(hexagon_nn_multi_execution_cycles(id, s, NULL) == -1);
#ifndef HEXAGON_NN_V1
    hexagon_nn_udo_err error;
    CHECK(hexagon_nn_execute_with_info(id, &to, 1, &to, 1, NULL) == -1);
    CHECK(hexagon_nn_append_node_list(id, NULL, 2) == -1 && hexagon_nn_append_const_node_list(id, NULL, 2) == -1);
    CHECK(hexagon_nn_variable_read(id, 2, 0, NULL, s, s, s, out, 16, &got) == -1);
    CHECK(hexagon_nn_variable_read(id, 2, 0, s, s, s, s, NULL, 16, &got) == -1);
    CHECK(hexagon_nn_variable_write(id, 2, 0, 1, 1, 1, 4, NULL, 16) == -1);
    CHECK(hexagon_nn_variable_write_flat(id, 2, 0, NULL, 16) == -1);
    CHECK(hexagon_nn_append_udo_node(id, 5, NULL, NULL, NULL, 0, NULL, 0, NULL, 0, NULL) == -1);
    CHECK(hexagon_nn_udo_register_lib(NULL, NULL) == -1 && hexagon_nn_free_udo_libs(NULL) == -1);
    CHECK(hexagon_nn_free_udo_individual_lib(NULL, &error) == 0);
    CHECK(hexagon_nn_get_dsp_offset(NULL, s) == -1 && hexagon_nn_set_graph_option(id, NULL, 0) == -1);
    CHECK(hexagon_nn_graph_config(id, NULL, 3, NULL, 0) == -1);
    CHECK(hexagon_nn_config_with_options(NULL, 0, NULL, 2) == -1);
#endif
    CHECK(hexagon_nn_execute(id, 1, 1, 1, 4, in, 16, s, s, s, s, out, 16, &got) == 0 && got == 16 && y[0] == 1);
    CHECK(hexagon_nn_teardown(id) == 0);
}

#ifndef HEXAGON_NN_V1
static void newer(void)
{
    float data[] = {-1, 2}, out[2], held[2];
    uint32_t found[2], sizes[4], size;
    hexagon_nn_nn_id id = simple();
    hexagon_nn_tensordef in = {1, 1, 1, 2, (unsigned char *)data, 8, 8, 0};
    hexagon_nn_tensordef to = {.data = (unsigned char *)out, .dataLen = 8};
    hexagon_nn_execute_info info = {.extraInfo = (unsigned char *)found, .extraInfoLen = sizeof(found)};
    CHECK(hexagon_nn_execute_with_info(id, &in, 1, &to, 1, &info) == 0);
    CHECK(info.result == NN_EXECUTE_GRAPH_NOT_PREPARED && info.extraInfoValidLen == 0);
    CHECK(hexagon_nn_prepare(id) == 0);
    CHECK(hexagon_nn_execute_new(id, &in, 1, &to, 1) == 0);
    CHECK(to.depth == 2 && to.data_valid_len == 8 && out[0] == 0 && out[1] == 2);
    to.dataLen = 4;
    CHECK(hexagon_nn_execute_with_info(id, &in, 1, &to, 1, &info) == 0);
    CHECK(info.result == NN_EXECUTE_BUFFER_SIZE_ERROR && info.extraInfoValidLen == 8);
    CHECK(found[0] == 3 && found[1] == OP_OUTPUT);
    CHECK(hexagon_nn_execute_with_info(77, &in, 1, &to, 1, &info) == 0);
    CHECK(info.result == NN_EXECUTE_GRAPH_NOT_FOUND);
    CHECK(hexagon_nn_teardown(id) == 0);

    id = start();
    hexagon_nn_output output = room(8);
    hexagon_nn_input inputs[] = {{2, 0}, {1, 0}};
    hexagon_nn_op_node nodes[] = {
        {1, OP_INPUT, NN_PAD_NA, NULL, 0, &output, 1},
        {2, OP_Variable, NN_PAD_NA, NULL, 0, &output, 1},
        {3, OP_Add_f, NN_PAD_NA, inputs, 2, &output, 1},
        {4, OP_OUTPUT, NN_PAD_NA, &(hexagon_nn_input){3, 0}, 1, NULL, 0},
    };
    CHECK(hexagon_nn_append_node_list(id, nodes, 4) == 0 && hexagon_nn_prepare(id) == 0);
    to.dataLen = 8;
    CHECK(hexagon_nn_execute_new(id, &in, 1, &to, 1) == -1);
    says(id, "variable 0 has no value");
    held[0] = 10, held[1] = 20;
    CHECK(hexagon_nn_variable_write(id, 2, 0, 1, 1, 1, 2, (uint8_t *)held, 8) == 0);
    CHECK(hexagon_nn_execute_new(id, &in, 1, &to, 1) == 0 && out[0] == 9 && out[1] == 22);
    held[0] = 0;
    CHECK(hexagon_nn_variable_write_flat(id, 2, 0, (uint8_t *)held, 8) == 0);
    CHECK(hexagon_nn_variable_read(id, 2, 0, sizes, sizes + 1, sizes + 2, sizes + 3, (uint8_t *)out, 8, &size) == 0);
    CHECK(size == 8 && sizes[3] == 2 && out[0] == 0 && out[1] == 20);
    CHECK(hexagon_nn_variable_write_flat(id, 2, 0, (uint8_t *)data, 12) == -1);
    CHECK(hexagon_nn_variable_write_flat(id, 3, 0, (uint8_t *)data, 8) == -1);
    CHECK(hexagon_nn_teardown(id) == 0);

    hexagon_nn_udo_err error = 0;
    CHECK(hexagon_nn_udo_register_lib("libudo.so", &error) == 0 && error == UDO_LIB_FAILED_TO_OPEN);
    CHECK(hexagon_nn_init(NULL) != 0);
    CHECK(hexagon_nn_is_device_supported() && hexagon_nn_hexagon_interface_version() == 0x00021401);
    void *memory = rpcmem_alloc(25, 1, 100);
    CHECK(memory);
    rpcmem_free(memory);
}
#endif

int main(void)
{
    CHECK(hexagon_nn_config() == 0);
    order();
    numbers();
    constants();
    counters();
    texts();
    several();
    nulls();
#ifndef HEXAGON_NN_V1
    newer();
#endif
    puts("all rules hold");
    return 0;
}
