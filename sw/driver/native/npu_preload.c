/* Calls of a program that can reach the simulated device: open, ioctl, mmap and similar functions.
 *
 * A device's descriptor is a real one (npu_preload.h), so close, dup, fork, exec, poll, select and
 * epoll work without this library. */
#include "npu_preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *npu_real(const char *name, void **kept)
{
    void *found = __atomic_load_n(kept, __ATOMIC_RELAXED);
    if (!found) {
        found = dlsym(RTLD_NEXT, name);
        if (!found) {
            fprintf(stderr, "rkcosim: the C library has no %s\n", name);
            abort();
        }
        __atomic_store_n(kept, found, __ATOMIC_RELAXED);
    }
    return found;
}

/* Result of a call: -1 with errno, or the value. */
static long long finish(long long result)
{
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

/* ---- opening ---------------------------------------------------------------------------------- */

static atomic_int texts_open; /* texts opened for writing: write() checks nothing while there is none */

static int open_at_server(const struct npu_place *place, int flags)
{
    struct npu_message request = {.op = NPU_OPEN, .a = {flags}};
    struct npu_reply reply;
    char path[NPU_PATH];
    snprintf(path, sizeof(path), "%s", place->path);
    if (place->kind == NPU_NODE) {
        snprintf(path, sizeof(path), "%s", npu_node(place->node)->path);
    } else {
        /* The file may have been opened through a link: the server has a single name for it. */
        int fd = (int)syscall(SYS_openat, AT_FDCWD, place->real, O_PATH | O_CLOEXEC, 0);
        char name[40], full[NPU_PATH];
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        long length = fd < 0 ? -1 : syscall(SYS_readlinkat, AT_FDCWD, name, full, sizeof(full) - 1);
        if (fd >= 0)
            syscall(SYS_close, fd);
        size_t root = strlen(npu_root());
        if (length > (long)root && !strncmp(full, npu_root(), root)) {
            full[length] = 0;
            memmove(path, full + root, (size_t)length - root + 1);
        }
    }
    request.size = (uint32_t)strlen(path);
    int error = npu_call(&request, path, -1, &reply);
    if (error || reply.result < 0)
        return error ? error : (int)reply.result;
    if (reply.fd < 0)
        return -EMFILE;
    if (!(flags & O_CLOEXEC))
        syscall(SYS_fcntl, reply.fd, F_SETFD, 0);
    if (place->kind == NPU_FILE && (flags & O_ACCMODE) != O_RDONLY)
        atomic_fetch_add(&texts_open, 1);
    return reply.fd;
}

/* Opens a path of the simulated machine; -1 with errno, or -2 for other paths. */
static int open_simulated(int folder, const char *path, int flags)
{
    struct npu_place place;
    switch (npu_find(folder, path, !(flags & O_NOFOLLOW), &place)) {
    case NPU_HIDDEN:
        return (int)finish(flags & O_CREAT ? -EACCES : -ENOENT);
    case NPU_LINK:
        if (!(flags & O_PATH))
            return (int)finish(-ELOOP);
        break;
    case NPU_FILE:
    case NPU_NODE:
        if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
            return (int)finish(-EEXIST);
        if (flags & O_DIRECTORY)
            return (int)finish(-ENOTDIR);
        if (!(flags & O_PATH))
            return (int)finish(open_at_server(&place, flags));
        break;
    case NPU_FOLDER:
        break;
    default:
        return -2;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, place.real, flags & ~O_CREAT, 0);
}

#define MODE_ARGUMENT(flags, mode)                           \
    do {                                                     \
        if ((flags) & (O_CREAT | __O_TMPFILE)) {             \
            va_list rest;                                    \
            va_start(rest, flags);                           \
            mode = va_arg(rest, mode_t);                     \
            va_end(rest);                                    \
        }                                                    \
    } while (0)

EXPORT int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_ARGUMENT(flags, mode);
    int fd = open_simulated(AT_FDCWD, path, flags);
    return fd != -2 ? fd : REAL(open)(path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_ARGUMENT(flags, mode);
    int fd = open_simulated(AT_FDCWD, path, flags);
    return fd != -2 ? fd : REAL(open64)(path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_ARGUMENT(flags, mode);
    int fd = open_simulated(folder, path, flags);
    return fd != -2 ? fd : REAL(openat)(folder, path, flags, mode);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_ARGUMENT(flags, mode);
    int fd = open_simulated(folder, path, flags);
    return fd != -2 ? fd : REAL(openat64)(folder, path, flags, mode);
}

/* Names used by programs built with _FORTIFY_SOURCE. */
EXPORT int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

EXPORT int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}

EXPORT int __openat_2(int folder, const char *path, int flags)
{
    return openat(folder, path, flags);
}

EXPORT int __openat64_2(int folder, const char *path, int flags)
{
    return openat64(folder, path, flags);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

EXPORT int creat64(const char *path, mode_t mode)
{
    return open64(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

/* fopen of a simulated file; 0 for other files. */
static int fopen_simulated(const char *path, const char *mode, FILE **file)
{
    struct npu_place place;
    if (npu_find(AT_FDCWD, path, 1, &place) == NPU_OUTSIDE)
        return 0;
    int plus = strchr(mode, '+') != NULL;
    int flags = *mode == 'r' ? (plus ? O_RDWR : O_RDONLY) : (plus ? O_RDWR : O_WRONLY) | O_CREAT;
    flags |= (*mode == 'a' ? O_APPEND : 0) | (strchr(mode, 'x') ? O_EXCL : 0);
    flags |= strchr(mode, 'e') ? O_CLOEXEC : 0;
    int fd = open(path, flags, 0);
    *file = fd < 0 ? NULL : fdopen(fd, place.kind == NPU_NODE ? "r" : mode);
    if (fd >= 0 && !*file)
        close(fd);
    return 1;
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
    FILE *file;
    return fopen_simulated(path, mode, &file) ? file : REAL(fopen)(path, mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
    FILE *file;
    return fopen_simulated(path, mode, &file) ? file : REAL(fopen64)(path, mode);
}

/* ---- calls with a descriptor -------------------------------------------------------------------- */

/* Requests that the kernel handles before any driver, and those of terminals: not sent to the server. */
static int is_ours(unsigned long request)
{
    unsigned type = (unsigned)(request >> 8) & 0xff;
    return type != 'T' && type != 'f' && type != 'X';
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    struct stat status;
    request &= 0xffffffffUL;
    if (!npu_active() || !is_ours(request) || !npu_mark(fd, &status))
        return (int)syscall(SYS_ioctl, fd, request, argument);
    struct npu_message message = {.op = NPU_IOCTL,
                                  .a = {0, (int64_t)request, (int64_t)(uintptr_t)argument}};
    struct npu_reply reply;
    /* Input data are sent with the request, so that most calls need no question from the server. */
    if (request >> 30 & 1)
        message.size = (uint32_t)(request >> 16) & 0x3fff;
    int error = npu_call(&message, argument, fd, &reply);
    return (int)finish(error ? error : reply.result);
}

static void *map(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    struct stat status;
    if ((flags & MAP_ANONYMOUS) || fd < 0 || !npu_active() || !npu_mark(fd, &status))
        return (void *)syscall(SYS_mmap, address, length, (long)protection, (long)flags, (long)fd, offset);
    struct npu_message message = {.op = NPU_MMAP,
                                  .a = {0, offset, (int64_t)length, protection, flags}};
    struct npu_reply reply;
    int error = npu_call(&message, NULL, fd, &reply);
    if (error || reply.result < 0) {
        finish(error ? error : reply.result);
        return MAP_FAILED;
    }
    if (reply.fd < 0) {
        finish(-ENFILE);
        return MAP_FAILED;
    }
    void *place = (void *)syscall(SYS_mmap, address, length, (long)protection, (long)flags, (long)reply.fd,
                                  (off_t)reply.extra);
    int saved = errno;
    syscall(SYS_close, reply.fd);
    errno = saved;
    return place;
}

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return map(address, length, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return map(address, length, protection, flags, fd, offset);
}

static int64_t size_at_server(int fd)
{
    struct npu_message message = {.op = NPU_SIZE};
    struct npu_reply reply;
    int error = npu_call(&message, NULL, fd, &reply);
    return error ? error : reply.result;
}

/* Programs query the size of a buffer by seeking to its end. */
EXPORT off_t lseek(int fd, off_t offset, int whence)
{
    off_t result = syscall(SYS_lseek, fd, offset, whence);
    struct stat status;
    if (result >= 0 || errno != ESPIPE || !npu_active())
        return result;
    int mark = npu_mark(fd, &status);
    if (mark == NPU_MARK_DMABUF && offset == 0 && (whence == SEEK_END || whence == SEEK_SET))
        return finish(whence == SEEK_SET ? 0 : size_at_server(fd));
    if (mark == NPU_MARK_DMABUF)
        return finish(-EINVAL);
    if (mark >= NPU_MARK_NODE && mark < NPU_MARK_NODE + NPU_NODES)
        return 0; /* a device has no position */
    errno = ESPIPE;
    return -1;
}

EXPORT off64_t lseek64(int fd, off64_t offset, int whence)
{
    return lseek(fd, offset, whence);
}

EXPORT ssize_t write(int fd, const void *data, size_t size)
{
    struct stat status;
    if (atomic_load_explicit(&texts_open, memory_order_relaxed) && npu_mark(fd, &status) == NPU_MARK_TEXT) {
        struct npu_message message = {.op = NPU_TEXT};
        struct npu_reply reply;
        message.size = size < NPU_CHUNK ? (uint32_t)size : NPU_CHUNK;
        int error = npu_call(&message, data, fd, &reply);
        return (ssize_t)finish(error ? error : reply.result);
    }
    return REAL(write)(fd, data, size);
}
