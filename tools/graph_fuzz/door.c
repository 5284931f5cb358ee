/* Runs models by rknn_api.h, one for each line of the input:
 *
 *     MODEL FORMAT CORES COUNT FILE TYPE ... PREFIX
 *
 * FORMAT is nchw or nhwc, for inputs of four dimensions; CORES is a core mask, 0 for automatic; each of COUNT
 * inputs is in a file, as elements of TYPE (a number of rknn_tensor_type). Output n goes to PREFIX.n as float32.
 * The answer is a line: "ok COUNT" with the number of outputs, or "error CALL CODE".
 */
#include "rkcosim_rknn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 16

static void *contents(const char *path, unsigned *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = (unsigned)ftell(file);
    rewind(file);
    void *data = malloc(*size ? *size : 1);
    if (fread(data, 1, *size, file) != *size) *size = 0;
    fclose(file);
    return data;
}

static const char *failed;

#define CALL(call)                      \
    do {                                \
        int code_ = (call);             \
        if (code_) {                    \
            failed = #call;             \
            result = code_;             \
            goto end;                   \
        }                               \
    } while (0)

static int outputs(rknn_context ctx, unsigned count, const char *prefix)
{
    int result = 0;
    rknn_output items[MOST];
    memset(items, 0, sizeof(items));
    for (unsigned n = 0; n < count; n++) {
        items[n].index = n;
        items[n].want_float = 1;
    }
    CALL(rknn_outputs_get(ctx, count, items, NULL));
    for (unsigned n = 0; n < count; n++) {
        char name[4096];
        snprintf(name, sizeof(name), "%s.%u", prefix, n);
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(items[n].buf, 1, items[n].size, file) != items[n].size) result = -100;
        if (file) fclose(file);
    }
    CALL(rknn_outputs_release(ctx, count, items));
end:
    return result;
}

static int one(char *line, unsigned *made)
{
    int result = 0;
    rknn_context ctx = 0;
    rknn_input items[MOST];
    memset(items, 0, sizeof(items));
    char *model = strtok(line, " "), *format = strtok(NULL, " ");
    unsigned mask = (unsigned)atoi(strtok(NULL, " ")), count = (unsigned)atoi(strtok(NULL, " "));
    if (count > MOST) return -101;
    for (unsigned n = 0; n < count; n++) {
        items[n].index = n;
        items[n].buf = contents(strtok(NULL, " "), &items[n].size);
        items[n].type = (rknn_tensor_type)atoi(strtok(NULL, " "));
    }
    const char *prefix = strtok(NULL, " \n");
    rknn_input_output_num counts;
    CALL(rknn_init(&ctx, model, 0, 0, NULL));
    if (mask) CALL(rknn_set_core_mask(ctx, (rknn_core_mask)mask));
    CALL(rknn_query(ctx, RKNN_QUERY_IN_OUT_NUM, &counts, sizeof(counts)));
    if (counts.n_input != count || counts.n_output > MOST) {
        failed = "counts";
        result = -102;
        goto end;
    }
    for (unsigned n = 0; n < count; n++) {
        rknn_tensor_attr attr;
        memset(&attr, 0, sizeof(attr));
        attr.index = n;
        CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof(attr)));
        items[n].fmt = RKNN_TENSOR_UNDEFINED;
        if (attr.n_dims == 4) items[n].fmt = strcmp(format, "nchw") ? RKNN_TENSOR_NHWC : RKNN_TENSOR_NCHW;
    }
    CALL(rknn_inputs_set(ctx, count, items));
    CALL(rknn_run(ctx, NULL));
    *made = counts.n_output;
    CALL(outputs(ctx, counts.n_output, prefix));
end:
    if (ctx) rknn_destroy(ctx);
    for (unsigned n = 0; n < count; n++) free(items[n].buf);
    return result;
}

int main(void)
{
    static char line[65536];
    while (fgets(line, sizeof(line), stdin)) {
        unsigned made = 0;
        failed = "";
        int code = one(line, &made);
        if (code) printf("error %s %d\n", failed, code);
        else printf("ok %u\n", made);
        fflush(stdout);
    }
    return 0;
}
