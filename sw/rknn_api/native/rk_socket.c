/* Messages with descriptors, and shared memory; rk_socket.h describes the functions. */
#include "rk_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int rk_send(int fd, const void *message, size_t size, int passed)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {(void *)message, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed >= 0) {
        header.msg_control = &control;
        header.msg_controllen = sizeof(control);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &passed, sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &header, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)size ? 0 : -1;
}

int rk_receive(int fd, void *message, size_t size, int *came)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {message, size};
    ssize_t got;
    *came = -1;
    do {
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                                .msg_controllen = sizeof(control)};
        got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
        if (got > 0)
            for (struct cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                    memcpy(came, CMSG_DATA(c), sizeof(int));
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)size ? 0 : -1;
}

int rk_move_up(int fd)
{
    static const int places[] = {900, 200, 60};
    for (size_t n = 0; n < sizeof(places) / sizeof(places[0]); n++) {
        int high = fcntl(fd, F_DUPFD_CLOEXEC, places[n]);
        if (high >= 0) {
            close(fd);
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
