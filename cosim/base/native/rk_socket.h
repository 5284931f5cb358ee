/* Messages with a descriptor, connections to a server, and shared memory: common to the preload library,
 * librknnrt.so and the libraries of the interfaces.  The preload library stands before functions of the C
 * library, so what it stands before is called as a system call here. */
#ifndef RK_SOCKET_H
#define RK_SOCKET_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Send a message in two parts, of which the second may be empty, with a descriptor unless `passed` is negative;
 * return 0, or a negative error number. */
int rk_send_parts(int fd, const void *head, size_t size, const void *rest, size_t more, int passed);
/* Receive a message in two parts; `*came` becomes its descriptor, or -1.  Return the number of bytes, or a
 * negative error number, also for a signal. */
ssize_t rk_receive_parts(int fd, void *head, size_t size, void *rest, size_t room, int *came);
/* Send a message, with a descriptor unless `passed` is negative; return 0, or -1 with errno. */
int rk_send(int fd, const void *message, size_t size, int passed);
/* Receive a message of exactly `size` bytes; `*came` becomes its descriptor, or -1.  Return 0, or -1. */
int rk_receive(int fd, void *message, size_t size, int *came);
/* Connect to a server of this user or of the superuser, which may read and write this process's memory; `*ino`
 * identifies the connection.  Return its descriptor, or a negative error number: -EACCES for a server of
 * another user, who is `*owner` then. */
int rk_connect(const char *path, ino_t *ino, uid_t *owner);
/* Return whether a descriptor is still the one with this number: the program may have closed it. */
int rk_is_open(int fd, ino_t ino);
/* Use a high number, so that the program's descriptors have the same numbers as without the library. */
int rk_move_up(int fd);
/* Create and map memory that cannot change its size; return its descriptor, or -1. */
int rk_new_memory(const char *name, uint64_t size, uint8_t **memory);

#endif
