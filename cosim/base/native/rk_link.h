/* Connections to a server, one for each thread, so that several threads can be in calls at the same time: common
 * to the preload library and librknnrt.so. */
#ifndef RK_LINK_H
#define RK_LINK_H

#include "rk_socket.h"

#include <pthread.h>

/* The first member of a library's own structure for a thread. */
struct rk_thread_link {
    struct rk_thread_link *next, *previous;
    int fd; /* -1: none */
    ino_t ino;
};

/* Protects the list of connections, and whatever else a library protects with it; it is held during fork(), so
 * that the child finds the data consistent. */
extern pthread_mutex_t rk_links_lock;

/* Once for a process, before all others.  `discard` frees the memory of a structure whose connection is closed;
 * `in_child` is called in a child process, with the lock held, when the connections of its parent are closed
 * there: the server notices the end of a process by the end of its connections.  NULL for nothing. */
void rk_links_begin(void (*discard)(struct rk_thread_link *), void (*in_child)(void));
void rk_links_add(struct rk_thread_link *link);
/* Close the connection, if the program has not done so, and discard the structure. */
void rk_links_drop(struct rk_thread_link *link);
/* The calling thread's own connection, NULL for none; it is dropped when the thread ends. */
struct rk_thread_link *rk_own_link(void);
void rk_set_own_link(struct rk_thread_link *link);

#endif
