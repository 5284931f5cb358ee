/* signals MODEL: a signal handler that calls rknn_run while the same thread is within rknn_run. */
#include "check.h"

#include <signal.h>
#include <sys/time.h>

static rknn_context context;
static volatile sig_atomic_t within, refused, taken, beside;

static void handler(int number)
{
    (void)number;
    int was_within = within, code = rknn_run(context, NULL);
    if (was_within)
        *(code ? &refused : &taken) += 1;
    else
        beside += 1;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(rknn_init(&context, argv[1], 0, 0, NULL) == RKNN_SUCC);
    unsigned count;
    free(frame(context, 1, &count));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    CHECK(!setitimer(ITIMER_REAL, &often, NULL));
    for (int n = 0; n < 2000 && refused < 5; n++) {
        within = 1;
        int code = rknn_run(context, NULL);
        within = 0;
        CHECK(code == RKNN_SUCC);
    }
    CHECK(!setitimer(ITIMER_REAL, &never, NULL));
    CHECK(refused >= 5);
    CHECK(rknn_run(context, NULL) == RKNN_SUCC);
    CHECK(rknn_destroy(context) == RKNN_SUCC);
    printf("%d refused, %d taken, %d beside\n", (int)refused, (int)taken, (int)beside);
    return 0;
}
