/* products: matrix products of several types, layouts and shapes compared with sums of this processor. */
#include "check.h"

static void product(int m, int k, int n, int layout)
{
    rknn_matmul_ctx ctx;
    rknn_matmul_info info = {.M = m, .K = k, .N = n, .type = RKNN_INT8_MM_INT8_TO_INT32, .B_layout = (int16_t)layout};
    rknn_matmul_io_attr io;
    memset(&io, 0, sizeof(io));
    CALL(rknn_matmul_create(&ctx, &info, &io), 0);
    CHECK(!strcmp(io.B.name, "B") && io.A.size == (uint32_t)(m * k) && io.C.size == (uint32_t)(m * n * 4));
    rknn_tensor_mem *a = rknn_create_mem(ctx, io.A.size), *b = rknn_create_mem(ctx, io.B.size);
    rknn_tensor_mem *c = rknn_create_mem(ctx, io.C.size);
    int8_t *x = a->virt_addr, *y = malloc((size_t)(k * n));
    for (int i = 0; i < m * k; i++)
        x[i] = (int8_t)(i * 7 % 251 - 125);
    for (int i = 0; i < k * n; i++)
        y[i] = (int8_t)(i * 11 % 253 - 126);
    if (layout == RKNN_MM_LAYOUT_NATIVE) {
        rknn_matmul_info normal = info;
        normal.B_layout = RKNN_MM_LAYOUT_NORM;
        CALL(rknn_B_normal_layout_to_native_layout(y, b->virt_addr, k, n, &normal), 0);
    } else {
        memcpy(b->virt_addr, y, (size_t)(k * n));
    }
    CALL(rknn_matmul_set_io_mem(ctx, a, &io.A), 0);
    CALL(rknn_matmul_set_io_mem(ctx, b, &io.B), 0);
    CALL(rknn_matmul_set_io_mem(ctx, c, &io.C), 0);
    CALL(rknn_matmul_run(ctx), 0);
    const int32_t *z = c->virt_addr;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            int32_t sum = 0;
            for (int l = 0; l < k; l++)
                sum += x[i * k + l] * y[l * n + j];
            CHECK(z[i * n + j] == sum);
        }
    CALL(rknn_matmul_set_core_mask(ctx, RKNN_NPU_CORE_1), 0);
    CALL(rknn_matmul_run(ctx), 0);
    CALL(rknn_query(ctx, RKNN_QUERY_IN_OUT_NUM, &(rknn_input_output_num){0}, 8), RKNN_ERR_CTX_INVALID);
    CALL(rknn_destroy_mem(ctx, a), 0);
    CALL(rknn_destroy_mem(ctx, b), 0);
    CALL(rknn_destroy_mem(ctx, c), 0);
    CALL(rknn_matmul_destroy(ctx), 0);
    free(y);
}

static void quantised(void)
{
    rknn_matmul_ctx ctx;
    rknn_matmul_info info = {.M = 1, .K = 32, .N = 32, .type = RKNN_INT8_MM_INT8_TO_INT32,
                             .B_quant_type = RKNN_QUANT_TYPE_PER_CHANNEL_SYM};
    rknn_matmul_io_attr io;
    float scales[32], scale = 0;
    rknn_quant_params params = {.name = "B", .scale = scales, .scale_len = 32};
    for (int n = 0; n < 32; n++)
        scales[n] = 0.25f + (float)n / 64.0f;
    CALL(rknn_matmul_create(&ctx, &info, &io), 0);
    CALL(rknn_matmul_set_quant_params(ctx, &params), 0);
    rknn_quant_params asked = {.name = "B", .scale = (float *)(uintptr_t)0x1234567, .scale_len = 99};
    CALL(rknn_matmul_get_quant_params(ctx, &asked, &scale), 0);
    CHECK(scale == scales[31]);
    params.scale_len = 1;
    CALL(rknn_matmul_set_quant_params(ctx, &params), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_matmul_destroy(ctx), 0);
    info.K = 31;
    CALL(rknn_matmul_create(&ctx, &info, &io), RKNN_ERR_PARAM_INVALID);
}

static void shapes(void)
{
    rknn_matmul_ctx ctx;
    rknn_matmul_info info = {.type = RKNN_INT8_MM_INT8_TO_INT32};
    rknn_matmul_shape given[2] = {{4, 64, 32}, {8, 64, 32}}, other = {9, 64, 32};
    rknn_matmul_io_attr io[2];
    CALL(rknn_matmul_create_dynamic_shape(&ctx, &info, 2, given, io), 0);
    CHECK(io[0].A.size == 256 && io[1].A.size == 512);
    CALL(rknn_matmul_set_dynamic_shape(ctx, &given[1]), 0);
    CALL(rknn_matmul_set_dynamic_shape(ctx, &other), RKNN_ERR_PARAM_INVALID);
    CALL(rknn_matmul_destroy(ctx), 0);
}

int main(void)
{
    product(4, 64, 32, RKNN_MM_LAYOUT_NORM);
    product(5, 96, 64, RKNN_MM_LAYOUT_NATIVE);
    quantised();
    shapes();
    return 0;
}
