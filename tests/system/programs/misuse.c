/* misuse MODEL: codes of wrong calls. */
#include "check.h"

int main(int argc, char **argv)
{
    rknn_context ctx = 77, other = 0;
    CALL(rknn_init(&ctx, "there/is/no.rknn", 0, 0, NULL), RKNN_ERR_FAIL);
    CALL(rknn_init(&ctx, "not a model", 11, 0, NULL), RKNN_ERR_MODEL_INVALID);
    CALL(rknn_init(NULL, argv[argc - 1], 0, 0, NULL), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_init(&ctx, argv[1], 0, 0x80000000u, NULL), RKNN_ERR_PARAM_INVALID);
    CHECK(ctx == 0);
    CALL(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);

    rknn_tensor_attr attr = {.index = 0};
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, 372), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, NULL, sizeof(attr)), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_query(ctx, 99, &attr, sizeof(attr)), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_query(ctx + 1000, RKNN_QUERY_INPUT_ATTR, &attr, sizeof(attr)), RKNN_ERR_CTX_INVALID);
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_DYNAMIC_RANGE, &(rknn_input_range){0}, sizeof(rknn_input_range)),
         RKNN_ERR_MODEL_INVALID);
    attr.index = 5;
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof(attr)), RKNN_ERR_PARAM_INVALID);
    attr.index = 0;
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof(attr)), 0);

    float data[4096] = {0};
    rknn_input input = {.index = 0, .buf = data, .size = 4, .type = RKNN_TENSOR_FLOAT32};
    CALL(rknn_run(ctx, NULL), RKNN_ERR_INPUT_INVALID);
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_inputs_set(ctx, 0xffffffffu, &input), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_inputs_set(ctx, 1, NULL), RKNN_ERR_PARAM_INVALID);
    input.buf = NULL;
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_PARAM_INVALID);
    input = (rknn_input){.index = 3, .buf = data, .size = attr.n_elems * 4};
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_INPUT_INVALID);

    rknn_output output = {.want_float = 1};
    CALL(rknn_outputs_get(ctx, 1, &output, NULL), RKNN_ERR_FAIL);
    CALL(rknn_outputs_get(ctx, 9, &output, NULL), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_wait(ctx, NULL), RKNN_ERR_FAIL);
    CALL(rknn_set_core_mask(ctx, 5), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_set_core_mask(ctx, RKNN_NPU_CORE_0_1_2), 0);
    CALL(rknn_set_batch_core_num(ctx, 0), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_set_batch_core_num(ctx, 3), 0);

    CHECK(rknn_create_mem(ctx, 0) == NULL);
    CHECK(rknn_create_mem(ctx + 1000, 64) == NULL);
    CHECK(rknn_create_mem_from_mb_blk(ctx, data, 0) == NULL);
    CHECK(rknn_create_mem_from_fd(ctx, -1, NULL, 64, 0) == NULL);
    rknn_tensor_mem made_up = {.virt_addr = data, .size = sizeof(data), .priv_data = data};
    CALL(rknn_set_io_mem(ctx, &made_up, &attr), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_destroy_mem(ctx, &made_up), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_set_io_mem(ctx, NULL, &attr), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_matmul_run(ctx), RKNN_ERR_CTX_INVALID);
    CALL(rknn_matmul_destroy(ctx), RKNN_ERR_CTX_INVALID);
    CALL(rknn_register_custom_ops(ctx, NULL, 1), RKNN_ERR_PARAM_INVALID);

    CALL(rknn_dup_context(&ctx, &other), 0);
    rknn_tensor_mem *mem = rknn_create_mem(ctx, 4096);
    CHECK(mem != NULL);
    CALL(rknn_destroy(ctx), 0);
    CALL(rknn_destroy(ctx), RKNN_ERR_CTX_INVALID);
    CALL(rknn_run(ctx, NULL), RKNN_ERR_CTX_INVALID);
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_CTX_INVALID);
    CALL(rknn_destroy_mem(0, mem), RKNN_ERR_PARAM_INVALID);
    unsigned count;
    free(frame(other, 1, &count)); /* the copy lives on */
    CALL(rknn_destroy(other), 0);
    return 0;
}
