/* Find edges in a picture with a quantised graph of Hexagon NN:
 *
 *     rkcosim hexagon --prefix build/hexagon
 *     cc -I build/hexagon/include -o build/edges examples/hexagon/edges.c -L build/hexagon/lib -lhexagon_nn
 *     rkcosim hexagon -- build/edges
 *
 * With -DHEXAGON_NN_V1 and -lhexagon_nn_v1 it uses the oldest interface.  The graph is a convolution with two
 * kernels (vertical and horizontal edges), a bias, a requantisation and a ReLU, which become one layer of the
 * NPU, and a maximum over 2x2 pixels, which becomes another one. */
#ifdef HEXAGON_NN_V1
#include "hexagon_nn_v1.h"
#else
#include "hexagon_nn.h"
#endif
#include "hexagon_nn_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 16
#define HALF (SIZE / 2)
#define KERNELS 2
#define COUNT(list) (sizeof(list) / sizeof(*(list)))

enum { INPUT = 0x1000, CONV, BIAS, REQUANT, RELU, POOL, OUTPUT };
enum { WEIGHTS = 0x2000, STRIDE, WINDOW, BIASES, ZERO, ONE, W_MIN, W_MAX, B_MIN, B_MAX, OUT_MIN, OUT_MAX };

static hexagon_nn_nn_id graph;

static void fail(const char *what)
{
    static unsigned char text[1 << 16];
    hexagon_nn_getlog(graph, text, sizeof(text));
    fprintf(stderr, "%s failed\n%s", what, text);
    exit(1);
}

/* Declare an output with the bytes of an element and its sizes. */
static hexagon_nn_output output(unsigned bytes, unsigned height, unsigned width, unsigned depth)
{
#ifdef HEXAGON_NN_V1
    return (hexagon_nn_output){.max_size = bytes * height * width * depth};
#else
    return (hexagon_nn_output){.rank = 4, .max_sizes = {1, height, width, depth}, .elementsize = bytes};
#endif
}

static void constant(unsigned node, unsigned height, unsigned width, const void *data, unsigned size)
{
    unsigned depth = size ? size / 4 : 1;
    if (hexagon_nn_append_const_node(graph, node, 1, height, width, depth, data, size))
        fail("a constant");
}

static void number(unsigned node, float value)
{
    constant(node, 1, 1, &value, sizeof(value));
}

/* Append a node with the inputs (node, output), and one output or three: data of `bytes`, minimum, maximum. */
static void node(unsigned id, unsigned operation, int padding, const hexagon_nn_input *inputs, unsigned count,
                 unsigned outputs, hexagon_nn_output data)
{
    hexagon_nn_output list[] = {data, output(4, 1, 1, 1), output(4, 1, 1, 1)};
    if (hexagon_nn_append_node(graph, id, operation, padding, inputs, count, list, outputs))
        fail("a node");
}

static void build(void)
{
    static const int kernels[3][3][KERNELS] = {
        {{-1, -1}, {0, -2}, {1, -1}}, {{-2, 0}, {0, 0}, {2, 0}}, {{-1, 1}, {0, 2}, {1, 1}}};
    uint8_t weights[3][3][1][KERNELS];
    int32_t biases[KERNELS] = {0, 0};
    for (unsigned n = 0; n < sizeof(weights); n++)
        ((uint8_t *)weights)[n] = (uint8_t)(((const int *)kernels)[n] + 128); /* the zero point is 128 */

    node(INPUT, OP_INPUT, NN_PAD_NA, NULL, 0, 1, output(1, SIZE, SIZE, 1));
    if (hexagon_nn_append_const_node(graph, WEIGHTS, 3, 3, 1, KERNELS, (uint8_t *)weights, sizeof(weights)))
        fail("the weights");
    constant(STRIDE, 1, 1, NULL, 0);
    constant(WINDOW, 2, 2, NULL, 0);
    constant(BIASES, 1, 1, biases, sizeof(biases));
    number(ZERO, 0.0f);
    number(ONE, 255.0f);
    number(W_MIN, -128.0f); /* steps of 1 */
    number(W_MAX, 127.0f);
    number(B_MIN, -2147483648.0f);
    number(B_MAX, 2147483648.0f);
    number(OUT_MIN, -512.0f);
    number(OUT_MAX, 508.0f); /* steps of 4 */

    hexagon_nn_input conv[] = {{INPUT, 0}, {WEIGHTS, 0}, {ZERO, 0}, {ONE, 0}, {W_MIN, 0}, {W_MAX, 0}, {STRIDE, 0}};
    hexagon_nn_input bias[] = {{CONV, 0}, {BIASES, 0}, {CONV, 1}, {CONV, 2}, {B_MIN, 0}, {B_MAX, 0}};
    hexagon_nn_input requant[] = {{BIAS, 0}, {BIAS, 1}, {BIAS, 2}, {OUT_MIN, 0}, {OUT_MAX, 0}};
    hexagon_nn_input relu[] = {{REQUANT, 0}, {REQUANT, 1}, {REQUANT, 2}};
    hexagon_nn_input pool[] = {{RELU, 0}, {RELU, 1}, {RELU, 2}, {WINDOW, 0}, {WINDOW, 0}};
    hexagon_nn_input last[] = {{POOL, 0}};
    hexagon_nn_output sums = output(4, SIZE, SIZE, KERNELS), codes = output(1, SIZE, SIZE, KERNELS);
    node(CONV, OP_QuantizedConv2d_8x8to32, NN_PAD_SAME, conv, COUNT(conv), 3, sums);
    node(BIAS, OP_QuantizedBiasAdd_32p32to32, NN_PAD_NA, bias, COUNT(bias), 3, sums);
    node(REQUANT, OP_Requantize_32to8, NN_PAD_NA, requant, COUNT(requant), 3, codes);
    node(RELU, OP_QuantizedRelu_8, NN_PAD_NA, relu, COUNT(relu), 3, codes);
    node(POOL, OP_QuantizedMaxPool_8, NN_PAD_VALID, pool, COUNT(pool), 3, output(1, HALF, HALF, KERNELS));
    node(OUTPUT, OP_OUTPUT, NN_PAD_NA, last, COUNT(last), 0, codes);
}

static void show(const uint8_t *found)
{
    for (unsigned y = 0; y < HALF; y++) {
        for (unsigned kernel = 0; kernel < KERNELS; kernel++) {
            for (unsigned x = 0; x < HALF; x++)
                printf("%4u", found[(y * HALF + x) * KERNELS + kernel]);
            printf(kernel + 1 < KERNELS ? "   |" : "\n");
        }
    }
}

static void show_counters(void)
{
    hexagon_nn_perfinfo rows[16];
    unsigned count = 0, low = 0, high = 0;
    if (hexagon_nn_get_perfinfo(graph, rows, COUNT(rows), &count))
        fail("get_perfinfo");
    for (unsigned n = 0; n < count; n++) {
        char name[64];
        uint32_t type = 0;
        hexagon_nn_get_nodetype(graph, (hexagon_nn_nn_id)rows[n].node_id, &type);
        hexagon_nn_op_id_to_name(type, name, sizeof(name));
        printf("0x%x %-28s %u executions, %u cycles\n", rows[n].node_id, name, rows[n].executions,
               rows[n].counter_lo);
    }
    hexagon_nn_last_execution_cycles(graph, &low, &high);
    printf("last execution: %llu cycles\n", (unsigned long long)high << 32 | low);
}

int main(void)
{
    uint8_t picture[SIZE][SIZE], found[HALF * HALF * KERNELS];
    uint32_t batches, height, width, depth, size;
    memset(picture, 20, sizeof(picture));
    for (unsigned y = 4; y < 12; y++) /* a bright square */
        memset(&picture[y][4], 200, 8);
    hexagon_nn_config();
#ifdef HEXAGON_NN_V1
    if (!(graph = hexagon_nn_init()))
        fail("init");
#else
    if (hexagon_nn_init(&graph))
        fail("init");
#endif
    build();
    if (hexagon_nn_prepare(graph))
        fail("prepare");
    if (hexagon_nn_execute(graph, 1, SIZE, SIZE, 1, (uint8_t *)picture, sizeof(picture), &batches, &height, &width,
                           &depth, found, sizeof(found), &size))
        fail("execute");
    printf("%u x %u x %u x %u, %u bytes\n", batches, height, width, depth, size);
    show(found);
    show_counters();
    return hexagon_nn_teardown(graph);
}
