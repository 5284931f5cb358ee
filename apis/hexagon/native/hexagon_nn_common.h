/* Functions of Hexagon NN that are the same in both interfaces.  All return 0, or -1 for an error whose reason
 * is in the graph's log. */
#ifndef HEXAGON_NN_COMMON_H
#define HEXAGON_NN_COMMON_H

int hexagon_nn_config(void);
int hexagon_nn_version(int *version);
int hexagon_nn_GetHexagonBinaryVersion(int *version);
int hexagon_nn_set_debug_level(hexagon_nn_nn_id id, int level);
int hexagon_nn_append_node(hexagon_nn_nn_id id, uint32_t node_id, uint32_t operation,
                           hexagon_nn_padding_type padding, const hexagon_nn_input *inputs, uint32_t num_inputs,
                           const hexagon_nn_output *outputs, uint32_t num_outputs);
int hexagon_nn_append_const_node(hexagon_nn_nn_id id, uint32_t node_id, uint32_t batches, uint32_t height,
                                 uint32_t width, uint32_t depth, const uint8_t *data, uint32_t data_len);
int hexagon_nn_append_empty_const_node(hexagon_nn_nn_id id, uint32_t node_id, uint32_t batches, uint32_t height,
                                       uint32_t width, uint32_t depth, uint32_t data_len);
int hexagon_nn_populate_const_node(hexagon_nn_nn_id id, uint32_t node_id, const uint8_t *data, uint32_t data_len,
                                   uint32_t target_offset);
int hexagon_nn_prepare(hexagon_nn_nn_id id);
int hexagon_nn_execute(hexagon_nn_nn_id id, uint32_t batches_in, uint32_t height_in, uint32_t width_in,
                       uint32_t depth_in, const uint8_t *data_in, uint32_t data_len_in, uint32_t *batches_out,
                       uint32_t *height_out, uint32_t *width_out, uint32_t *depth_out, uint8_t *data_out,
                       uint32_t data_out_max, uint32_t *data_out_size);
int hexagon_nn_execute_new(hexagon_nn_nn_id id, const hexagon_nn_tensordef *inputs, uint32_t n_inputs,
                           hexagon_nn_tensordef *outputs, uint32_t n_outputs);
int hexagon_nn_teardown(hexagon_nn_nn_id id);
int hexagon_nn_get_perfinfo(hexagon_nn_nn_id id, hexagon_nn_perfinfo *info, unsigned int info_len,
                            unsigned int *n_items);
int hexagon_nn_reset_perfinfo(hexagon_nn_nn_id id, uint32_t event);
int hexagon_nn_last_execution_cycles(hexagon_nn_nn_id id, unsigned int *cycles_lo, unsigned int *cycles_hi);
int hexagon_nn_multi_execution_cycles(hexagon_nn_nn_id id, unsigned int *cycles_lo, unsigned int *cycles_hi);
int hexagon_nn_get_nodetype(hexagon_nn_nn_id graph_id, hexagon_nn_nn_id node_id, uint32_t *node_type);
int hexagon_nn_get_num_nodes_in_graph(hexagon_nn_nn_id id, unsigned int *num_nodes);
int hexagon_nn_op_name_to_id(const char *name, unsigned int *id);
int hexagon_nn_op_id_to_name(const unsigned int id, char *name, int name_len);
int hexagon_nn_set_powersave_level(unsigned int level);
int hexagon_nn_disable_dcvs(void);
int hexagon_nn_PrintLog(const uint8_t *buf, unsigned int length);

#endif
