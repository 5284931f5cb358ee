/* Shared parts of the preload library: messages to the server, marked descriptors, simulated paths. */
#ifndef NPU_PRELOAD_H
#define NPU_PRELOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* One message is one packet: this header and up to NPU_CHUNK bytes.  sw/driver/server/protocol.py has
 * the same layout and describes the contents of each message. */
#define NPU_VERSION 2
#define NPU_CHUNK 32768
/* Longer paths are never simulated, so that threads with small stacks can open files. */
#define NPU_PATH 512

enum npu_op {
    NPU_HELLO = 1,
    NPU_OPEN = 2,
    NPU_IOCTL = 3,
    NPU_MMAP = 4,
    NPU_SIZE = 5,
    NPU_TEXT = 6,
    NPU_INTERRUPT = 7,
    NPU_READ = 16,
    NPU_STORE = 17,
    NPU_INSTALL = 18,
    NPU_LOOKUP = 19,
    NPU_DONE = 20,
    NPU_ANSWER = 32
};

struct npu_message {
    uint32_t op;
    uint32_t size;
    int64_t a[5];
};

_Static_assert(sizeof(struct npu_message) == 48, "the header of a message has 48 bytes");

/* Result of a call from the server. */
struct npu_reply {
    int64_t result;
    int64_t extra;
    int fd;
};

/* A descriptor of the device is the read end of a pipe of which the server holds the other end: it can
 * be duplicated, inherited, passed on and polled, and the server sees when the last copy is closed.
 * Its F_GETSIG number is the kind of the object. */
enum npu_mark {
    NPU_MARK_NODE = 40, /* up to NPU_MARK_NODE + NPU_NODES - 1: number of the node */
    NPU_MARK_DMABUF = 60,
    NPU_MARK_SYNC = 61,
    NPU_MARK_TEXT = 62
};
#define NPU_NODES 16

/* The next definition of a function of the C library, looked up once. */
void *npu_real(const char *name, void **kept);
#define REAL(name)                                                         \
    __extension__({                                                        \
        static void *kept_##name;                                          \
        (__typeof__(&name))npu_real(#name, &kept_##name);                  \
    })
#define EXPORT __attribute__((visibility("default")))

/* link.c */
int npu_active(void); /* whether the environment names a server */
const char *npu_root(void); /* folder that holds the simulated files, without a slash at its end */
/* Sends a request together with the descriptor that it refers to (-1: none), which proves that the program may
 * use it, and answers the server's questions until the call is done.  Result: 0, or a negative error number if
 * the server has gone. */
int npu_call(struct npu_message *request, const void *payload, int fd, struct npu_reply *reply);
/* The mark of a descriptor, 0 for other descriptors; `status` receives the result of fstat. */
int npu_mark(int fd, struct stat *status);

/* paths.c */
struct npu_node {
    char path[64];
    unsigned major, minor, mode;
    ino_t ino;
};
enum npu_kind { NPU_OUTSIDE, NPU_HIDDEN, NPU_FOLDER, NPU_FILE, NPU_NODE, NPU_LINK };
struct npu_place {
    enum npu_kind kind;
    int node;
    struct stat status;
    char path[NPU_PATH]; /* absolute, as the program sees it */
    char real[NPU_PATH]; /* its path in the tree of simulated files */
};
/* Destination of a path; `follow`: whether a link at its end is followed. */
enum npu_kind npu_find(int folder, const char *path, int follow, struct npu_place *place);
const struct npu_node *npu_node(int number);
int npu_node_of(const struct stat *status); /* number of a simulated node's file, or -1 */

#endif
