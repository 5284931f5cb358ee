/* Which paths belong to the simulated machine.
 *
 * The server keeps them as a tree of ordinary files below npu_root(): texts as files, device nodes as
 * FIFOs that nobody opens, and a list of nodes and folders in its file `manifest`. */
#include "npu_preload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOLDERS 64

static struct npu_node nodes[NPU_NODES];
static int node_count;
static dev_t root_device;
static struct folder {
    char path[160];
    int hidden; /* entries of the real machine are not visible */
} folders[FOLDERS];
static int folder_count;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static int status_of(const char *path, int follow, struct stat *status)
{
    int flags = follow ? 0 : AT_SYMLINK_NOFOLLOW;
    return syscall(SYS_newfstatat, AT_FDCWD, path, status, flags) ? -errno : 0;
}

static void load_line(char *line)
{
    struct npu_node node = {.path = ""};
    char path[160];
    struct stat status;
    char full[NPU_PATH];
    if (sscanf(line, "n %u %u %o %63s", &node.major, &node.minor, &node.mode, node.path) == 4) {
        snprintf(full, sizeof(full), "%s%s", npu_root(), node.path);
        if (node_count < NPU_NODES && !status_of(full, 0, &status)) {
            node.ino = status.st_ino;
            root_device = status.st_dev;
            nodes[node_count++] = node;
        }
    } else if ((line[0] == 'd' || line[0] == 'h') && sscanf(line + 1, " %159[^\n]", path) == 1) {
        if (folder_count < FOLDERS) {
            strcpy(folders[folder_count].path, path);
            folders[folder_count++].hidden = line[0] == 'h';
        }
    }
}

static void load(void)
{
    static char text[16384];
    char full[NPU_PATH];
    snprintf(full, sizeof(full), "%s/manifest", npu_root());
    int fd = (int)syscall(SYS_openat, AT_FDCWD, full, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    long got = syscall(SYS_read, fd, text, sizeof(text) - 1);
    syscall(SYS_close, fd);
    char *rest = NULL;
    text[got > 0 ? got : 0] = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        load_line(line);
}

const struct npu_node *npu_node(int number)
{
    pthread_once(&loaded, load);
    return number >= 0 && number < node_count ? &nodes[number] : NULL;
}

int npu_node_of(const struct stat *status)
{
    pthread_once(&loaded, load);
    if (S_ISFIFO(status->st_mode) && status->st_dev == root_device)
        for (int n = 0; n < node_count; n++)
            if (nodes[n].ino == status->st_ino)
                return n;
    return -1;
}

static int starts_with(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return !strncmp(path, folder, n) && (path[n] == 0 || path[n] == '/');
}

/* Joins and tidies up a path: absolute, without empty parts, `.` and `..`.  0 or -1 if it does not fit. */
static int tidy(const char *base, const char *path, char out[NPU_PATH])
{
    size_t used = 0;
    const char *sources[2] = {*path == '/' ? "" : base, path};
    for (int n = 0; n < 2; n++) {
        for (const char *part = sources[n]; *part;) {
            while (*part == '/')
                part++;
            size_t length = strcspn(part, "/");
            if (length == 2 && part[0] == '.' && part[1] == '.') {
                while (used && out[--used] != '/')
                    ;
            } else if (length && !(length == 1 && part[0] == '.')) {
                if (used + length + 2 > NPU_PATH)
                    return -1;
                out[used++] = '/';
                memcpy(out + used, part, length);
                used += length;
            }
            part += length;
        }
    }
    if (!used)
        out[used++] = '/';
    out[used] = 0;
    return 0;
}

/* The folder at which a relative path starts, as the program sees it; 0 or -1. */
static int base_of(int folder, char out[NPU_PATH])
{
    long length;
    if (folder == AT_FDCWD) {
        length = syscall(SYS_getcwd, out, (unsigned long)NPU_PATH) - 1;
    } else {
        char name[40];
        snprintf(name, sizeof(name), "/proc/self/fd/%d", folder);
        length = syscall(SYS_readlinkat, AT_FDCWD, name, out, (unsigned long)(NPU_PATH - 1));
    }
    if (length <= 0 || length >= NPU_PATH - 1 || out[0] != '/')
        return -1;
    out[length] = 0;
    if (starts_with(out, npu_root())) {
        size_t n = strlen(npu_root());
        memmove(out, out + n, (size_t)length - n + 1);
    }
    return 0;
}

static enum npu_kind kind_of(struct npu_place *place)
{
    if (S_ISLNK(place->status.st_mode))
        return NPU_LINK;
    if (S_ISDIR(place->status.st_mode)) {
        struct stat real;
        for (int n = 0; n < folder_count; n++)
            if (!strcmp(place->path, folders[n].path))
                return NPU_FOLDER;
        /* A folder that only contains a path to simulated files: a real folder, if any, has further entries. */
        return status_of(place->path, 1, &real) ? NPU_FOLDER : NPU_OUTSIDE;
    }
    place->node = npu_node_of(&place->status);
    return place->node >= 0 ? NPU_NODE : NPU_FILE;
}

enum npu_kind npu_find(int folder, const char *path, int follow, struct npu_place *place)
{
    char base[NPU_PATH] = "";
    place->kind = NPU_OUTSIDE;
    if (!npu_active() || !path || !*path)
        return NPU_OUTSIDE;
    if (*path != '/' && base_of(folder, base))
        return NPU_OUTSIDE;
    if (*path == '/' && strncmp(path, "/dev", 4) && strncmp(path, "/sys", 4) && strncmp(path, "/proc", 5) &&
        path[1] != '.' && path[1] != '/')
        return NPU_OUTSIDE;
    if (tidy(base, path, place->path))
        return NPU_OUTSIDE;
    if (!starts_with(place->path, "/dev") && !starts_with(place->path, "/sys") &&
        !starts_with(place->path, "/proc"))
        return NPU_OUTSIDE;
    if (snprintf(place->real, NPU_PATH, "%s%s", npu_root(), place->path) >= NPU_PATH)
        return NPU_OUTSIDE;
    pthread_once(&loaded, load);
    int saved = errno;
    if (!status_of(place->real, follow, &place->status)) {
        place->kind = kind_of(place);
    } else {
        for (int n = 0; n < folder_count; n++)
            if (folders[n].hidden && starts_with(place->path, folders[n].path))
                place->kind = NPU_HIDDEN;
    }
    errno = saved;
    return place->kind;
}
