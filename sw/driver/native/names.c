/* Calls with paths: stat and related functions, access, links. */
#include "npu_preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "a 64-bit system has one struct stat");

static int refuse(int error)
{
    errno = error;
    return -1;
}

static void as_node(struct stat *status, int number)
{
    const struct npu_node *node = npu_node(number);
    status->st_mode = S_IFCHR | node->mode;
    status->st_rdev = makedev(node->major, node->minor);
    status->st_size = 0;
}

/* Status of a marked descriptor, from the status of the pipe. */
static void as_marked(int fd, struct stat *status, int mark)
{
    struct stat file;
    int number = mark - NPU_MARK_NODE;
    if (mark == NPU_MARK_DMABUF) {
        struct npu_message message = {.op = NPU_SIZE};
        struct npu_reply reply;
        status->st_size = npu_call(&message, NULL, fd, &reply) || reply.result < 0 ? 0 : reply.result;
        status->st_mode = 0600;
    } else if (mark == NPU_MARK_SYNC) {
        status->st_mode = 0600;
    } else if (mark == NPU_MARK_TEXT) {
        status->st_mode = S_IFREG | 0644;
    } else if (npu_node(number)) {
        char path[NPU_PATH];
        snprintf(path, sizeof(path), "%s%s", npu_root(), npu_node(number)->path);
        if (!syscall(SYS_newfstatat, AT_FDCWD, path, &file, 0))
            *status = file; /* the same device and inode number as by its name */
        as_node(status, number);
    }
}

static int status_of_fd(int fd, struct stat *out)
{
    int result = (int)syscall(SYS_fstat, fd, out);
    if (result || !npu_active() || (!S_ISFIFO(out->st_mode) && !S_ISSOCK(out->st_mode)))
        return result;
    int saved = errno, number;
    struct stat status;
    int mark = npu_mark(fd, &status);
    if (mark)
        as_marked(fd, out, mark);
    else if ((number = npu_node_of(out)) >= 0)
        as_node(out, number); /* opened with O_PATH */
    errno = saved;
    return 0;
}

static int status_at(int folder, const char *path, struct stat *out, int flags)
{
    struct npu_place place;
    if (npu_active() && path && !*path && (flags & AT_EMPTY_PATH) && folder != AT_FDCWD)
        return status_of_fd(folder, out);
    switch (npu_find(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), &place)) {
    case NPU_OUTSIDE:
        return (int)syscall(SYS_newfstatat, folder, path, out, flags);
    case NPU_HIDDEN:
        return refuse(ENOENT);
    case NPU_NODE:
        as_node(&place.status, place.node);
        break;
    default:
        break;
    }
    *out = place.status;
    return 0;
}

EXPORT int stat(const char *path, struct stat *out)
{
    return status_at(AT_FDCWD, path, out, 0);
}

EXPORT int stat64(const char *path, struct stat64 *out)
{
    return status_at(AT_FDCWD, path, (struct stat *)out, 0);
}

EXPORT int lstat(const char *path, struct stat *out)
{
    return status_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

EXPORT int lstat64(const char *path, struct stat64 *out)
{
    return status_at(AT_FDCWD, path, (struct stat *)out, AT_SYMLINK_NOFOLLOW);
}

EXPORT int fstat(int fd, struct stat *out)
{
    return status_of_fd(fd, out);
}

EXPORT int fstat64(int fd, struct stat64 *out)
{
    return status_of_fd(fd, (struct stat *)out);
}

EXPORT int fstatat(int folder, const char *path, struct stat *out, int flags)
{
    return status_at(folder, path, out, flags);
}

EXPORT int fstatat64(int folder, const char *path, struct stat64 *out, int flags)
{
    return status_at(folder, path, (struct stat *)out, flags);
}

/* Names used by programs built with a C library before 2.33; headers do not declare them any more. */
int __xstat(int version, const char *path, struct stat *out);
int __xstat64(int version, const char *path, struct stat *out);
int __lxstat(int version, const char *path, struct stat *out);
int __lxstat64(int version, const char *path, struct stat *out);
int __fxstat(int version, int fd, struct stat *out);
int __fxstat64(int version, int fd, struct stat *out);
int __fxstatat(int version, int folder, const char *path, struct stat *out, int flags);
int __fxstatat64(int version, int folder, const char *path, struct stat *out, int flags);

EXPORT int __xstat(int version, const char *path, struct stat *out)
{
    (void)version;
    return status_at(AT_FDCWD, path, out, 0);
}

EXPORT int __xstat64(int version, const char *path, struct stat *out)
{
    return __xstat(version, path, out);
}

EXPORT int __lxstat(int version, const char *path, struct stat *out)
{
    (void)version;
    return status_at(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

EXPORT int __lxstat64(int version, const char *path, struct stat *out)
{
    return __lxstat(version, path, out);
}

EXPORT int __fxstat(int version, int fd, struct stat *out)
{
    (void)version;
    return status_of_fd(fd, out);
}

EXPORT int __fxstat64(int version, int fd, struct stat *out)
{
    return __fxstat(version, fd, out);
}

EXPORT int __fxstatat(int version, int folder, const char *path, struct stat *out, int flags)
{
    (void)version;
    return status_at(folder, path, out, flags);
}

EXPORT int __fxstatat64(int version, int folder, const char *path, struct stat *out, int flags)
{
    return __fxstatat(version, folder, path, out, flags);
}

static void to_statx(const struct stat *status, struct statx *out)
{
    out->stx_mode = (uint16_t)status->st_mode;
    out->stx_size = (uint64_t)status->st_size;
    out->stx_ino = status->st_ino;
    out->stx_dev_major = major(status->st_dev);
    out->stx_dev_minor = minor(status->st_dev);
    out->stx_rdev_major = major(status->st_rdev);
    out->stx_rdev_minor = minor(status->st_rdev);
}

EXPORT int statx(int folder, const char *path, int flags, unsigned mask, struct statx *out)
{
    struct npu_place place;
    struct stat status;
    if (npu_active() && (flags & AT_EMPTY_PATH) && folder != AT_FDCWD && !*path) {
        int result = (int)syscall(SYS_statx, folder, path, flags, mask, out);
        if (!result && (S_ISFIFO(out->stx_mode) || S_ISSOCK(out->stx_mode)) && !status_of_fd(folder, &status))
            to_statx(&status, out);
        return result;
    }
    switch (npu_find(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), &place)) {
    case NPU_OUTSIDE:
        return (int)syscall(SYS_statx, folder, path, flags, mask, out);
    case NPU_HIDDEN:
        return refuse(ENOENT);
    default:
        break;
    }
    int result = (int)syscall(SYS_statx, AT_FDCWD, place.real, flags, mask, out);
    if (!result && place.kind == NPU_NODE) {
        as_node(&place.status, place.node);
        to_statx(&place.status, out);
    }
    return result;
}

/* 1 if the path is simulated; then `result` is the result of access. */
static int access_simulated(int folder, const char *path, int wanted, int flags, int *result)
{
    struct npu_place place;
    unsigned mode;
    switch (npu_find(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), &place)) {
    case NPU_OUTSIDE:
        return 0;
    case NPU_HIDDEN:
        *result = refuse(ENOENT);
        return 1;
    case NPU_NODE:
        mode = npu_node(place.node)->mode;
        *result = wanted & X_OK && !(mode & 0111) ? refuse(EACCES) : 0;
        return 1;
    default:
        *result = (int)syscall(SYS_faccessat, AT_FDCWD, place.real, wanted);
        return 1;
    }
}

EXPORT int access(const char *path, int wanted)
{
    int result;
    return access_simulated(AT_FDCWD, path, wanted, 0, &result) ? result : REAL(access)(path, wanted);
}

EXPORT int euidaccess(const char *path, int wanted)
{
    int result;
    return access_simulated(AT_FDCWD, path, wanted, 0, &result) ? result : REAL(euidaccess)(path, wanted);
}

EXPORT int eaccess(const char *path, int wanted)
{
    int result;
    return access_simulated(AT_FDCWD, path, wanted, 0, &result) ? result : REAL(eaccess)(path, wanted);
}

EXPORT int faccessat(int folder, const char *path, int wanted, int flags)
{
    int result;
    return access_simulated(folder, path, wanted, flags, &result) ? result
                                                                  : REAL(faccessat)(folder, path, wanted, flags);
}

/* Target of /proc/self/fd/N for a descriptor of the device, as in the kernel; NULL for other descriptors. */
static const char *name_behind(const char *path)
{
    static const char *const places[] = {"/proc/self/fd/", "/dev/fd/", NULL};
    char own[32];
    snprintf(own, sizeof(own), "/proc/%d/fd/", (int)getpid());
    const char *digits = NULL;
    for (int n = 0; places[n]; n++)
        if (!strncmp(path, places[n], strlen(places[n])))
            digits = path + strlen(places[n]);
    if (!digits && !strncmp(path, own, strlen(own)))
        digits = path + strlen(own);
    if (!digits || !*digits || strspn(digits, "0123456789") != strlen(digits))
        return NULL;
    struct stat status;
    int mark = npu_mark(atoi(digits), &status);
    const struct npu_node *node = npu_node(mark - NPU_MARK_NODE);
    if (mark == NPU_MARK_DMABUF)
        return "/dmabuf:";
    if (mark == NPU_MARK_SYNC)
        return "anon_inode:sync_file";
    return mark >= NPU_MARK_NODE && node ? node->path : NULL;
}

static ssize_t link_at(int folder, const char *path, char *out, size_t size)
{
    struct npu_place place;
    const char *name = npu_active() && path ? name_behind(path) : NULL;
    if (name) {
        size_t length = strlen(name) < size ? strlen(name) : size;
        memcpy(out, name, length);
        return (ssize_t)length;
    }
    switch (npu_find(folder, path, 0, &place)) {
    case NPU_OUTSIDE:
        return syscall(SYS_readlinkat, folder, path, out, size);
    case NPU_HIDDEN:
        return refuse(ENOENT);
    default:
        return syscall(SYS_readlinkat, AT_FDCWD, place.real, out, size);
    }
}

EXPORT ssize_t readlink(const char *restrict path, char *restrict out, size_t size)
{
    return link_at(AT_FDCWD, path, out, size);
}

EXPORT ssize_t readlinkat(int folder, const char *restrict path, char *restrict out, size_t size)
{
    return link_at(folder, path, out, size);
}

EXPORT char *realpath(const char *restrict path, char *restrict out)
{
    struct npu_place place;
    switch (npu_find(AT_FDCWD, path, 1, &place)) {
    case NPU_OUTSIDE:
        return REAL(realpath)(path, out);
    case NPU_HIDDEN:
        errno = ENOENT;
        return NULL;
    default:
        break;
    }
    char *full = REAL(realpath)(place.real, NULL);
    if (!full)
        return NULL;
    size_t root = strlen(npu_root());
    const char *name = strncmp(full, npu_root(), root) ? place.path : full + root;
    char *result = out ? strcpy(out, name) : strdup(name);
    free(full);
    return result;
}

EXPORT char *canonicalize_file_name(const char *path)
{
    return realpath(path, NULL);
}

/* Names used by programs built with _FORTIFY_SOURCE; not declared elsewhere. */
ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room);
ssize_t __readlinkat_chk(int folder, const char *path, char *out, size_t size, size_t room);
char *__realpath_chk(const char *path, char *out, size_t room);

EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room)
{
    if (size > room)
        abort();
    return link_at(AT_FDCWD, path, out, size);
}

EXPORT ssize_t __readlinkat_chk(int folder, const char *path, char *out, size_t size, size_t room)
{
    if (size > room)
        abort();
    return link_at(folder, path, out, size);
}

EXPORT char *__realpath_chk(const char *path, char *out, size_t room)
{
    if (out && room < PATH_MAX)
        abort();
    return realpath(path, out);
}

/* `ls -l` reads these attributes; a device node has none. */
EXPORT ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
    struct npu_place place;
    if (npu_find(AT_FDCWD, path, 1, &place) == NPU_OUTSIDE)
        return REAL(getxattr)(path, name, value, size);
    return refuse(place.kind == NPU_HIDDEN ? ENOENT : ENOTSUP);
}

EXPORT ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
    struct npu_place place;
    if (npu_find(AT_FDCWD, path, 0, &place) == NPU_OUTSIDE)
        return REAL(lgetxattr)(path, name, value, size);
    return refuse(place.kind == NPU_HIDDEN ? ENOENT : ENOTSUP);
}
