/* Declarations of the hand-written parts of librknnrt.so; sw/rknn_api/declarations.py generates rk_table.h and
 * rk_library.c from sw/rknn_api/signatures.py. */
#ifndef RKNNRT_H
#define RKNNRT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rkcosim_rknn.h"
#include "rk_link.h"
#include "rk_table.h"

#define RK_EXPORT __attribute__((visibility("default")))
#define RK_IN 1
#define RK_OUT 2
#define RK_COUNT_ONE (-1)
#define RK_COUNT_TEXT (-2)
#define RK_COUNT_MATRIX (-3)
#define RK_COUNT_UNPACKED (-4)

/* A pointer in a struct: its offset, the offset of the number of elements, the size of an element in bytes. */
struct rk_nested {
    uint16_t at, length_at, unit;
};

/* An argument: direction (RK_IN, RK_OUT), number of elements (an argument or RK_COUNT_*), bytes of one. */
struct rk_argument {
    uint8_t way;
    int8_t count;
    uint32_t size;
    const struct rk_nested *nested;
    uint8_t nested_count;
};

struct rk_function {
    const char *name;
    uint8_t count;
    struct rk_argument arguments[RK_ARGUMENTS];
};

extern const struct rk_function rk_functions[RK_FUNCTIONS];
uint32_t rk_query_size(uint64_t command);
uint32_t rk_operand_bits(int type);

/* Kinds of messages; sw/rknn_api/server/protocol.py describes the contents and effect of each. */
enum rk_op {
    RK_SESSION = 1,
    RK_THREAD = 2,
    RK_ARENA = 3,
    RK_CALL = 4,
    RK_ANSWER = 5,
    RK_DONE = 16,
    RK_CALLBACK = 17,
    RK_GROW = 18
};

struct rk_packet {
    uint32_t op;
    uint32_t number; /* of the function */
    uint64_t used;   /* number of used bytes of the arena */
    int64_t a[RK_ARGUMENTS];
};
_Static_assert(sizeof(struct rk_packet) == 64, "a packet has 64 bytes");

/* Memory that this thread shares with the server, and its connection to the server. */
struct rk_link {
    struct rk_thread_link thread;
    uint8_t *arena;
    uint64_t size, used;
    int depth; /* number of running callbacks, which may make calls */
};

#define RK_ALIGN 64
#define RK_FIRST RK_ALIGN /* offset 0 of the arena stands for a null pointer */

/* A tensor of a board; sw/rknn_api/server/board.py describes the members of both structs. */
struct rk_board_tensor {
    uint32_t usable, given, channels, height, width, step;
    float scale, zero;
    int32_t low, high;
    uint32_t flip, reserved;
    uint64_t at, size, pixel, line, surface;
};

struct rk_board {
    uint32_t sequence, inputs, outputs, reserved;
    struct rk_board_tensor tensors[]; /* of the inputs, then of the outputs */
};
_Static_assert(sizeof(struct rk_board_tensor) == 88 && sizeof(struct rk_board) == 16, "as in board.py");

/* rk_board.c */
int rk_board_inputs(struct rk_board *board, uint64_t size, uint64_t count, const rknn_input *inputs);
int rk_board_outputs(const struct rk_board *board, const uint8_t *pages, uint64_t pages_size, uint64_t count,
                     rknn_output *outputs, void *(*reserve)(size_t));
void *rk_map(int fd, uint64_t size);

/* rk_session.c */
struct rk_link *rk_take(void); /* this thread's connection; NULL, with a message, without a server */
/* Allocate bytes in the arena and return their offset; 0 if that is not possible. */
uint64_t rk_place(struct rk_link *link, uint64_t bytes);
/* Send a request with a descriptor (or -1), and answer the server's requests until the call is done.  The
 * result is in `packet`, its descriptor in `*fd` (or -1).  Return 0, or -1 if the server has ended. */
int rk_exchange(struct rk_link *link, struct rk_packet *packet, int passed, int *fd);
void rk_forget_all(void); /* in rk_call.c: remove the parent's objects in a child process */

/* rk_call.c */
int64_t rk_call(int number, const uint64_t given[RK_ARGUMENTS]);
int64_t rk_callback(struct rk_link *link, const struct rk_packet *packet);
int rk_leave(void); /* before a function of the program runs within a call: it may make calls */
void rk_enter_again(int before);

#endif
