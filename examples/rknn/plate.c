/* Read a number plate with a network of the LPRNet kind: (1, classes, positions), the last class is blank.
 *
 *     rkcosim rknn --prefix build/rknn
 *     cc -I build/rknn/include -o build/plate examples/rknn/plate.c -L build/rknn/lib -lrknnrt
 *     rkcosim rknn -- build/plate MODEL.rknn CHARACTERS.txt CORES PICTURE...
 *
 * CHARACTERS.txt has the characters of the classes without the blank one, separated by white space. CORES is 1,
 * 2 or 3. A picture is a file with one byte for each element of the input: rows of pixels from the top, with
 * their channels in the order of the model (BGR for LPRNet). The runtime applies mean and std of the file. */
#include "rkcosim_rknn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHARACTERS 256

static int failed(const char *call, int code)
{
    fprintf(stderr, "%s: error %d\n", call, code);
    return 1;
}

static unsigned read_characters(const char *path, char characters[CHARACTERS][16])
{
    unsigned count = 0;
    FILE *file = fopen(path, "r");
    while (file && count < CHARACTERS && fscanf(file, "%15s", characters[count]) == 1)
        count++;
    if (file)
        fclose(file);
    return count;
}

/* The best class of each position, without repetitions and blanks. */
static void decode(const float *scores, unsigned classes, unsigned positions, char characters[][16])
{
    unsigned before = classes;
    for (unsigned p = 0; p < positions; p++) {
        unsigned best = 0;
        for (unsigned k = 1; k < classes; k++)
            if (scores[k * positions + p] > scores[best * positions + p])
                best = k;
        if (best != before && best != classes - 1)
            fputs(characters[best], stdout);
        before = best;
    }
    putchar('\n');
}

static int read_plate(rknn_context ctx, const rknn_tensor_attr *in, const rknn_tensor_attr *out, const char *path,
                      char characters[][16])
{
    unsigned char *pixels = malloc(in->n_elems + 1);
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(pixels, 1, in->n_elems + 1, file) : 0;
    if (file)
        fclose(file);
    if (size != in->n_elems) {
        fprintf(stderr, "%s: %zu bytes, %u are needed\n", path, size, in->n_elems);
        free(pixels);
        return 1;
    }
    rknn_input input = {.index = 0, .buf = pixels, .size = in->n_elems, .type = RKNN_TENSOR_UINT8,
                        .fmt = RKNN_TENSOR_NHWC};
    rknn_output output = {.index = 0, .want_float = 1};
    int code = rknn_inputs_set(ctx, 1, &input);
    free(pixels);
    if (code)
        return failed("rknn_inputs_set", code);
    code = rknn_run(ctx, NULL);
    if (code)
        return failed("rknn_run", code);
    code = rknn_outputs_get(ctx, 1, &output, NULL);
    if (code)
        return failed("rknn_outputs_get", code);
    printf("%s: ", path);
    decode(output.buf, out->dims[1], out->dims[2], characters);
    return rknn_outputs_release(ctx, 1, &output) ? failed("rknn_outputs_release", -1) : 0;
}

static void print_attr(const char *what, const rknn_tensor_attr *attr)
{
    printf("%s %s: dims [", what, attr->name);
    for (unsigned n = 0; n < attr->n_dims; n++)
        printf("%s%u", n ? ", " : "", attr->dims[n]);
    printf("], n_elems %u, zp %d, scale %.6f\n", attr->n_elems, attr->zp, attr->scale);
}

int main(int argc, char **argv)
{
    static const rknn_core_mask masks[] = {RKNN_NPU_CORE_0, RKNN_NPU_CORE_0_1, RKNN_NPU_CORE_0_1_2};
    static char characters[CHARACTERS][16];
    rknn_context ctx;
    rknn_tensor_attr in = {.index = 0}, out = {.index = 0};
    if (argc < 5 || atoi(argv[3]) < 1 || atoi(argv[3]) > 3) {
        fprintf(stderr, "usage: %s MODEL CHARACTERS 1|2|3 PICTURE...\n", argv[0]);
        return 2;
    }
    int code = rknn_init(&ctx, argv[1], 0, 0, NULL);
    if (code)
        return failed("rknn_init", code);
    code = rknn_set_core_mask(ctx, masks[atoi(argv[3]) - 1]);
    if (code)
        return failed("rknn_set_core_mask", code);
    code = rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof in);
    code = code ? code : rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &out, sizeof out);
    if (code)
        return failed("rknn_query", code);
    print_attr("input", &in);
    print_attr("output", &out);
    unsigned count = read_characters(argv[2], characters);
    if (out.n_dims != 3 || out.dims[0] != 1 || count + 1 != out.dims[1]) {
        fprintf(stderr, "%u characters do not fit the output\n", count);
        return 1;
    }
    for (int n = 4; n < argc; n++)
        if (read_plate(ctx, &in, &out, argv[n], characters))
            return 1;
    return rknn_destroy(ctx) ? failed("rknn_destroy", -1) : 0;
}
