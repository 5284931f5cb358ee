/* Connections to the server: one for each thread, so that every thread may be inside a call. */
#include "npu_preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

struct link {
    struct link *next, *previous;
    int fd;
    int busy;
    int temporary;
    pid_t pid;
    ino_t ino;
    char data[NPU_CHUNK];
};

static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];
static char root_path[sizeof(socket_path) + 2];
static int told_gone;

static __thread struct link *own;
static pthread_key_t own_key;
static struct link *links;
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;

static void drop(struct link *link)
{
    pthread_mutex_lock(&links_lock);
    if (link->previous)
        link->previous->next = link->next;
    else if (links == link)
        links = link->next;
    if (link->next)
        link->next->previous = link->previous;
    pthread_mutex_unlock(&links_lock);
    struct stat now;
    /* The program may have closed the descriptor, and its number may belong to another file now. */
    if (link->fd >= 0 && !syscall(SYS_fstat, link->fd, &now) && now.st_ino == link->ino)
        syscall(SYS_close, link->fd);
    munmap(link, sizeof(*link));
}

static void thread_ends(void *link)
{
    own = NULL;
    drop(link);
}

static void before_fork(void)
{
    pthread_mutex_lock(&links_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&links_lock);
}

/* The child must not keep its parent's connections open: by their end the server notices the parent's end. */
static void after_fork_in_child(void)
{
    for (struct link *link = links; link; link = link->next) {
        struct stat now;
        if (link->fd >= 0 && !syscall(SYS_fstat, link->fd, &now) && now.st_ino == link->ino)
            syscall(SYS_close, link->fd);
        link->fd = -1;
    }
    links = NULL;
    own = NULL;
    pthread_setspecific(own_key, NULL);
    pthread_mutex_unlock(&links_lock);
}

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("RKCOSIM_SOCKET");
    if (!path || !*path)
        return;
    if (strlen(path) >= sizeof(socket_path)) {
        fprintf(stderr, "rkcosim: RKCOSIM_SOCKET is too long for a socket: %s\n", path);
        return;
    }
    pthread_key_create(&own_key, thread_ends);
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    snprintf(root_path, sizeof(root_path), "%s.d", path);
    strcpy(socket_path, path);
}

int npu_active(void)
{
    return socket_path[0] != 0;
}

const char *npu_root(void)
{
    return root_path;
}

/* `passed`: a descriptor that is part of the message, or -1. */
static int send_packet(int fd, struct npu_message *head, const void *payload, int passed)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec parts[2] = {{head, sizeof(*head)}, {(void *)payload, head->size}};
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = head->size ? 2 : 1};
    if (passed >= 0) {
        packet.msg_control = &control;
        packet.msg_controllen = sizeof(control);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &passed, sizeof(int));
    }
    for (;;) {
        if (syscall(SYS_sendmsg, fd, &packet, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

/* Receives a packet and its descriptor (or -1).  Result: bytes of payload, or an error. */
static int receive_packet(struct link *link, struct npu_message *head, int *fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec parts[2] = {{head, sizeof(*head)}, {link->data, NPU_CHUNK}};
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control,
                            .msg_controllen = sizeof(control)};
    *fd = -1;
    ssize_t got = recvmsg(link->fd, &packet, MSG_CMSG_CLOEXEC);
    if (got < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&packet); c; c = CMSG_NXTHDR(&packet, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(fd, CMSG_DATA(c), sizeof(int));
    if (got < (ssize_t)sizeof(*head) || (size_t)got != sizeof(*head) + head->size) {
        if (*fd >= 0)
            syscall(SYS_close, *fd);
        *fd = -1;
        return -ENODEV;
    }
    return (int)head->size;
}

/* High numbers, so that the program's descriptors have the same numbers as without this library. */
static int move_up(int fd)
{
    static const int places[] = {900, 200, 60};
    for (size_t n = 0; n < sizeof(places) / sizeof(places[0]); n++) {
        int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, places[n]);
        if (high >= 0) {
            syscall(SYS_close, fd);
            return high;
        }
    }
    return fd;
}

/* The server reads and writes this process's memory, so only one of this user or the superuser is used. */
static int link_up(struct link *link)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, socket_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int result;
    do
        result = (int)syscall(SYS_connect, fd, &address, sizeof(address));
    while (result < 0 && errno == EINTR);
    if (result < 0) {
        result = -errno;
        syscall(SYS_close, fd);
        return result;
    }
    struct ucred server = {.uid = (uid_t)-1};
    socklen_t size = sizeof(server);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) || (server.uid && server.uid != geteuid())) {
        syscall(SYS_close, fd);
        if (!__atomic_exchange_n(&told_gone, 1, __ATOMIC_RELAXED))
            fprintf(stderr, "rkcosim: the server at %s belongs to another user (%d) and is not used\n",
                    socket_path, (int)server.uid);
        return -EACCES;
    }
    fd = move_up(fd);
    struct stat status;
    if (syscall(SYS_fstat, fd, &status))
        return -errno;
    link->fd = fd;
    link->ino = status.st_ino;
    link->pid = getpid();
    struct npu_message hello = {.op = NPU_HELLO, .a = {NPU_VERSION, (int64_t)status.st_ino}};
    return send_packet(fd, &hello, NULL, -1);
}

static struct link *new_link(int *error)
{
    struct link *link = mmap(NULL, sizeof(*link), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (link == MAP_FAILED) {
        *error = -ENOMEM;
        return NULL;
    }
    link->fd = -1;
    pthread_mutex_lock(&links_lock);
    link->next = links;
    if (links)
        links->previous = link;
    links = link;
    pthread_mutex_unlock(&links_lock);
    *error = link_up(link);
    if (*error) {
        drop(link);
        return NULL;
    }
    return link;
}

static struct link *take(int *error)
{
    struct link *link = own;
    if (link && link->pid != getpid()) {
        own = link = NULL; /* a child that was created without fork() */
    }
    if (link && !link->busy) {
        struct stat now;
        if (!syscall(SYS_fstat, link->fd, &now) && now.st_ino == link->ino) {
            link->busy = 1;
            return link;
        }
        own = NULL;
        drop(link);
        link = NULL;
    }
    /* Busy: a signal handler runs while this thread is inside a call. */
    int temporary = link != NULL;
    link = new_link(error);
    if (!link)
        return NULL;
    link->busy = 1;
    link->temporary = temporary;
    if (!temporary) {
        own = link;
        pthread_setspecific(own_key, link);
    }
    return link;
}

static void give_back(struct link *link)
{
    if (link->temporary)
        drop(link);
    else
        link->busy = 0;
}

/* Copies to an address from the program, which may be invalid.  0 or -EFAULT. */
static int store(int64_t address, const void *data, size_t size)
{
    struct iovec from = {(void *)data, size}, to = {(void *)(uintptr_t)address, size};
    if (!size)
        return 0;
    ssize_t done = syscall(SYS_process_vm_writev, getpid(), &from, 1UL, &to, 1UL, 0UL);
    if (done == (ssize_t)size)
        return 0;
    if (done >= 0 || errno == EFAULT)
        return -EFAULT;
    /* Not allowed here (a container): a pipe's read() checks the address as well. */
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -EFAULT;
    int result = 0;
    for (size_t at = 0; at < size && !result;) {
        size_t part = size - at < 4096 ? size - at : 4096;
        if (syscall(SYS_write, ends[1], (const char *)data + at, part) != (long)part ||
            syscall(SYS_read, ends[0], (void *)(uintptr_t)(address + (int64_t)at), part) != (long)part)
            result = -EFAULT;
        at += part;
    }
    syscall(SYS_close, ends[0]);
    syscall(SYS_close, ends[1]);
    return result;
}

int npu_mark(int fd, struct stat *status)
{
    if (fd < 0 || syscall(SYS_fstat, fd, status))
        return 0;
    if (!S_ISFIFO(status->st_mode) && !S_ISSOCK(status->st_mode))
        return 0;
    long mark = syscall(SYS_fcntl, fd, F_GETSIG, 0);
    return mark >= NPU_MARK_NODE && mark <= NPU_MARK_TEXT ? (int)mark : 0;
}

/* Answers one question from the server.  Returns 0 or an error of the connection. */
static int answer(struct link *link, const struct npu_message *asked, int fd)
{
    struct npu_message head = {.op = NPU_ANSWER};
    struct stat status;
    int passed = -1;
    switch (asked->op) {
    case NPU_READ: {
        int64_t size = asked->a[1];
        if (size < 0 || size > NPU_CHUNK)
            return -ENODEV;
        head.size = (uint32_t)size;
        int sent = send_packet(link->fd, &head, (const void *)(uintptr_t)asked->a[0], -1);
        if (sent != -EFAULT)
            return sent;
        head.size = 0;
        head.a[0] = -EFAULT;
        break;
    }
    case NPU_STORE:
        head.a[0] = store(asked->a[0], link->data, asked->size);
        break;
    case NPU_INSTALL:
        if (fd >= 0 && !asked->a[0])
            syscall(SYS_fcntl, fd, F_SETFD, 0);
        head.a[0] = fd >= 0 ? fd : -EMFILE;
        break;
    case NPU_LOOKUP:
        if (syscall(SYS_fcntl, (int)asked->a[0], F_GETFD, 0) < 0)
            head.a[0] = -EBADF;
        else if (npu_mark((int)asked->a[0], &status))
            passed = (int)asked->a[0];
        break;
    default:
        return -ENODEV;
    }
    int sent = send_packet(link->fd, &head, NULL, passed);
    if (sent != -EBADF || passed < 0)
        return sent;
    head.a[0] = -EBADF; /* another thread has closed it meanwhile */
    return send_packet(link->fd, &head, NULL, -1);
}

/* A signal arrived while the thread waits: reports it on another connection; the thread continues to wait. */
static void interrupt(const struct link *link)
{
    int error;
    struct npu_message stop = {.op = NPU_INTERRUPT, .a = {(int64_t)link->ino}};
    struct link *beside = new_link(&error);
    if (beside) {
        send_packet(beside->fd, &stop, NULL, -1);
        drop(beside);
    }
}

static int serve(struct link *link, struct npu_reply *reply)
{
    for (;;) {
        struct npu_message head;
        int fd;
        int got = receive_packet(link, &head, &fd);
        if (got == -EINTR) {
            interrupt(link);
            continue;
        }
        if (got < 0)
            return got;
        if (head.op == NPU_DONE) {
            reply->result = head.a[0];
            reply->extra = head.a[1];
            reply->fd = fd;
            if (head.size && store(head.a[2], link->data, head.size) && reply->result >= 0)
                reply->result = -EFAULT;
            return 0;
        }
        got = answer(link, &head, fd);
        if (got)
            return got;
    }
}

int npu_call(struct npu_message *request, const void *payload, int fd, struct npu_reply *reply)
{
    int saved = errno, error = 0;
    struct link *link = take(&error);
    if (link) {
        error = send_packet(link->fd, request, payload, fd);
        if (error == -EFAULT) {
            request->size = 0; /* the server will request it, and get the same error */
            error = send_packet(link->fd, request, NULL, fd);
        }
        if (error == -EBADF && fd >= 0 && syscall(SYS_fcntl, fd, F_GETFD, 0) < 0) {
            give_back(link); /* another thread has closed it meanwhile */
            errno = saved;
            return -EBADF;
        }
        if (!error)
            error = serve(link, reply);
        if (error && !link->temporary) {
            own = NULL;
            pthread_setspecific(own_key, NULL);
            drop(link);
        } else {
            give_back(link);
        }
    }
    if (error == -EMFILE || error == -ENFILE || error == -ENOMEM)
        return error;
    if (error) {
        if (!told_gone) {
            told_gone = 1;
            fprintf(stderr, "rkcosim: no simulated device at %s: %s\n", socket_path, strerror(-error));
        }
        error = -ENODEV;
    }
    errno = saved;
    return error;
}
