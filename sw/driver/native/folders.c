/* Calls that list folders. */
#include "npu_preload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

EXPORT DIR *opendir(const char *path)
{
    struct npu_place place;
    switch (npu_find(AT_FDCWD, path, 1, &place)) {
    case NPU_OUTSIDE:
        return REAL(opendir)(path);
    case NPU_HIDDEN:
        errno = ENOENT;
        return NULL;
    case NPU_FOLDER:
        return REAL(opendir)(place.real);
    default:
        errno = ENOTDIR;
        return NULL;
    }
}

/* The placeholder of a node is a FIFO: report it as a device. */
static unsigned char type_of(DIR *folder, const char *name, unsigned char type)
{
    struct stat status;
    if (type != DT_FIFO || !npu_active())
        return type;
    int saved = errno;
    int node = syscall(SYS_newfstatat, dirfd(folder), name, &status, AT_SYMLINK_NOFOLLOW) ? -1 : npu_node_of(&status);
    errno = saved;
    return node >= 0 ? DT_CHR : type;
}

EXPORT struct dirent *readdir(DIR *folder)
{
    struct dirent *entry = REAL(readdir)(folder);
    if (entry)
        entry->d_type = type_of(folder, entry->d_name, entry->d_type);
    return entry;
}

EXPORT struct dirent64 *readdir64(DIR *folder)
{
    struct dirent64 *entry = REAL(readdir64)(folder);
    if (entry)
        entry->d_type = type_of(folder, entry->d_name, entry->d_type);
    return entry;
}

/* The path that is passed to the C library's functions that list folders (scandir); NULL with errno. */
static const char *walked(const char *path, struct npu_place *place)
{
    switch (npu_find(AT_FDCWD, path, 1, place)) {
    case NPU_OUTSIDE:
        return path;
    case NPU_HIDDEN:
        errno = ENOENT;
        return NULL;
    default:
        return place->real;
    }
}

EXPORT int scandir(const char *restrict path, struct dirent ***restrict list,
                   int (*chosen)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **))
{
    struct npu_place place;
    path = walked(path, &place);
    return path ? REAL(scandir)(path, list, chosen, compare) : -1;
}

EXPORT int scandir64(const char *restrict path, struct dirent64 ***restrict list,
                     int (*chosen)(const struct dirent64 *),
                     int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
    struct npu_place place;
    path = walked(path, &place);
    return path ? REAL(scandir64)(path, list, chosen, compare) : -1;
}

/* glob reads folders with functions that the caller may provide: those of this library. */
static DIR *glob_open(const char *path)
{
    return opendir(*path ? path : ".");
}

static void glob_close(void *folder)
{
    closedir(folder);
}

static int is_walked(const char *pattern, int flags)
{
    return npu_active() && !(flags & GLOB_ALTDIRFUNC) &&
           (!strncmp(pattern, "/dev/", 5) || !strncmp(pattern, "/sys/", 5) || !strncmp(pattern, "/proc/", 6));
}

EXPORT int glob(const char *restrict pattern, int flags, int (*failed)(const char *, int), glob_t *restrict found)
{
    if (!is_walked(pattern, flags))
        return REAL(glob)(pattern, flags, failed, found);
    found->gl_opendir = (void *(*)(const char *))glob_open;
    found->gl_readdir = (struct dirent * (*)(void *)) readdir;
    found->gl_closedir = glob_close;
    found->gl_stat = stat;
    found->gl_lstat = lstat;
    return REAL(glob)(pattern, flags | GLOB_ALTDIRFUNC, failed, found);
}

EXPORT int glob64(const char *restrict pattern, int flags, int (*failed)(const char *, int),
                  glob64_t *restrict found)
{
    if (!is_walked(pattern, flags))
        return REAL(glob64)(pattern, flags, failed, found);
    found->gl_opendir = (void *(*)(const char *))glob_open;
    found->gl_readdir = (struct dirent64 * (*)(void *)) readdir64;
    found->gl_closedir = glob_close;
    found->gl_stat = stat64;
    found->gl_lstat = lstat64;
    return REAL(glob64)(pattern, flags | GLOB_ALTDIRFUNC, failed, found);
}
