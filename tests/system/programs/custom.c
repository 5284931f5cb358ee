/* custom MODEL: an operator Scaled(x, factor) = factor * x + number of its calls; prints the output. */
#include "check.h"

static int begun, prepared, ended;

static int init(rknn_custom_op_context *op, rknn_custom_op_tensor *in, uint32_t n_in, rknn_custom_op_tensor *out,
                uint32_t n_out)
{
    rknn_custom_op_attr attr = {0};
    CHECK(n_in == 1 && n_out == 1 && in[0].attr.n_elems == out[0].attr.n_elems);
    rknn_custom_op_get_op_attr(op, "factor", &attr);
    CHECK(attr.n_elems == 1 && attr.dtype == RKNN_TENSOR_FLOAT32);
    op->priv_data = malloc(sizeof(float));
    memcpy(op->priv_data, attr.data, sizeof(float));
    rknn_custom_op_get_op_attr(op, "none", &attr);
    CHECK(attr.n_elems == 0);
    begun++;
    return 0;
}

static int prepare(rknn_custom_op_context *op, rknn_custom_op_tensor *in, uint32_t n_in,
                   rknn_custom_op_tensor *out, uint32_t n_out)
{
    CHECK(op && in && out && n_in == n_out);
    prepared++;
    return 0;
}

static int compute(rknn_custom_op_context *op, rknn_custom_op_tensor *in, uint32_t n_in,
                   rknn_custom_op_tensor *out, uint32_t n_out)
{
    CHECK(n_in == 1 && n_out == 1 && in[0].attr.type == RKNN_TENSOR_FLOAT32);
    const float *from = (float *)((char *)in[0].mem.virt_addr + in[0].mem.offset);
    float *to = (float *)((char *)out[0].mem.virt_addr + out[0].mem.offset), factor = *(float *)op->priv_data;
    for (unsigned n = 0; n < in[0].attr.n_elems; n++)
        to[n] = factor * from[n] + (float)prepared;
    return prepared == 3 ? 5 : 0;
}

static int destroy(rknn_custom_op_context *op)
{
    free(op->priv_data);
    ended++;
    return 0;
}

int main(int argc, char **argv)
{
    rknn_context ctx;
    unsigned count;
    rknn_custom_op op = {.version = 1, .target = RKNN_TARGET_TYPE_CPU, .op_type = "Scaled", .init = init,
                         .prepare = prepare, .compute = compute, .destroy = destroy};
    CHECK(argc == 2);
    CALL(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);
    op.compute = NULL;
    CALL(rknn_register_custom_ops(ctx, &op, 1), RKNN_ERR_PARAM_INVALID);
    op.compute = compute;
    CALL(rknn_register_custom_ops(ctx, &op, 1), 0);
    CHECK(begun == 1);
    CALL(rknn_register_custom_ops(ctx, &op, 1), RKNN_ERR_PARAM_INVALID);
    for (int n = 0; n < 2; n++) {
        float *result = frame(ctx, 1, &count);
        for (unsigned k = 0; k < count; k++)
            printf("%.9g%c", result[k], k + 1 < count ? ' ' : '\n');
        free(result);
    }
    rknn_run_extend extend = {.non_block = 1};
    CALL(rknn_run(ctx, &extend), RKNN_ERR_FAIL); /* compute returns 5 */
    CALL(rknn_destroy(ctx), 0);
    CHECK(ended == 1);
    return 0;
}
