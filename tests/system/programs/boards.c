/* boards MODEL...: the second and later rknn_inputs_set and rknn_outputs_get of a context convert in this
 * process; they must give the same bytes and codes as the first ones, which the server converts. */
#include "check.h"
#include <math.h>

enum { FLOATS, WIDE, BYTES, KINDS };

struct picture {
    unsigned count;
    float *floats;
    uint8_t *bytes;
};

static rknn_input input_of(const struct picture *p, int kind, int fmt)
{
    rknn_input input = {.index = 0, .fmt = fmt};
    input.type = kind == BYTES ? RKNN_TENSOR_UINT8 : RKNN_TENSOR_FLOAT32;
    input.buf = kind == BYTES ? (void *)p->bytes : (void *)p->floats;
    input.size = p->count * (kind == BYTES ? 1u : 4u);
    return input;
}

static struct picture made(unsigned count, unsigned seed, int kind)
{
    struct picture p = {count, malloc(count * sizeof(float)), malloc(count)};
    fill(p.floats, count, seed);
    for (unsigned n = 0; n < count; n++) {
        p.bytes[n] = (uint8_t)(p.floats[n] * 255.0f);
        if (kind == WIDE) /* far beyond the codes, halves, tiny and negative numbers */
            p.floats[n] = (p.floats[n] - 0.5f) * (n % 7 ? 1.0f : n % 2 ? 3e38f : 1e-40f);
    }
    return p;
}

/* One frame; with `own` the program provides the buffer of the output. */
static float *result_of(rknn_context ctx, rknn_input *input, unsigned count, int own)
{
    float *result = malloc(count * sizeof(float));
    rknn_output output = {.want_float = 1, .is_prealloc = (uint8_t)own, .buf = own ? result : NULL};
    output.size = own ? count * 4 : 0;
    CALL(rknn_inputs_set(ctx, 1, input), 0);
    CALL(rknn_run(ctx, NULL), 0);
    CALL(rknn_outputs_get(ctx, 1, &output, NULL), 0);
    CHECK(output.size == count * 4);
    if (!own)
        memcpy(result, output.buf, output.size);
    CALL(rknn_outputs_release(ctx, 1, &output), 0);
    return result;
}

static void compare(const char *model, int kind, int fmt, unsigned in, unsigned out)
{
    rknn_context first, later;
    struct picture p = made(in, 7u + (unsigned)kind, kind), other = made(in, 90, FLOATS);
    rknn_input input = input_of(&p, kind, fmt), before = input_of(&other, FLOATS, RKNN_TENSOR_NHWC);
    CALL(rknn_init(&first, (void *)model, 0, 0, NULL), 0);
    float *wanted = result_of(first, &input, out, 1);
    CALL(rknn_init(&later, (void *)model, 0, 0, NULL), 0);
    float *unlike = result_of(later, &before, out, 0);
    CHECK(memcmp(unlike, wanted, out * 4));
    for (int own = 0; own < 2; own++) {
        float *found = result_of(later, &input, out, own);
        CHECK(!memcmp(found, wanted, out * 4));
        float *again = result_of(later, &before, out, own);
        CHECK(!memcmp(again, unlike, out * 4));
        free(found);
        free(again);
    }
    free(wanted);
    free(unlike);
    free(p.floats), free(p.bytes), free(other.floats), free(other.bytes);
    CALL(rknn_destroy(first), 0);
    CALL(rknn_destroy(later), 0);
    CALL(rknn_inputs_set(later, 1, &input), RKNN_ERR_CTX_INVALID);
}

/* Errors and modes after which the server has to convert. */
static void others(const char *model, unsigned in, unsigned out)
{
    rknn_context ctx;
    struct picture p = made(in, 3, FLOATS), q = made(in, 4, FLOATS);
    rknn_input input = input_of(&p, FLOATS, RKNN_TENSOR_NHWC), second = input_of(&q, FLOATS, RKNN_TENSOR_NHWC);
    CALL(rknn_init(&ctx, (void *)model, 0, 0, NULL), 0);
    float *wanted = result_of(ctx, &input, out, 1), *unlike = result_of(ctx, &second, out, 1);

    p.floats[in / 2] = NAN;
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_INPUT_INVALID);
    p.floats[in / 2] = -INFINITY;
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_INPUT_INVALID);
    p.floats[in / 2] = 0.25f;
    input.size--;
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_PARAM_INVALID);
    input.size++;
    input.index = 1;
    CALL(rknn_inputs_set(ctx, 1, &input), RKNN_ERR_INPUT_INVALID);
    input.index = 0;
    rknn_output small = {.want_float = 1, .is_prealloc = 1, .buf = wanted, .size = out * 4 - 1};
    CALL(rknn_outputs_get(ctx, 1, &small, NULL), RKNN_ERR_OUTPUT_INVALID);
    small.index = 1;
    CALL(rknn_outputs_get(ctx, 1, &small, NULL), RKNN_ERR_OUTPUT_INVALID);
    fill(p.floats, in, 3);

    /* The last of several inputs counts, and an input alone does not change the output. */
    CALL(rknn_inputs_set(ctx, 1, &input), 0);
    float *now = malloc(out * 4);
    rknn_output output = {.want_float = 1, .is_prealloc = 1, .buf = now, .size = out * 4};
    CALL(rknn_outputs_get(ctx, 1, &output, NULL), 0);
    CHECK(!memcmp(now, unlike, out * 4));
    CALL(rknn_inputs_set(ctx, 1, &second), 0);
    CALL(rknn_inputs_set(ctx, 1, &input), 0);

    /* Frames in the background. */
    rknn_run_extend extend = {.non_block = 1};
    CALL(rknn_run(ctx, &extend), 0);
    CALL(rknn_inputs_set(ctx, 1, &second), 0);
    CALL(rknn_outputs_get(ctx, 1, &output, NULL), 0);
    CHECK(!memcmp(now, wanted, out * 4));
    CALL(rknn_run(ctx, &extend), 0);
    CALL(rknn_outputs_get(ctx, 1, &output, NULL), 0);
    CHECK(!memcmp(now, unlike, out * 4));

    /* Input memory that is bound replaces the input, and rknn_inputs_set the memory. */
    rknn_tensor_attr attr = {.index = 0};
    CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &attr, sizeof(attr)), 0);
    attr.type = RKNN_TENSOR_FLOAT32;
    attr.fmt = RKNN_TENSOR_NHWC;
    rknn_tensor_mem *memory = rknn_create_mem(ctx, in * 4 * 16);
    CHECK(memory);
    memset(memory->virt_addr, 0, in * 4 * 16);
    CALL(rknn_set_io_mem(ctx, memory, &attr), 0);
    CALL(rknn_run(ctx, NULL), 0);
    CALL(rknn_outputs_get(ctx, 1, &output, NULL), 0);
    CHECK(memcmp(now, unlike, out * 4));
    float *last = result_of(ctx, &second, out, 1);
    CHECK(!memcmp(last, unlike, out * 4));
    CALL(rknn_destroy_mem(ctx, memory), 0);

    /* Another core mask loads the model again; a .rknn file may have no plan for two cores. */
    int code = rknn_set_core_mask(ctx, RKNN_NPU_CORE_0_1);
    CHECK(!code || code == RKNN_ERR_MODEL_INVALID);
    float *both = result_of(ctx, &input, out, 1);
    CHECK(!memcmp(both, wanted, out * 4));
    free(both);
    both = result_of(ctx, &second, out, 1);
    CHECK(!memcmp(both, unlike, out * 4));
    CALL(rknn_destroy(ctx), 0);
    free(both), free(last), free(now), free(wanted), free(unlike);
    free(p.floats), free(p.bytes), free(q.floats), free(q.bytes);
}

int main(int argc, char **argv)
{
    for (int n = 1; n < argc; n++) {
        rknn_context ctx;
        rknn_tensor_attr in = {.index = 0}, out = {.index = 0};
        CALL(rknn_init(&ctx, argv[n], 0, 0, NULL), 0);
        CALL(rknn_query(ctx, RKNN_QUERY_INPUT_ATTR, &in, sizeof(in)), 0);
        CALL(rknn_query(ctx, RKNN_QUERY_OUTPUT_ATTR, &out, sizeof(out)), 0);
        CALL(rknn_destroy(ctx), 0);
        for (int kind = 0; kind < KINDS; kind++) {
            compare(argv[n], kind, RKNN_TENSOR_NHWC, in.n_elems, out.n_elems);
            compare(argv[n], kind, RKNN_TENSOR_NCHW, in.n_elems, out.n_elems);
        }
        others(argv[n], in.n_elems, out.n_elems);
    }
    return 0;
}
