/* Connections to the server: one for the process and one for each thread, so that several threads can be in
 * calls at the same time.  When the connection of the process is closed, the server frees its resources. */
#include "rknnrt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SOCKET_VARIABLE "RKCOSIM_RKNN_SOCKET"
#define START "start the program with `rkcosim rknn -- PROGRAM ARGUMENTS...`"
#define FIRST_ARENA (256u << 10)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int session_fd = -1;
static ino_t session_ino;
static int64_t session;
static int told;

static void say(const char *text)
{
    if (!told)
        fprintf(stderr, "librknnrt: %s\n", text);
    told = 1;
}

static void discard(struct rk_thread_link *link)
{
    struct rk_link *whole = (struct rk_link *)link;
    if (whole->arena)
        munmap(whole->arena, whole->size);
    free(whole);
}

/* The server treats a child as a new process; the resources of its parent belong to the parent alone. */
static void forget_parent(void)
{
    if (rk_is_open(session_fd, session_ino))
        close(session_fd);
    session_fd = -1;
    told = 0;
    rk_forget_all();
}

static void begin(void)
{
    rk_links_begin(discard, forget_parent);
}

static int send_packet(int fd, const struct rk_packet *packet, int passed)
{
    return rk_send(fd, packet, sizeof(*packet), passed);
}

static int receive_packet(int fd, struct rk_packet *packet, int *came)
{
    return rk_receive(fd, packet, sizeof(*packet), came);
}

static int connect_to_server(ino_t *ino)
{
    const char *path = getenv(SOCKET_VARIABLE);
    uid_t owner;
    if (!path || !*path) {
        say("there is no simulator: " START);
        return -1;
    }
    int fd = rk_connect(path, ino, &owner);
    if (fd == -ENAMETOOLONG)
        say(SOCKET_VARIABLE " is too long for a socket");
    else if (fd == -EMFILE || fd == -ENFILE)
        say("the program has no descriptor left for a connection to the simulator");
    else if (fd == -EACCES)
        say("the simulator that " SOCKET_VARIABLE " names belongs to another user and is not used");
    else if (fd < 0)
        say("the simulator that " SOCKET_VARIABLE " names does not answer: " START);
    return fd;
}

/* Open the connection of the process, if it is not open; the caller holds rk_links_lock. */
static int open_session(void)
{
    if (rk_is_open(session_fd, session_ino))
        return 0;
    int fd = connect_to_server(&session_ino), came;
    if (fd < 0)
        return -1;
    struct rk_packet packet = {.op = RK_SESSION, .a = {(int64_t)RK_DIGEST}};
    if (send_packet(fd, &packet, -1) || receive_packet(fd, &packet, &came) || packet.op != RK_DONE) {
        say("the simulator is of another version of rkcosim than this library");
        close(fd);
        return -1;
    }
    session = packet.a[0];
    session_fd = fd;
    return 0;
}

/* Replace the arena by a larger one with the same contents, and notify the server by a message `op`. */
static int enlarge(struct rk_link *link, uint64_t size, enum rk_op op)
{
    uint8_t *arena;
    size = (size + (1u << 20) - 1) & ~(uint64_t)((1u << 20) - 1);
    int fd = rk_new_memory("rknn arena", size, &arena);
    struct rk_packet packet = {.op = op, .a = {(int64_t)session}};
    if (fd < 0) {
        packet.a[0] = -1;
        return op == RK_ANSWER ? send_packet(link->thread.fd, &packet, -1) : -1;
    }
    if (link->arena) {
        memcpy(arena, link->arena, link->used);
        munmap(link->arena, link->size);
    }
    link->arena = arena;
    link->size = size;
    int result = send_packet(link->thread.fd, &packet, fd);
    close(fd);
    return result;
}

static struct rk_link *new_link(void)
{
    struct rk_link *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    link->thread.fd = -1;
    rk_links_add(&link->thread);
    pthread_mutex_lock(&rk_links_lock);
    int result = open_session();
    if (!result) {
        link->thread.fd = connect_to_server(&link->thread.ino);
        result = link->thread.fd < 0 ? -1 : 0;
    }
    pthread_mutex_unlock(&rk_links_lock);
    link->used = RK_FIRST;
    if (!result)
        result = enlarge(link, FIRST_ARENA, RK_THREAD);
    if (result) {
        rk_links_drop(&link->thread);
        return NULL;
    }
    return link;
}

struct rk_link *rk_take(void)
{
    pthread_once(&once, begin);
    struct rk_link *own = (struct rk_link *)rk_own_link();
    if (own && !own->depth && !rk_is_open(own->thread.fd, own->thread.ino)) {
        rk_set_own_link(NULL);
        rk_links_drop(&own->thread);
        own = NULL;
    }
    if (!own) {
        own = new_link();
        rk_set_own_link(own ? &own->thread : NULL);
    }
    return own;
}

uint64_t rk_place(struct rk_link *link, uint64_t bytes)
{
    uint64_t at = (link->used + RK_ALIGN - 1) & ~(uint64_t)(RK_ALIGN - 1);
    if (bytes > (uint64_t)1 << 33)
        return 0;
    if (at + bytes > link->size) {
        /* A running callback has pointers into the arena, so it must not move. */
        if (link->depth || enlarge(link, at + bytes + (at + bytes) / 4, RK_ARENA))
            return 0;
    }
    link->used = at + bytes;
    return at;
}

int rk_exchange(struct rk_link *link, struct rk_packet *packet, int passed, int *fd)
{
    int result = send_packet(link->thread.fd, packet, passed);
    while (!result) {
        result = receive_packet(link->thread.fd, packet, fd);
        if (result || packet->op == RK_DONE)
            break;
        if (packet->op == RK_GROW) {
            result = enlarge(link, (uint64_t)packet->a[0], RK_ANSWER);
        } else if (packet->op == RK_CALLBACK) {
            uint64_t before = link->used;
            link->used = packet->used;
            link->depth++;
            int within = rk_leave();
            struct rk_packet answer = {.op = RK_ANSWER, .a = {rk_callback(link, packet)}};
            rk_enter_again(within);
            link->depth--;
            link->used = before;
            result = send_packet(link->thread.fd, &answer, -1);
        } else {
            result = -1;
        }
    }
    if (result)
        say("the simulator has ended");
    return result;
}
