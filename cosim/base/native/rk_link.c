/* Connections of threads; rk_link.h describes the functions. */
#include "rk_link.h"

#include <sys/syscall.h>
#include <unistd.h>

pthread_mutex_t rk_links_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread struct rk_thread_link *own;
static pthread_key_t own_key;
static struct rk_thread_link *links;
static void (*discard_link)(struct rk_thread_link *);
static void (*clear_child)(void);

static void close_link(struct rk_thread_link *link)
{
    /* The program may have closed the descriptor, and its number may belong to another file now. */
    if (rk_is_open(link->fd, link->ino))
        syscall(SYS_close, link->fd);
    link->fd = -1;
}

void rk_links_add(struct rk_thread_link *link)
{
    pthread_mutex_lock(&rk_links_lock);
    link->previous = NULL;
    link->next = links;
    if (links)
        links->previous = link;
    links = link;
    pthread_mutex_unlock(&rk_links_lock);
}

void rk_links_drop(struct rk_thread_link *link)
{
    pthread_mutex_lock(&rk_links_lock);
    if (link->previous)
        link->previous->next = link->next;
    else if (links == link)
        links = link->next;
    if (link->next)
        link->next->previous = link->previous;
    pthread_mutex_unlock(&rk_links_lock);
    close_link(link);
    discard_link(link);
}

struct rk_thread_link *rk_own_link(void)
{
    return own;
}

void rk_set_own_link(struct rk_thread_link *link)
{
    own = link;
    pthread_setspecific(own_key, link);
}

static void thread_ends(void *link)
{
    own = NULL;
    rk_links_drop(link);
}

static void before_fork(void)
{
    pthread_mutex_lock(&rk_links_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&rk_links_lock);
}

static void after_fork_in_child(void)
{
    for (struct rk_thread_link *link = links; link; link = link->next)
        close_link(link);
    links = NULL;
    own = NULL;
    pthread_setspecific(own_key, NULL);
    if (clear_child)
        clear_child();
    pthread_mutex_unlock(&rk_links_lock);
}

void rk_links_begin(void (*discard)(struct rk_thread_link *), void (*in_child)(void))
{
    discard_link = discard;
    clear_child = in_child;
    pthread_key_create(&own_key, thread_ends);
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
