/* Classify pictures with a network that takes one picture:
 *
 *     rkcosim rknn --prefix build/rknn
 *     cc -I build/rknn/include -o build/classify examples/rknn/classify.c -L build/rknn/lib -lrknnrt
 *     rkcosim rknn --report -- build/classify examples/digits/digits_int8.onnx PICTURE...
 *
 * A picture is a file with one byte for each element of the input, rows of pixels from the top, 255 for 1.0. */
#include "rkcosim_rknn.h"

#include <stdio.h>
#include <stdlib.h>

static int failed(const char *call, int code)
{
    fprintf(stderr, "%s: error %d\n", call, code);
    return 1;
}

static int classify(rknn_context ctx, const rknn_tensor_attr *in, const char *path)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = malloc(in->n_elems);
    float *values = malloc(in->n_elems * sizeof(float));
    size_t size = file ? fread(bytes, 1, in->n_elems, file) : 0;
    if (file)
        fclose(file);
    if (size != in->n_elems) {
        fprintf(stderr, "%s: %zu bytes, %u are needed\n", path, size, in->n_elems);
        return 1;
    }
    for (unsigned n = 0; n < in->n_elems; n++)
        values[n] = (float)bytes[n] / 255.0f;

    rknn_input input = {.index = 0, .buf = values, .size = in->n_elems * 4, .type = RKNN_TENSOR_FLOAT32,
                        .fmt = RKNN_TENSOR_NHWC};
    rknn_output output = {.index = 0, .want_float = 1};
    int code = rknn_inputs_set(ctx, 1, &input);
    if (code)
        return failed("rknn_inputs_set", code);
    code = rknn_run(ctx, NULL);
    if (code)
        return failed("rknn_run", code);
    code = rknn_outputs_get(ctx, 1, &output, NULL);
    if (code)
        return failed("rknn_outputs_get", code);
    const float *scores = output.buf;
    unsigned best = 0;
    for (unsigned n = 1; n < output.size / 4; n++)
        if (scores[n] > scores[best])
            best = n;
    printf("%s: class %u\n", path, best);
    rknn_outputs_release(ctx, 1, &output);
    free(values);
    free(bytes);
    return 0;
}

int main(int argc, char **argv)
{
    rknn_context ctx;
    rknn_tensor_attr in = {.index = 0};
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL PICTURE...\n", argv[0]);
        return 2;
    }
    int code = rknn_init(&ctx, argv[1], 0, 0, NULL);
    if (code)
        return failed("rknn_init", code);
    code = rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof(in));
    for (int n = 2; n < argc && !code; n++)
        code = classify(ctx, &in, argv[n]);
    rknn_destroy(ctx);
    return code != 0;
}
