/* Connections to the server: one for the process and one for each thread, so that several threads can be in
 * calls at the same time.  When the connection of the process is closed, the server frees its resources. */
#include "rknnrt.h"
#include "rk_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_VARIABLE "RKCOSIM_RKNN_SOCKET"
#define START "start the program with `rkcosim rknn -- PROGRAM ARGUMENTS...`"
#define FIRST_ARENA (256u << 10)

pthread_mutex_t rk_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread struct rk_link *own;
static pthread_key_t own_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rk_link *links;
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

/* Return whether a descriptor is still the one that was opened: the program may have closed it. */
static int is_open(int fd, ino_t ino)
{
    struct stat now;
    return fd >= 0 && !fstat(fd, &now) && now.st_ino == ino;
}

static void drop(struct rk_link *link)
{
    pthread_mutex_lock(&rk_lock);
    if (link->previous)
        link->previous->next = link->next;
    else if (links == link)
        links = link->next;
    if (link->next)
        link->next->previous = link->previous;
    pthread_mutex_unlock(&rk_lock);
    if (is_open(link->fd, link->ino))
        close(link->fd);
    if (link->arena)
        munmap(link->arena, link->size);
    free(link);
}

static void thread_ends(void *link)
{
    own = NULL;
    drop(link);
}

static void before_fork(void)
{
    pthread_mutex_lock(&rk_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&rk_lock);
}

/* The server treats a child as a new process; the resources of its parent belong to the parent alone. */
static void after_fork_in_child(void)
{
    for (struct rk_link *link = links; link; link = link->next)
        if (is_open(link->fd, link->ino))
            close(link->fd);
    if (is_open(session_fd, session_ino))
        close(session_fd);
    links = NULL;
    own = NULL;
    pthread_setspecific(own_key, NULL);
    session_fd = -1;
    told = 0;
    rk_forget_all();
    pthread_mutex_unlock(&rk_lock);
}

static void begin(void)
{
    pthread_key_create(&own_key, thread_ends);
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
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
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || !*path) {
        say("there is no simulator: " START);
        return -1;
    }
    if (strlen(path) >= sizeof(address.sun_path)) {
        say(SOCKET_VARIABLE " is too long for a socket");
        return -1;
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), result;
    if (fd < 0) {
        say("the program has no descriptor left for a connection to the simulator");
        return -1;
    }
    do
        result = connect(fd, (struct sockaddr *)&address, sizeof(address));
    while (result < 0 && errno == EINTR);
    if (result < 0) {
        say("the simulator that " SOCKET_VARIABLE " names does not answer: " START);
        close(fd);
        return -1;
    }
    struct ucred server = {.uid = (uid_t)-1};
    socklen_t size = sizeof(server);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) || (server.uid && server.uid != geteuid())) {
        say("the simulator that " SOCKET_VARIABLE " names belongs to another user and is not used");
        close(fd);
        return -1;
    }
    fd = rk_move_up(fd);
    struct stat status;
    if (fstat(fd, &status)) {
        close(fd);
        return -1;
    }
    *ino = status.st_ino;
    return fd;
}

/* Open the connection of the process, if it is not open; the caller holds rk_lock. */
static int open_session(void)
{
    if (is_open(session_fd, session_ino))
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
        return op == RK_ANSWER ? send_packet(link->fd, &packet, -1) : -1;
    }
    if (link->arena) {
        memcpy(arena, link->arena, link->used);
        munmap(link->arena, link->size);
    }
    link->arena = arena;
    link->size = size;
    int result = send_packet(link->fd, &packet, fd);
    close(fd);
    return result;
}

static struct rk_link *new_link(void)
{
    struct rk_link *link = calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    link->fd = -1;
    pthread_mutex_lock(&rk_lock);
    int result = open_session();
    if (!result) {
        link->fd = connect_to_server(&link->ino);
        result = link->fd < 0 ? -1 : 0;
    }
    link->next = links;
    if (links)
        links->previous = link;
    links = link;
    pthread_mutex_unlock(&rk_lock);
    link->used = RK_FIRST;
    if (!result)
        result = enlarge(link, FIRST_ARENA, RK_THREAD);
    if (result) {
        drop(link);
        return NULL;
    }
    return link;
}

struct rk_link *rk_take(void)
{
    pthread_once(&once, begin);
    if (own && !own->depth && !is_open(own->fd, own->ino)) {
        drop(own);
        own = NULL;
    }
    if (!own) {
        own = new_link();
        pthread_setspecific(own_key, own);
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
    int result = send_packet(link->fd, packet, passed);
    while (!result) {
        result = receive_packet(link->fd, packet, fd);
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
            result = send_packet(link->fd, &answer, -1);
        } else {
            result = -1;
        }
    }
    if (result)
        say("the simulator has ended");
    return result;
}
