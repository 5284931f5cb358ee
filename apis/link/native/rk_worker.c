/* The process that simulates for a plug-in; rk_worker.h describes the functions.  The process is a child that
 * has one end of a socket pair as descriptor 3.  It ends when the other end is closed. */
#include "rk_worker.h"
#include "rk_socket.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FIRST_LIMIT 3600000u /* milliseconds of the first call, in which an engine may be built */
#define FIRST_MEMORY (64u << 10)
#define ROUND (1u << 16)
#define MOST_MEMORY ((uint64_t)1 << 34)
#define CHILD_FD 3
#define END_SECONDS 5 /* after its last answer */

extern char **environ;

struct rk_worker {
    struct rk_worker *next;
    pthread_mutex_t lock;
    int owners; /* changed atomically */
    pid_t pid, owner;
    int fd;
    uint8_t *memory;
    uint64_t size, limit;
    int fresh; /* descriptor of memory that the process does not know yet, or -1 */
    char failure[RK_TEXT]; /* why there will be no more answers; empty: it works */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rk_worker *workers;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

__attribute__((format(printf, 2, 3))) static int fail(char *error, const char *form, ...)
{
    va_list rest;
    va_start(rest, form);
    vsnprintf(error, RK_TEXT, form, rest);
    va_end(rest);
    return RK_FAILED;
}

/* -- the process ---------------------------------------------------------------------------------- */

/* Return the environment with another PYTHONPATH, or NULL; the strings are not copied. */
static char **environment(char *path)
{
    size_t count = 0, kept = 0;
    while (environ && environ[count])
        count++;
    char **made = malloc((count + 2) * sizeof(*made));
    if (!made)
        return NULL;
    for (size_t n = 0; n < count; n++)
        if (strncmp(environ[n], "PYTHONPATH=", 11) && strncmp(environ[n], "PYTHONHOME=", 11) &&
            strncmp(environ[n], "LD_PRELOAD=", 11))
            made[kept++] = environ[n];
    made[kept++] = path;
    made[kept] = NULL;
    return made;
}

/* Start the process with `fd` as its descriptor CHILD_FD; return an error number. */
static int spawn(pid_t *pid, int fd)
{
    static char python[] = RK_PYTHON, path[] = "PYTHONPATH=" RK_PATH, module[] = RK_MODULE;
    char *arguments[] = {python, "-P", "-m", module, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    char **variables = environment(path);
    if (!variables)
        return ENOMEM;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, CHILD_FD);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int result = posix_spawn(pid, python, &actions, &attributes, arguments, variables);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(variables);
    return result;
}

/* Wait for the end of the process, kill it after some seconds, and describe the end. */
static void reap(struct rk_worker *w, char *text)
{
    uint64_t last = now() + END_SECONDS * 1000;
    int status = 0;
    pid_t got;
    while (!(got = waitpid(w->pid, &status, WNOHANG)) && now() < last)
        poll(NULL, 0, 5);
    if (!got) {
        kill(w->pid, SIGKILL);
        got = waitpid(w->pid, &status, 0);
    }
    w->pid = -1;
    if (got > 0 && WIFSIGNALED(status))
        fail(text, "the simulator's process has ended: signal %d", WTERMSIG(status));
    else if (got > 0)
        fail(text, "the simulator's process has ended: exit code %d", WEXITSTATUS(status));
    else
        fail(text, "the simulator's process has ended");
}

static void disconnect(struct rk_worker *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

/* -- calls ---------------------------------------------------------------------------------------- */

/* Wait for an answer until `last`; return 0, or -1 with the failure set. */
static int await(struct rk_worker *w, struct rk_message *message, uint64_t last)
{
    int came = -1;
    for (;;) {
        struct pollfd one = {.fd = w->fd, .events = POLLIN};
        uint64_t time = now();
        uint64_t left = last > time ? last - time : 0;
        int ready = poll(&one, 1, left > 1000000 ? 1000000 : (int)left);
        if (ready > 0)
            break;
        if (ready < 0 && errno != EINTR)
            break;
        if (now() >= last) {
            kill(w->pid, SIGKILL);
            disconnect(w);
            char ended[RK_TEXT];
            reap(w, ended);
            fail(w->failure,
                 "the simulator has not answered within %g s and was ended (the option timeout sets this limit)",
                 (double)w->limit / 1000);
            return -1;
        }
    }
    int result = rk_receive(w->fd, message, sizeof(*message), &came);
    if (came >= 0)
        close(came);
    if (!result && message->used <= w->size)
        return 0;
    disconnect(w);
    reap(w, w->failure);
    return -1;
}

int rk_worker_call(struct rk_worker *w, enum rk_call call, uint64_t number, uint64_t used,
                   struct rk_message *message, char *error)
{
    if (w->owner != getpid())
        return fail(error, "this process was forked; the simulator belongs to the parent process");
    if (*w->failure)
        return fail(error, "%s", w->failure);
    *message = (struct rk_message){.call = call, .number = number, .used = used, .size = w->size};
    int result = rk_send(w->fd, message, sizeof(*message), w->fresh);
    if (w->fresh >= 0)
        close(w->fresh);
    w->fresh = -1;
    if (result) {
        disconnect(w);
        reap(w, w->failure);
        return fail(error, "%s", w->failure);
    }
    if (await(w, message, now() + w->limit))
        return fail(error, "%s", w->failure);
    if (message->status == RK_FAILED) {
        size_t length = message->used < RK_TEXT - 1 ? message->used : RK_TEXT - 1;
        memcpy(error, w->memory, length);
        error[length] = 0;
    }
    return (int)message->status;
}

/* Return memory for the requests of a forked process, which are never sent: the shared memory is the parent's,
 * and may have a request of it.  Each thread keeps its own. */
static uint8_t *of_forked(uint64_t size)
{
    static __thread uint8_t *memory;
    static __thread uint64_t room;
    if (size > room || !memory) {
        uint8_t *larger = size <= MOST_MEMORY ? realloc(memory, size + FIRST_MEMORY) : NULL;
        if (!larger)
            return NULL;
        memory = larger;
        room = size + FIRST_MEMORY;
    }
    return memory;
}

uint8_t *rk_worker_begin(struct rk_worker *w, uint64_t size)
{
    if (w->owner != getpid()) /* the lock may have been held by another thread when the process was forked */
        return of_forked(size);
    pthread_mutex_lock(&w->lock);
    if (size <= w->size)
        return w->memory;
    if (size > MOST_MEMORY)
        return NULL;
    uint8_t *memory;
    size = (size + ROUND - 1) & ~(uint64_t)(ROUND - 1);
    int fd = rk_new_memory("rkcosim plug-in", size, &memory);
    if (fd < 0)
        return NULL;
    if (w->memory)
        munmap(w->memory, w->size);
    if (w->fresh >= 0)
        close(w->fresh);
    w->memory = memory;
    w->size = size;
    w->fresh = fd;
    return memory;
}

void rk_worker_end(struct rk_worker *w)
{
    if (w->owner == getpid())
        pthread_mutex_unlock(&w->lock);
}

void rk_worker_limit(struct rk_worker *w, uint64_t milliseconds)
{
    w->limit = milliseconds;
}

/* -- start and end -------------------------------------------------------------------------------- */

static int greet(struct rk_worker *w, uint64_t version, const char *const *options, size_t count, void *answer,
                 size_t room, char *error)
{
    uint64_t used = 0;
    struct rk_message message;
    for (size_t n = 0; n < count; n++)
        used += strlen(options[n]) + 1;
    uint8_t *memory = rk_worker_begin(w, used + FIRST_MEMORY);
    int result = RK_FAILED;
    if (!memory) {
        fail(error, "there is no shared memory for the simulator");
    } else {
        uint8_t *at = memory;
        for (size_t n = 0; n < count; n++)
            at = (uint8_t *)stpcpy((char *)at, options[n]) + 1;
        result = rk_worker_call(w, RK_HELLO, version, used, &message, error);
        if (result == RK_OK && message.used == room)
            memcpy(answer, w->memory, room);
        else if (result == RK_OK)
            result = fail(error, "the simulator is of another version of rkcosim than this library");
    }
    rk_worker_end(w);
    return result;
}

struct rk_worker *rk_worker_start(enum rk_runtime runtime, const char *const *options, size_t count,
                                  void *answer, size_t room, char *error)
{
    int pair[2];
    struct rk_worker *w = calloc(1, sizeof(*w));
    if (!w || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        fail(error, "the simulator cannot be started: %s", strerror(errno));
        free(w);
        return NULL;
    }
    w->fd = rk_move_up(pair[0]);
    int other = rk_move_up(pair[1]); /* not CHILD_FD, which adddup2 would leave closed at the exec */
    pthread_mutex_init(&w->lock, NULL);
    w->owner = getpid();
    w->owners = 1;
    w->fresh = -1;
    w->limit = FIRST_LIMIT;
    int result = spawn(&w->pid, other);
    close(other);
    if (result) {
        fail(error, "%s cannot be started: %s", RK_PYTHON, strerror(result));
        disconnect(w);
        free(w);
        return NULL;
    }
    pthread_mutex_lock(&list_lock);
    w->next = workers;
    workers = w;
    pthread_mutex_unlock(&list_lock);
    uint64_t version = RK_PROTOCOL | (uint64_t)runtime << 32;
    if (greet(w, version, options, count, answer, room, error) != RK_OK) {
        rk_worker_drop(w);
        return NULL;
    }
    return w;
}

void rk_worker_close(struct rk_worker *w)
{
    char error[RK_TEXT];
    struct rk_message message;
    if (w->owner != getpid()) {
        disconnect(w);
        return;
    }
    pthread_mutex_lock(&w->lock);
    if (!*w->failure) {
        if (rk_worker_call(w, RK_CLOSE, 0, 0, &message, error) != RK_OK)
            fprintf(stderr, "rkcosim: %s\n", error);
        disconnect(w);
        if (!*w->failure) {
            reap(w, error);
            fail(w->failure, "the plug-in was destroyed");
        }
    }
    pthread_mutex_unlock(&w->lock);
}

void rk_worker_keep(struct rk_worker *w)
{
    __atomic_fetch_add(&w->owners, 1, __ATOMIC_RELAXED);
}

void rk_worker_drop(struct rk_worker *w)
{
    if (__atomic_sub_fetch(&w->owners, 1, __ATOMIC_ACQ_REL))
        return;
    if (w->owner == getpid()) { /* the list of a forked process may be locked forever */
        pthread_mutex_lock(&list_lock);
        for (struct rk_worker **place = &workers; *place; place = &(*place)->next)
            if (*place == w) {
                *place = w->next;
                break;
            }
        pthread_mutex_unlock(&list_lock);
    }
    rk_worker_close(w);
    if (w->memory)
        munmap(w->memory, w->size);
    if (w->fresh >= 0)
        close(w->fresh);
    free(w);
}

/* When the program ends without destroying its plug-ins, their results are written nevertheless.  A thread
 * that is inside a call keeps the lock; then the process ends by itself after the program. */
__attribute__((destructor)) static void close_all(void)
{
    for (struct rk_worker *w = workers; w; w = w->next)
        if (w->owner == getpid() && !pthread_mutex_trylock(&w->lock)) {
            pthread_mutex_unlock(&w->lock);
            rk_worker_close(w);
        }
}
