/* threads MODEL: a context per thread, one that threads share, one that is destroyed while they use it. */
#include "check.h"
#include <pthread.h>

static const char *model;
static float *wanted[4];
static unsigned count;
static rknn_context shared;

static void *own(void *number)
{
    rknn_context ctx;
    CALL(rknn_init(&ctx, (void *)model, 0, 0, NULL), 0);
    for (unsigned n = 0; n < 6; n++) {
        unsigned seed = (n + (unsigned)(uintptr_t)number) % 4;
        float *result = frame(ctx, seed, &count);
        CHECK(!memcmp(result, wanted[seed], count * 4));
        free(result);
    }
    CALL(rknn_destroy(ctx), 0);
    return NULL;
}

static void *share(void *number)
{
    for (unsigned n = 0; n < 40; n++) {
        rknn_tensor_attr attr = {.index = 0};
        rknn_run_extend extend = {0};
        int code = (uintptr_t)number % 2 ? rknn_run(shared, &extend)
                                         : rknn_query(shared, RKNN_QUERY_INPUT_ATTR, &attr, sizeof(attr));
        CHECK(code == 0 || code == RKNN_ERR_CTX_INVALID);
    }
    return NULL;
}

static void all(void *(*work)(void *), int destroy)
{
    pthread_t threads[4];
    for (uintptr_t n = 0; n < 4; n++)
        CHECK(!pthread_create(&threads[n], NULL, work, (void *)n));
    if (destroy)
        CALL(rknn_destroy(shared), 0);
    for (int n = 0; n < 4; n++)
        CHECK(!pthread_join(threads[n], NULL));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    model = argv[1];
    CALL(rknn_init(&shared, argv[1], 0, 0, NULL), 0);
    for (unsigned n = 0; n < 4; n++)
        wanted[n] = frame(shared, n, &count);
    all(own, 0);
    all(share, 0);
    free(frame(shared, 1, &count));
    all(share, 1);
    CALL(rknn_destroy(shared), RKNN_ERR_CTX_INVALID);
    return 0;
}
