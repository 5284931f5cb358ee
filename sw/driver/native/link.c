/* Connections to the server: one for each thread, so that every thread may be inside a call. */
#include "npu_preload.h"
#include "rk_link.h"

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
    struct rk_thread_link thread;
    int busy;
    int temporary;
    pid_t pid;
    char data[NPU_CHUNK];
};

static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];
static char root_path[sizeof(socket_path) + 2];
static int told_gone;

static void discard(struct rk_thread_link *link)
{
    munmap(link, sizeof(struct link));
}

static void drop(struct link *link)
{
    rk_links_drop(&link->thread);
}

static void set_own(struct link *link)
{
    rk_set_own_link(link ? &link->thread : NULL);
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
    rk_links_begin(discard, NULL);
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
    return rk_send_parts(fd, head, sizeof(*head), payload, head->size, passed);
}

/* Receives a packet and its descriptor (or -1).  Result: bytes of payload, or an error. */
static int receive_packet(struct link *link, struct npu_message *head, int *fd)
{
    ssize_t got = rk_receive_parts(link->thread.fd, head, sizeof(*head), link->data, NPU_CHUNK, fd);
    if (got < 0)
        return (int)got;
    if (got < (ssize_t)sizeof(*head) || (size_t)got != sizeof(*head) + head->size) {
        if (*fd >= 0)
            syscall(SYS_close, *fd);
        *fd = -1;
        return -ENODEV;
    }
    return (int)head->size;
}

static int link_up(struct link *link)
{
    uid_t owner;
    int fd = rk_connect(socket_path, &link->thread.ino, &owner);
    if (fd == -EACCES && !__atomic_exchange_n(&told_gone, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "rkcosim: the server at %s belongs to another user (%d) and is not used\n", socket_path,
                (int)owner);
    if (fd < 0)
        return fd;
    link->thread.fd = fd;
    link->pid = getpid();
    struct npu_message hello = {.op = NPU_HELLO, .a = {NPU_VERSION, (int64_t)link->thread.ino}};
    return send_packet(fd, &hello, NULL, -1);
}

static struct link *new_link(int *error)
{
    struct link *link = mmap(NULL, sizeof(*link), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (link == MAP_FAILED) {
        *error = -ENOMEM;
        return NULL;
    }
    link->thread.fd = -1;
    rk_links_add(&link->thread);
    *error = link_up(link);
    if (*error) {
        drop(link);
        return NULL;
    }
    return link;
}

static struct link *take(int *error)
{
    struct link *link = (struct link *)rk_own_link();
    if (link && link->pid != getpid()) {
        set_own(NULL); /* a child that was created without fork() */
        link = NULL;
    }
    if (link && !link->busy) {
        if (rk_is_open(link->thread.fd, link->thread.ino)) {
            link->busy = 1;
            return link;
        }
        set_own(NULL);
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
        set_own(link);
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
        int sent = send_packet(link->thread.fd, &head, (const void *)(uintptr_t)asked->a[0], -1);
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
    int sent = send_packet(link->thread.fd, &head, NULL, passed);
    if (sent != -EBADF || passed < 0)
        return sent;
    head.a[0] = -EBADF; /* another thread has closed it meanwhile */
    return send_packet(link->thread.fd, &head, NULL, -1);
}

/* A signal arrived while the thread waits: reports it on another connection; the thread continues to wait. */
static void interrupt(const struct link *link)
{
    int error;
    struct npu_message stop = {.op = NPU_INTERRUPT, .a = {(int64_t)link->thread.ino}};
    struct link *beside = new_link(&error);
    if (beside) {
        send_packet(beside->thread.fd, &stop, NULL, -1);
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
        error = send_packet(link->thread.fd, request, payload, fd);
        if (error == -EFAULT) {
            request->size = 0; /* the server will request it, and get the same error */
            error = send_packet(link->thread.fd, request, NULL, fd);
        }
        if (error == -EBADF && fd >= 0 && syscall(SYS_fcntl, fd, F_GETFD, 0) < 0) {
            give_back(link); /* another thread has closed it meanwhile */
            errno = saved;
            return -EBADF;
        }
        if (!error)
            error = serve(link, reply);
        if (error && !link->temporary) {
            set_own(NULL);
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
