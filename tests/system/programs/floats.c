/* A model on numbers of files: floats MODEL MASK OUT INPUT..., all float32, four dimensions in the order N, C,
 * H, W.  MASK is the core mask, or 0 for the library's choice; OUT gets the outputs, one after the other. */
#include "check.h"

int main(int count, char **words)
{
    rknn_context context;
    rknn_input_output_num number;
    CHECK(count > 3);
    CALL(rknn_init(&context, words[1], 0, 0, NULL), 0);
    CALL(rknn_query(context, RKNN_QUERY_IN_OUT_NUM, &number, sizeof(number)), 0);
    CHECK(number.n_input == (unsigned)count - 4);
    if (atoi(words[2]))
        CALL(rknn_set_core_mask(context, atoi(words[2])), 0);
    for (unsigned n = 0; n < number.n_input; n++) {
        rknn_tensor_attr attr = {.index = n};
        CALL(rknn_query(context, RKNN_QUERY_INPUT_ATTR, &attr, sizeof(attr)), 0);
        rknn_input input = {.index = n, .size = attr.n_elems * 4, .type = RKNN_TENSOR_FLOAT32};
        input.fmt = attr.n_dims == 4 ? RKNN_TENSOR_NCHW : RKNN_TENSOR_UNDEFINED;
        input.buf = malloc(input.size);
        FILE *file = fopen(words[4 + n], "rb");
        CHECK(file && fread(input.buf, 1, input.size, file) == input.size);
        fclose(file);
        CALL(rknn_inputs_set(context, 1, &input), 0);
        free(input.buf);
    }
    CALL(rknn_run(context, NULL), 0);
    FILE *out = fopen(words[3], "wb");
    CHECK(out);
    for (unsigned n = 0; n < number.n_output; n++) {
        rknn_output output = {.index = n, .want_float = 1};
        CALL(rknn_outputs_get(context, 1, &output, NULL), 0);
        CHECK(fwrite(output.buf, 1, output.size, out) == output.size);
        CALL(rknn_outputs_release(context, 1, &output), 0);
    }
    CHECK(fclose(out) == 0);
    CALL(rknn_destroy(context), 0);
    return 0;
}
