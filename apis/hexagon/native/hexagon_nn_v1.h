/* The oldest interface of Hexagon NN as libhexagon_nn_v1.so of rkcosim has it; docs/hexagon.md.  The functions have the
 * names of the newer interface, so a program uses either library. */
#ifndef HEXAGON_NN_V1_H
#define HEXAGON_NN_V1_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t hexagon_nn_nn_id;
typedef int32_t hexagon_nn_padding_type;

enum { NN_PAD_NA, NN_PAD_SAME, NN_PAD_VALID, NN_PAD_SAME_CAFFE };

/* An input: the node that makes it, and which of its outputs it is. */
typedef struct input {
    uint32_t src_id;
    uint32_t output_idx;
} hexagon_nn_input;

/* An output: the most bytes that it has. */
typedef struct output {
    uint32_t max_size;
    uint32_t unused;
} hexagon_nn_output;

typedef struct perfinfo {
    uint32_t node_id;
    uint32_t executions;
    uint32_t counter_lo;
    uint32_t counter_hi;
} hexagon_nn_perfinfo;

typedef struct {
    unsigned int batches, height, width, depth;
    unsigned char *data;
    int dataLen;
    unsigned int data_valid_len;
    unsigned int unused;
} hexagon_nn_tensordef;

/* Return a new graph, or 0. */
hexagon_nn_nn_id hexagon_nn_init(void);
void hexagon_nn_getlog(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length);
void hexagon_nn_snpprint(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length);

#include "hexagon_nn_common.h"

#ifdef __cplusplus
}
#endif
#endif
