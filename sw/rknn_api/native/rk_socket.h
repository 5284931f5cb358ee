/* Messages of a fixed size with a descriptor, and shared memory: common to librknnrt.so and to the plug-ins
 * in apis/link/native. */
#ifndef RK_SOCKET_H
#define RK_SOCKET_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>

/* Send a message, with a descriptor unless `passed` is negative; return 0, or -1 with errno. */
int rk_send(int fd, const void *message, size_t size, int passed);
/* Receive a message of exactly `size` bytes; `*came` becomes its descriptor, or -1.  Return 0, or -1. */
int rk_receive(int fd, void *message, size_t size, int *came);
/* Use a high number, so that the program's descriptors have the same numbers as without the library. */
int rk_move_up(int fd);
/* Create and map memory that cannot change its size; return its descriptor, or -1. */
int rk_new_memory(const char *name, uint64_t size, uint8_t **memory);

#endif
