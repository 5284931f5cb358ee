/* layers: the calls of a language model's backend: weights converted once, a context for each M and core.
 *
 * layers KIND CORES K N M...: the columns of B are divided among cores, each with its contexts and a thread.
 * rknn_B_normal_layout_to_native_layout converts them into memory that the contexts of all M use.  A and C are
 * native for KIND int4, rows for int8 and fp16.  A[m][k] is `value(m, k)` and B[k][n] `value(k, 1000 + n)`.
 * Prints for each M the sum of C[m][n] * (n + 1) for each row m. */
#include "check.h"
#include <pthread.h>

enum { MOST = 3 };

typedef struct {
    const char *name;
    rknn_matmul_type type;
    int step, group, native, bits;
} kind_t;

static const kind_t kinds[] = {
    {"int8", RKNN_INT8_MM_INT8_TO_INT32, 16, 32, 0, 8},
    {"int4", RKNN_INT4_MM_INT4_TO_INT16, 32, 64, 1, 4},
    {"fp16", RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32, 8, 16, 0, 16},
};

/* A small number, -7 to 7, without a simple period. */
static int value(int i, int j)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)j * 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    return (int)((x >> 16) % 15) - 7;
}

/* The number, -7 to 7, as binary16. */
static uint16_t half(int v)
{
    int size = abs(v), exponent = size >= 4 ? 2 : size >= 2 ? 1 : 0;
    if (!size)
        return 0;
    return (uint16_t)((v < 0 ? 0x8000 : 0) | (15 + exponent) << 10 | (size << (10 - exponent) & 0x3FF));
}

typedef struct {
    const kind_t *kind;
    int k, first, columns;
    rknn_tensor_mem *b;
    rknn_matmul_ctx owner; /* the context in which B was allocated */
} weights_t;

typedef struct {
    rknn_matmul_ctx ctx;
    rknn_matmul_io_attr io;
    rknn_tensor_mem *a, *c;
} context_t;

static void context_of(const weights_t *w, int m, int core, context_t *made)
{
    rknn_matmul_info info = {.M = m, .K = w->k, .N = w->columns, .type = w->kind->type,
                             .B_layout = RKNN_MM_LAYOUT_NATIVE,
                             .AC_layout = (int16_t)(w->kind->native ? RKNN_MM_LAYOUT_NATIVE : RKNN_MM_LAYOUT_NORM),
                             .iommu_domain_id = core};
    CALL(rknn_matmul_create(&made->ctx, &info, &made->io), 0);
    CALL(rknn_matmul_set_core_mask(made->ctx, (rknn_core_mask)(1 << core)), 0);
    made->a = rknn_create_mem(made->ctx, made->io.A.size);
    made->c = rknn_create_mem(made->ctx, made->io.C.size);
    CHECK(made->a && made->c);
}

/* Convert the columns of one core; the helper reads one number a byte (int4 as well), or binary16. */
static void load(weights_t *w, const context_t *first)
{
    int width = w->kind->bits == 16 ? 2 : 1;
    uint8_t *normal = malloc((size_t)(w->k * w->columns * width));
    CHECK(normal != NULL);
    for (int k = 0; k < w->k; k++)
        for (int n = 0; n < w->columns; n++) {
            int v = value(k, 1000 + w->first + n), at = k * w->columns + n;
            if (width == 2)
                ((uint16_t *)(void *)normal)[at] = half(v);
            else
                normal[at] = (uint8_t)v;
        }
    rknn_matmul_info info = {.M = 1, .K = w->k, .N = w->columns, .type = w->kind->type,
                             .B_layout = RKNN_MM_LAYOUT_NATIVE};
    w->b = rknn_create_mem(first->ctx, first->io.B.size);
    w->owner = first->ctx;
    CHECK(w->b != NULL);
    CALL(rknn_B_normal_layout_to_native_layout(normal, w->b->virt_addr, w->k, w->columns, &info), 0);
    CALL(rknn_mem_sync(first->ctx, w->b, RKNN_MEMORY_SYNC_TO_DEVICE), 0);
    free(normal);
}

static void write_a(const weights_t *w, int m, const context_t *c)
{
    uint8_t *a = c->a->virt_addr;
    for (int i = 0; i < m; i++)
        for (int k = 0; k < w->k; k++) {
            int v = value(i, k), step = w->kind->step;
            int at = w->kind->native ? (k / step * m + i) * step + k % step : i * w->k + k;
            if (w->kind->bits == 16)
                ((uint16_t *)(void *)a)[at] = half(v);
            else if (w->kind->bits == 8)
                a[at] = (uint8_t)v;
            else if (at % 2 == 0)
                a[at / 2] = (uint8_t)(v & 15);
            else
                a[at / 2] |= (uint8_t)((v & 15) << 4);
        }
    CALL(rknn_mem_sync(c->ctx, c->a, RKNN_MEMORY_SYNC_TO_DEVICE), 0);
}

static int64_t element(const weights_t *w, int m, const context_t *c, int i, int n)
{
    if (w->kind->bits == 4)
        return ((const int16_t *)c->c->virt_addr)[(n / 8 * m + i) * 8 + n % 8];
    if (w->kind->bits == 8)
        return ((const int32_t *)c->c->virt_addr)[i * w->columns + n];
    return (int64_t)((const float *)c->c->virt_addr)[i * w->columns + n];
}

static void *run(void *ctx)
{
    CALL(rknn_matmul_run(*(rknn_matmul_ctx *)ctx), 0);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc > 5);
    const kind_t *kind = NULL;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (!strcmp(kinds[i].name, argv[1]))
            kind = &kinds[i];
    CHECK(kind != NULL);
    int cores = atoi(argv[2]), k = atoi(argv[3]), n = atoi(argv[4]), groups = n / kind->group;
    CHECK(cores >= 1 && cores <= MOST && groups >= cores);
    weights_t weights[MOST];
    context_t first[MOST];
    for (int core = 0; core < cores; core++) {
        int from = groups * core / cores * kind->group, to = groups * (core + 1) / cores * kind->group;
        weights[core] = (weights_t){.kind = kind, .k = k, .first = from, .columns = to - from};
        context_of(&weights[core], 1, core, &first[core]);
        load(&weights[core], &first[core]);
    }
    for (int arg = 5; arg < argc; arg++) {
        int m = atoi(argv[arg]);
        context_t made[MOST];
        pthread_t threads[MOST];
        for (int core = 0; core < cores; core++) {
            context_t *c = &made[core];
            context_of(&weights[core], m, core, c);
            write_a(&weights[core], m, c);
            CALL(rknn_matmul_set_io_mem(c->ctx, c->a, &c->io.A), 0);
            CALL(rknn_matmul_set_io_mem(c->ctx, weights[core].b, &c->io.B), 0);
            CALL(rknn_matmul_set_io_mem(c->ctx, c->c, &c->io.C), 0);
        }
        for (int core = 0; core < cores; core++)
            CHECK(!pthread_create(&threads[core], NULL, run, &made[core].ctx));
        for (int core = 0; core < cores; core++) {
            CHECK(!pthread_join(threads[core], NULL));
            CALL(rknn_mem_sync(made[core].ctx, made[core].c, RKNN_MEMORY_SYNC_FROM_DEVICE), 0);
        }
        printf("%d:", m);
        for (int i = 0; i < m; i++) {
            int64_t sum = 0;
            for (int core = 0; core < cores; core++)
                for (int j = 0; j < weights[core].columns; j++)
                    sum += element(&weights[core], m, &made[core], i, j) * (weights[core].first + j + 1);
            printf(" %lld", (long long)sum);
        }
        printf("\n");
        for (int core = 0; core < cores; core++) {
            CALL(rknn_destroy_mem(made[core].ctx, made[core].a), 0);
            CALL(rknn_destroy_mem(made[core].ctx, made[core].c), 0);
            CALL(rknn_matmul_destroy(made[core].ctx), 0);
        }
    }
    for (int core = 0; core < cores; core++) {
        CALL(rknn_destroy_mem(first[core].ctx, weights[core].b), 0);
        CALL(rknn_matmul_destroy(first[core].ctx), 0);
    }
    return 0;
}
