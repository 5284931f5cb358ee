/* processes MODEL: a child made before the first call, one made after it, one that crashes. */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(void (*work)(const char *, rknn_context), const char *model, rknn_context inherited)
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        work(model, inherited);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void fresh(const char *model, rknn_context inherited)
{
    rknn_context ctx;
    unsigned count;
    if (inherited) /* what the parent holds stays the parent's */
        CALL(rknn_run(inherited, NULL), RKNN_ERR_CTX_INVALID);
    CALL(rknn_init(&ctx, (void *)model, 0, 0, NULL), 0);
    CHECK(ctx != inherited);
    free(frame(ctx, 1, &count));
    CALL(rknn_destroy(ctx), 0);
}

static void crash(const char *model, rknn_context inherited)
{
    rknn_context ctx;
    CHECK(inherited);
    CALL(rknn_init(&ctx, (void *)model, 0, 0, NULL), 0);
    CHECK(rknn_create_mem(ctx, 1 << 20) != NULL);
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    rknn_context ctx;
    unsigned count;
    CHECK(argc == 2);
    CHECK(child(fresh, argv[1], 0) == 0);
    CALL(rknn_init(&ctx, argv[1], 0, 0, NULL), 0);
    float *before = frame(ctx, 2, &count);
    CHECK(child(fresh, argv[1], ctx) == 0);
    CHECK(WTERMSIG(child(crash, argv[1], ctx)) == SIGKILL);
    float *after = frame(ctx, 2, &count);
    CHECK(!memcmp(before, after, count * 4));
    CALL(rknn_destroy(ctx), 0);
    return 0;
}
