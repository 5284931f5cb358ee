/* The interface of Hexagon NN (nnlib 2.20) as libhexagon_nn.so of rkcosim has it; docs/hexagon.md.  Types, numbers
 * and names are facts of the interface (XiaoMi/nnlib at df7ad3c1); a program may be compiled with nnlib's own
 * headers instead.  With HEXAGON_NN_WIDE_PERFINFO, here and in the library, entries of get_perfinfo have 24 bytes. */
#ifndef HEXAGON_NN_H
#define HEXAGON_NN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t hexagon_nn_nn_id;
typedef int32_t hexagon_nn_padding_type;
typedef int32_t hexagon_nn_corner_type;
typedef int32_t hexagon_nn_dcvs_type;
typedef int32_t hexagon_nn_execute_result;
typedef int32_t hexagon_nn_udo_err;

enum { NN_PAD_NA, NN_PAD_SAME, NN_PAD_VALID, NN_PAD_MIRROR_REFLECT, NN_PAD_MIRROR_SYMMETRIC, NN_PAD_SAME_CAFFE };
enum {
    NN_CORNER_RELEASE,
    NN_CORNER_TURBO,
    NN_CORNER_NOMPLUS,
    NN_CORNER_NOMINAL,
    NN_CORNER_SVSPLUS,
    NN_CORNER_SVS,
    NN_CORNER_SVS2
};
enum { NN_DCVS_DEFAULT, NN_DCVS_ENABLE, NN_DCVS_DISABLE };
enum {
    NN_EXECUTE_SUCCESS,
    NN_EXECUTE_ERROR,
    NN_EXECUTE_BUFFER_SIZE_ERROR,
    NN_EXECUTE_UDO_ERROR,
    NN_EXECUTE_GRAPH_NOT_FOUND,
    NN_EXECUTE_GRAPH_NOT_PREPARED
};
enum { UDO_SUCCESS, UDO_GRAPH_ID_NOT_FOUND, UDO_LIB_FAILED_TO_OPEN = 7, UDO_LIB_NOT_REGISTERED = 24 };

/* An input: the node that makes it, and which of its outputs it is. */
typedef struct input {
    uint32_t src_id;
    uint32_t output_idx;
} hexagon_nn_input;

/* An output: its largest sizes.  zero_offset and stepsize are not used. */
typedef struct output {
    uint32_t rank;
    uint32_t max_sizes[8];
    uint32_t elementsize;
    int32_t zero_offset;
    float stepsize;
} hexagon_nn_output;

typedef struct perfinfo {
    uint32_t node_id;
#ifdef HEXAGON_NN_WIDE_PERFINFO
    uint32_t node_type;
#endif
    uint32_t executions;
#ifdef HEXAGON_NN_WIDE_PERFINFO
    uint32_t unused;
#endif
    uint32_t counter_lo;
    uint32_t counter_hi;
} hexagon_nn_perfinfo;

typedef struct initinfo {
    int32_t priority;
} hexagon_nn_initinfo;

typedef struct {
    unsigned int batches, height, width, depth;
    unsigned char *data;
    int dataLen;                 /* bytes of the memory */
    unsigned int data_valid_len; /* bytes of the tensor */
    unsigned int unused;
} hexagon_nn_tensordef;

typedef struct {
    hexagon_nn_execute_result result;
    unsigned char *extraInfo; /* two uint32_t: the node that failed, and its operation */
    int extraInfoLen;
    int extraInfoValidLen;
} hexagon_nn_execute_info;

typedef struct uint_option_t {
    uint32_t option_id;
    uint32_t uint_value;
} hexagon_nn_uint_option;

typedef struct string_option_t {
    uint32_t option_id;
    char string_data[256];
} hexagon_nn_string_option;

typedef struct hexagon_nn_op_node {
    unsigned int node_id;
    unsigned int operation;
    hexagon_nn_padding_type padding;
    hexagon_nn_input *inputs;
    int inputsLen;
    hexagon_nn_output *outputs;
    int outputsLen;
} hexagon_nn_op_node;

typedef struct hexagon_nn_const_node {
    unsigned int node_id;
    hexagon_nn_tensordef tensor;
} hexagon_nn_const_node;

int hexagon_nn_init(hexagon_nn_nn_id *id);
int hexagon_nn_init_with_info(hexagon_nn_nn_id *id, const hexagon_nn_initinfo *info);
int hexagon_nn_getlog(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length);
int hexagon_nn_snpprint(hexagon_nn_nn_id id, unsigned char *buf, uint32_t length);
int hexagon_nn_config_with_options(const hexagon_nn_uint_option *numbers, uint32_t count,
                                   const hexagon_nn_string_option *texts, uint32_t text_count);
int hexagon_nn_graph_config(hexagon_nn_nn_id id, const hexagon_nn_uint_option *numbers, uint32_t count,
                            const hexagon_nn_string_option *texts, uint32_t text_count);
int hexagon_nn_set_graph_option(hexagon_nn_nn_id id, const char *name, int value);
int hexagon_nn_append_empty_const_node_large_array(int id, uint32_t node_id, uint32_t batches, uint32_t height,
                                                   uint32_t width, uint32_t depth, const uint8_t *data,
                                                   uint32_t data_len);
int hexagon_nn_append_node_list(hexagon_nn_nn_id id, const hexagon_nn_op_node *nodes, int count);
int hexagon_nn_append_const_node_list(hexagon_nn_nn_id id, hexagon_nn_const_node *nodes, int count);
int hexagon_nn_append_udo_node(hexagon_nn_nn_id id, uint32_t node_id, const char *package_name, char *type,
                               char *parameters, uint32_t parameters_size, const hexagon_nn_input *inputs,
                               uint32_t num_inputs, const hexagon_nn_output *outputs, uint32_t num_outputs,
                               hexagon_nn_udo_err *err);
int hexagon_nn_udo_register_lib(const char *path, hexagon_nn_udo_err *err);
int hexagon_nn_free_udo_individual_lib(const char *package_name, hexagon_nn_udo_err *err);
int hexagon_nn_free_udo_libs(hexagon_nn_udo_err *err);
int hexagon_nn_execute_with_info(hexagon_nn_nn_id id, const hexagon_nn_tensordef *inputs, uint32_t n_inputs,
                                 hexagon_nn_tensordef *outputs, uint32_t n_outputs,
                                 hexagon_nn_execute_info *info);
int hexagon_nn_set_powersave_details(hexagon_nn_corner_type corner, hexagon_nn_dcvs_type dcvs,
                                     unsigned int latency);
int hexagon_nn_set_clocks(hexagon_nn_corner_type corner, hexagon_nn_dcvs_type dcvs, unsigned int latency);
int hexagon_nn_remove_clocks(void);
int hexagon_nn_get_power(int type);
int hexagon_nn_get_dsp_offset(uint32_t *library, uint32_t *shell);
int hexagon_nn_variable_read(hexagon_nn_nn_id id, uint32_t node_id, int32_t output_index, uint32_t *b_out,
                             uint32_t *h_out, uint32_t *w_out, uint32_t *d_out, uint8_t *data_out,
                             uint32_t data_out_max, uint32_t *data_out_len);
int hexagon_nn_variable_write(hexagon_nn_nn_id id, uint32_t node_id, int32_t output_index, uint32_t batches,
                              uint32_t height, uint32_t width, uint32_t depth, const uint8_t *data,
                              uint32_t data_len);
int hexagon_nn_variable_write_flat(hexagon_nn_nn_id id, uint32_t node_id, int32_t output_index,
                                   const uint8_t *data, uint32_t data_len);
int hexagon_nn_populate_graph(hexagon_nn_nn_id id, const unsigned char *data, int data_len);

/* Functions of libhexagon_interface.so, which LiteRT's delegate for Hexagon loads. */
void hexagon_nn_global_init(void);
void hexagon_nn_global_teardown(void);
bool hexagon_nn_is_device_supported(void);
int hexagon_nn_hexagon_interface_version(void);

/* Memory that programs share with the processor; here it is that of malloc. */
void rpcmem_init(void);
void rpcmem_deinit(void);
void *rpcmem_alloc(int heap, uint32_t flags, int size);
void rpcmem_free(void *memory);
int rpcmem_to_fd(void *memory);

#include "hexagon_nn_common.h"

#ifdef __cplusplus
}
#endif
#endif
