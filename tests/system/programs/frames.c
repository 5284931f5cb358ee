/* frames MODEL SEED...: a frame for each seed, its output on one line. */
#include "check.h"

int main(int argc, char **argv)
{
    rknn_context ctx = 0;
    CALL(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);
    for (int n = 2; n < argc; n++) {
        unsigned count;
        float *result = frame(ctx, (unsigned)atoi(argv[n]), &count);
        for (unsigned k = 0; k < count; k++)
            printf("%.9g%c", result[k], k + 1 < count ? ' ' : '\n');
        free(result);
    }
    CALL(rknn_destroy(ctx), 0);
    return 0;
}
