/* Classify pictures, as many at once as the model takes (the batch of a .rknn file):
 *
 *     rkcosim rknn --prefix build/rknn
 *     cc -I build/rknn/include -o build/classes examples/rknn/classes.c -L build/rknn/lib -lrknnrt
 *     rkcosim rknn --report -- build/classes MODEL.rknn CORES PICTURE...
 *
 * CORES is 1, 2 or 3. A picture is a file with one byte for each element of a sample: rows of pixels from the
 * top, with their channels in the order of the model. The runtime applies mean and std of the file. The last
 * batch is filled up with copies of its first picture. */
#include "rkcosim_rknn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 3

static int failed(const char *call, int code)
{
    fprintf(stderr, "%s: error %d\n", call, code);
    return 1;
}

static int read_picture(const char *path, unsigned char *pixels, unsigned size)
{
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(pixels, 1, size, file) : 0;
    int more = file ? fgetc(file) : EOF;
    if (file)
        fclose(file);
    if (got != size || more != EOF) {
        fprintf(stderr, "%s: %u bytes are needed\n", path, size);
        return 1;
    }
    return 0;
}

static void print_best(const char *path, const float *scores, unsigned count)
{
    unsigned best[SHOWN] = {0}, found = 0;
    printf("%s:", path);
    while (found < SHOWN && found < count) {
        unsigned next = count;
        for (unsigned k = 0; k < count; k++) {
            int taken = 0;
            for (unsigned n = 0; n < found; n++)
                taken |= best[n] == k;
            if (!taken && (next == count || scores[k] > scores[next]))
                next = k;
        }
        best[found++] = next;
        printf(" %u (%.4f)", next, scores[next]);
    }
    putchar('\n');
}

static int classify(rknn_context ctx, const rknn_tensor_attr *in, const rknn_tensor_attr *out, char **paths,
                    unsigned count, unsigned char *pixels)
{
    unsigned batch = in->dims[0], size = in->n_elems / batch, classes = out->n_elems / batch;
    for (unsigned n = 0; n < batch; n++)
        if (read_picture(paths[n < count ? n : 0], pixels + n * size, size))
            return 1;
    rknn_input input = {.index = 0, .buf = pixels, .size = in->n_elems, .type = RKNN_TENSOR_UINT8,
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
    for (unsigned n = 0; n < count; n++)
        print_best(paths[n], (const float *)output.buf + n * classes, classes);
    return rknn_outputs_release(ctx, 1, &output) ? failed("rknn_outputs_release", -1) : 0;
}

int main(int argc, char **argv)
{
    static const rknn_core_mask masks[] = {RKNN_NPU_CORE_0, RKNN_NPU_CORE_0_1, RKNN_NPU_CORE_0_1_2};
    rknn_context ctx;
    rknn_tensor_attr in = {.index = 0}, out = {.index = 0};
    if (argc < 4 || atoi(argv[2]) < 1 || atoi(argv[2]) > 3) {
        fprintf(stderr, "usage: %s MODEL 1|2|3 PICTURE...\n", argv[0]);
        return 2;
    }
    int code = rknn_init(&ctx, argv[1], 0, 0, NULL);
    if (code)
        return failed("rknn_init", code);
    code = rknn_set_core_mask(ctx, masks[atoi(argv[2]) - 1]);
    if (code)
        return failed("rknn_set_core_mask", code);
    code = rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof in);
    code = code ? code : rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &out, sizeof out);
    if (code)
        return failed("rknn_query", code);
    printf("input dims [%u, %u, %u, %u], n_elems %u; output dims [%u, %u], n_elems %u\n", in.dims[0], in.dims[1],
           in.dims[2], in.dims[3], in.n_elems, out.dims[0], out.dims[1], out.n_elems);
    unsigned char *pixels = malloc(in.n_elems);
    for (int n = 3; n < argc; n += (int)in.dims[0]) {
        unsigned left = (unsigned)(argc - n), count = left < in.dims[0] ? left : in.dims[0];
        if (classify(ctx, &in, &out, argv + n, count, pixels))
            return 1;
    }
    free(pixels);
    return rknn_destroy(ctx) ? failed("rknn_destroy", -1) : 0;
}
