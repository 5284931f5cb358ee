/* Messages with descriptors, connections, and shared memory; rk_socket.h describes the functions. */
#include "rk_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int rk_send_parts(int fd, const void *head, size_t size, const void *rest, size_t more, int passed)
{
    union control control = {.bytes = {0}};
    struct iovec parts[2] = {{(void *)head, size}, {(void *)rest, more}};
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = more ? 2 : 1};
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

ssize_t rk_receive_parts(int fd, void *head, size_t size, void *rest, size_t room, int *came)
{
    union control control;
    struct iovec parts[2] = {{head, size}, {rest, room}};
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = room ? 2 : 1, .msg_control = &control,
                            .msg_controllen = sizeof(control)};
    *came = -1;
    ssize_t got = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
    if (got < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&packet); c; c = CMSG_NXTHDR(&packet, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(came, CMSG_DATA(c), sizeof(int));
    return got;
}

int rk_send(int fd, const void *message, size_t size, int passed)
{
    int result = rk_send_parts(fd, message, size, NULL, 0, passed);
    if (result)
        errno = -result;
    return result ? -1 : 0;
}

int rk_receive(int fd, void *message, size_t size, int *came)
{
    ssize_t got;
    do
        got = rk_receive_parts(fd, message, size, NULL, 0, came);
    while (got == -EINTR);
    return got == (ssize_t)size ? 0 : -1;
}

int rk_connect(const char *path, ino_t *ino, uid_t *owner)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int result;
    do
        result = (int)syscall(SYS_connect, fd, &address, sizeof(address));
    while (result < 0 && errno == EINTR);
    struct ucred server = {.uid = (uid_t)-1};
    socklen_t size = sizeof(server);
    if (result < 0)
        result = -errno;
    else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size))
        result = -EACCES;
    else if (server.uid && server.uid != geteuid())
        result = -EACCES;
    *owner = server.uid;
    if (!result)
        fd = rk_move_up(fd);
    struct stat status;
    if (!result && syscall(SYS_fstat, fd, &status))
        result = -errno;
    if (result) {
        syscall(SYS_close, fd);
        return result;
    }
    *ino = status.st_ino;
    return fd;
}

int rk_is_open(int fd, ino_t ino)
{
    struct stat now;
    return fd >= 0 && !syscall(SYS_fstat, fd, &now) && now.st_ino == ino;
}

int rk_move_up(int fd)
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

int rk_new_memory(const char *name, uint64_t size, uint8_t **memory)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    /* The other process maps the memory, so it must not shrink. */
    if (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        close(fd);
        return -1;
    }
    *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*memory == MAP_FAILED) {
        close(fd);
        return -1;
    }
    return fd;
}
