/* Execution of a call: copy its arguments into the arena, let the server execute it, copy the results back.
 * Other objects that a function returns (memory, buffers of outputs, texts) are kept here, in the process of
 * the program. */
#include "rknnrt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOST_STRUCTS 65536

struct memory {
    rknn_tensor_mem shown; /* first member: the program uses its address */
    struct memory *next;
    rknn_context owner;
    void *mapping;
    size_t mapped;
    uint8_t *pages; /* the device's bytes, if the program's bytes are in other memory */
};

struct context {
    struct context *next;
    rknn_context handle;
    uint32_t inputs, outputs;
    char *perf_text;
    void *weights;
    size_t weights_size;
    struct rk_board *board; /* memory for conversions in this process; boards_lock protects both */
    uint8_t *pages;
    size_t board_size, pages_size;
};

struct kept { /* a buffer that the library allocated */
    struct kept *next;
    void *data;
};

struct instance { /* a node with a custom operator */
    rknn_custom_op_context shown;
    struct instance *next;
    struct kept *attributes;
};

static struct memory *memories;
static struct context *contexts;
/* Held for reading while a board is in use; taken before rk_links_lock. */
static pthread_rwlock_t boards_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct kept *output_buffers;
static struct instance *instances;

/* Whether this thread is within a call, and not in a function of the program that the call has called: then a
 * signal handler makes the call, and the connection and the locks are in use below it. */
static __thread volatile sig_atomic_t within;

void rk_forget_all(void)
{
    memories = NULL;
    contexts = NULL;
    output_buffers = NULL;
    instances = NULL;
    within = 0;
    boards_lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER; /* a thread that held it is gone */
}

static int gives_memory(int number)
{
    switch (number) {
    case RK_rknn_create_mem:
    case RK_rknn_create_mem2:
    case RK_rknn_create_mem_from_fd:
    case RK_rknn_create_mem_from_phys:
    case RK_rknn_create_mem_from_mb_blk:
        return 1;
    default:
        return 0;
    }
}

static int64_t failure(int number, int code)
{
    return gives_memory(number) ? 0 : code;
}

/* -- contexts ------------------------------------------------------------------------------------- */

static struct context *find_context(rknn_context handle)
{
    for (struct context *c = contexts; c; c = c->next)
        if (c->handle == handle)
            return c;
    return NULL;
}

static void add_context(rknn_context handle, int64_t inputs, int64_t outputs)
{
    struct context *made = calloc(1, sizeof(*made));
    if (!made)
        return;
    made->handle = handle;
    made->inputs = (uint32_t)inputs;
    made->outputs = (uint32_t)outputs;
    pthread_mutex_lock(&rk_links_lock);
    made->next = contexts;
    contexts = made;
    pthread_mutex_unlock(&rk_links_lock);
}

static void unmap(void *memory, size_t size)
{
    if (memory)
        munmap(memory, size);
}

static void remove_context(rknn_context handle)
{
    pthread_rwlock_wrlock(&boards_lock);
    pthread_mutex_lock(&rk_links_lock);
    struct context **place = &contexts, *gone = NULL;
    for (; *place; place = &(*place)->next)
        if ((*place)->handle == handle) {
            gone = *place;
            *place = gone->next;
            break;
        }
    for (struct memory *m = memories; m; m = m->next)
        if (m->owner == handle && m->mapping) {
            munmap(m->mapping, m->mapped); /* the device's side is gone; destroy_mem frees the rest */
            m->mapping = NULL;
            m->pages = NULL;
        }
    pthread_mutex_unlock(&rk_links_lock);
    pthread_rwlock_unlock(&boards_lock);
    if (!gone)
        return;
    unmap(gone->weights, gone->weights_size);
    unmap(gone->board, gone->board_size);
    unmap(gone->pages, gone->pages_size);
    free(gone->perf_text);
    free(gone);
}

/* Return the number of structs that the server will read: a program may give a larger number than exist. */
static uint32_t known_count(int number, rknn_context handle)
{
    pthread_mutex_lock(&rk_links_lock);
    struct context *c = find_context(handle);
    uint32_t inputs = c ? c->inputs : 0, outputs = c ? c->outputs : 0;
    pthread_mutex_unlock(&rk_links_lock);
    return number == RK_rknn_inputs_set || number == RK_rknn_set_input_shapes ? inputs : outputs;
}

/* Keep the board or the pages of the outputs that an answer brought. */
static void adopt(int number, rknn_context handle, uint64_t size, int fd)
{
    void *memory = rk_map(fd, size);
    pthread_rwlock_wrlock(&boards_lock);
    pthread_mutex_lock(&rk_links_lock);
    struct context *c = find_context(handle);
    pthread_mutex_unlock(&rk_links_lock);
    if (!c) {
        unmap(memory, size);
    } else if (number == RK_rknn_inputs_set) {
        unmap(c->board, c->board_size);
        c->board = memory;
        c->board_size = size;
    } else {
        unmap(c->pages, c->pages_size);
        c->pages = memory;
        c->pages_size = size;
    }
    pthread_rwlock_unlock(&boards_lock);
}

/* -- memory ---------------------------------------------------------------------------------------- */

/* Print a line as the library of the vendor does for an error. */
static void say_error(const char *form, ...)
{
    struct timespec now;
    struct tm parts;
    va_list rest;
    char line[256];
    va_start(rest, form);
    vsnprintf(line, sizeof(line), form, rest);
    va_end(rest);
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    fprintf(stderr, "E RKNN: [%02d:%02d:%02d.%03ld] %s\n", parts.tm_hour, parts.tm_min, parts.tm_sec,
            now.tv_nsec / 1000000, line);
}

/* Whether the device's memory is in this process: the struct shows its address and, for memory of the
 * library, its descriptor.  Otherwise say why not. */
static int is_usable(int number, const rknn_tensor_mem *shown, const void *mapping, const void *own, int fd)
{
    if (fd < 0 && number != RK_rknn_create_mem_from_fd) {
        /* The kernel has left the descriptor out of the message. */
        say_error("failed to convert handle(%llu) to fd, ret: -1, errno: %d, errstr: %s",
                  (unsigned long long)(uintptr_t)shown->priv_data, EMFILE, strerror(EMFILE));
        return 0;
    }
    if (!mapping && !own) {
        say_error("failed to map %u bytes of memory, errno: %d, errstr: %s", shown->size, errno, strerror(errno));
        return 0;
    }
    return 1;
}

static int64_t add_memory(int number, const uint64_t *given, const rknn_tensor_mem *shown,
                          const struct rk_packet *reply, int fd)
{
    struct memory *m = calloc(1, sizeof(*m));
    uint8_t *own = NULL;
    int own_fd = -1;
    if (!m) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    m->shown = *shown;
    m->owner = given[0];
    m->mapped = (size_t)reply->a[1];
    if (number == RK_rknn_create_mem_from_fd) {
        own_fd = (int)given[1];
        own = (uint8_t *)(uintptr_t)given[2];
    } else if (number == RK_rknn_create_mem_from_phys) {
        own = (uint8_t *)(uintptr_t)given[2];
    }
    int from = fd >= 0 ? fd : own_fd;
    if (from >= 0 && !(own && fd < 0)) {
        m->mapping = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0);
        if (m->mapping == MAP_FAILED)
            m->mapping = NULL;
    }
    if (!is_usable(number, shown, m->mapping, reply->a[2] ? NULL : own, fd)) {
        if (m->mapping)
            munmap(m->mapping, m->mapped);
        free(m);
        if (fd >= 0)
            close(fd);
        return 0;
    }
    uint8_t *pages = m->mapping ? (uint8_t *)m->mapping + shown->offset : NULL;
    m->shown.virt_addr = pages;
    if (own && number == RK_rknn_create_mem_from_fd)
        m->shown.virt_addr = own + shown->offset;
    else if (own)
        m->shown.virt_addr = own;
    if (reply->a[2])
        m->pages = pages;
    if (number == RK_rknn_create_mem || number == RK_rknn_create_mem2) {
        m->shown.fd = fd;
    } else {
        m->shown.fd = own_fd;
        if (fd >= 0)
            close(fd);
    }
    pthread_mutex_lock(&rk_links_lock);
    m->next = memories;
    memories = m;
    pthread_mutex_unlock(&rk_links_lock);
    return (int64_t)(uintptr_t)&m->shown;
}

/* Remove the memory that a struct, or a copy of one, refers to. */
static void remove_memory(const rknn_tensor_mem *mem, int64_t code)
{
    pthread_mutex_lock(&rk_links_lock);
    struct memory **place = &memories, *gone = NULL;
    for (; *place; place = &(*place)->next)
        if (&(*place)->shown == mem || (*place)->shown.priv_data == mem->priv_data) {
            /* After the end of its context the server does not know it and returns an error. */
            if (!code || !(*place)->mapping) {
                gone = *place;
                *place = gone->next;
            }
            break;
        }
    pthread_mutex_unlock(&rk_links_lock);
    if (!gone)
        return;
    if (gone->mapping)
        munmap(gone->mapping, gone->mapped);
    if (gone->shown.flags == RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE && gone->shown.fd >= 0)
        close(gone->shown.fd);
    free(gone);
}

/* Copy the program's bytes to the device, or back, if they are in separate memory (memory from an address). */
static void copy_own(rknn_context owner, int to_device)
{
    pthread_mutex_lock(&rk_links_lock);
    for (struct memory *m = memories; m; m = m->next)
        if (m->pages && (m->owner == owner || !owner)) {
            if (to_device)
                memcpy(m->pages, m->shown.virt_addr, m->shown.size);
            else
                memcpy(m->shown.virt_addr, m->pages, m->shown.size);
        }
    pthread_mutex_unlock(&rk_links_lock);
}

static void before_device(int number, const uint64_t *given)
{
    switch (number) {
    case RK_rknn_mem_sync:
        if (given[2] & RKNN_MEMORY_SYNC_TO_DEVICE)
            copy_own(given[0], 1);
        break;
    case RK_rknn_run:
    case RK_rknn_matmul_run:
    case RK_rknn_matmul_set_io_mem:
        copy_own(given[0], 1);
    }
}

static void after_device(int number, const uint64_t *given)
{
    switch (number) {
    case RK_rknn_mem_sync:
        if (given[2] == RKNN_MEMORY_SYNC_FROM_DEVICE)
            copy_own(given[0], 0);
        break;
    case RK_rknn_run:
    case RK_rknn_wait:
    case RK_rknn_matmul_run:
        copy_own(given[0], 0);
    }
}

/* -- buffers of outputs, texts, attributes ------------------------------------------------------------ */

static void *reserve(struct kept **list, size_t size)
{
    struct kept *made = malloc(sizeof(*made));
    void *copy = malloc(size ? size : 1);
    if (!made || !copy) {
        free(made);
        free(copy);
        return NULL;
    }
    made->data = copy;
    pthread_mutex_lock(&rk_links_lock);
    made->next = *list;
    *list = made;
    pthread_mutex_unlock(&rk_links_lock);
    return copy;
}

static void *keep(struct kept **list, const void *data, size_t size)
{
    void *copy = reserve(list, size);
    if (copy)
        memcpy(copy, data, size);
    return copy;
}

static void *reserve_output(size_t size)
{
    return reserve(&output_buffers, size);
}

static int release(void *data)
{
    pthread_mutex_lock(&rk_links_lock);
    struct kept **place = &output_buffers, *gone = NULL;
    for (; *place; place = &(*place)->next)
        if ((*place)->data == data) {
            gone = *place;
            *place = gone->next;
            break;
        }
    pthread_mutex_unlock(&rk_links_lock);
    if (gone)
        free(gone->data);
    free(gone);
    return gone != NULL;
}

static int64_t take_outputs(const struct rk_link *link, uint64_t at, rknn_output *outputs, uint64_t count)
{
    for (uint64_t n = 0; n < count; n++) {
        const rknn_output *came = (const rknn_output *)(link->arena + at) + n;
        uint64_t from = (uint64_t)(uintptr_t)came->buf;
        if (from > link->size || came->size > link->size - from)
            return RKNN_ERR_FAIL;
        if (outputs[n].is_prealloc) {
            uint32_t size = came->size < outputs[n].size ? came->size : outputs[n].size;
            memcpy(outputs[n].buf, link->arena + from, size);
            continue;
        }
        outputs[n].buf = keep(&output_buffers, link->arena + from, came->size);
        if (!outputs[n].buf)
            return RKNN_ERR_MALLOC_FAIL;
        outputs[n].size = came->size;
    }
    return RKNN_SUCC;
}

static void take_query(const struct rk_link *link, const uint64_t *given, const struct rk_packet *reply, int fd)
{
    pthread_mutex_lock(&rk_links_lock);
    struct context *c = find_context(given[0]);
    if (given[1] == RKNN_QUERY_PERF_DETAIL) {
        rknn_perf_detail *detail = (rknn_perf_detail *)(uintptr_t)given[2];
        detail->perf_data = NULL;
        if (c && reply->a[1]) {
            free(c->perf_text); /* valid until the next query of it */
            c->perf_text = malloc((size_t)reply->a[2] + 1);
            if (c->perf_text) {
                memcpy(c->perf_text, link->arena + reply->a[1], (size_t)reply->a[2]);
                c->perf_text[reply->a[2]] = 0;
            }
            detail->perf_data = c->perf_text;
        }
    } else if (given[1] == RKNN_QUERY_DEVICE_MEM_INFO) {
        rknn_tensor_mem *mem = (rknn_tensor_mem *)(uintptr_t)given[2];
        if (c && !c->weights && fd >= 0) {
            c->weights_size = (size_t)reply->a[1];
            c->weights = mmap(NULL, c->weights_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (c->weights == MAP_FAILED)
                c->weights = NULL;
        }
        mem->virt_addr = c ? c->weights : NULL;
    }
    pthread_mutex_unlock(&rk_links_lock);
    if (fd >= 0)
        close(fd);
}

/* -- custom operators ---------------------------------------------------------------------------------- */

static struct instance *instance_of(uint64_t number, int make)
{
    pthread_mutex_lock(&rk_links_lock);
    struct instance *found = instances;
    while (found && found->shown.internal_ctx != number)
        found = found->next;
    if (!found && make) {
        found = calloc(1, sizeof(*found));
        if (found) {
            found->shown.target = RKNN_TARGET_TYPE_CPU;
            found->shown.internal_ctx = number;
            found->next = instances;
            instances = found;
        }
    }
    pthread_mutex_unlock(&rk_links_lock);
    return found;
}

static void remove_instance(struct instance *gone)
{
    pthread_mutex_lock(&rk_links_lock);
    for (struct instance **place = &instances; *place; place = &(*place)->next)
        if (*place == gone) {
            *place = gone->next;
            break;
        }
    pthread_mutex_unlock(&rk_links_lock);
    for (struct kept *k = gone->attributes, *next; k; k = next) {
        next = k->next;
        free(k->data);
        free(k);
    }
    free(gone);
}

/* Call a function of the program for the server: a = function, node, inputs and outputs (each the offset of
 * rknn_custom_op_tensor[] and a number); `number` is 1 for destroy, which only takes the context. */
int64_t rk_callback(struct rk_link *link, const struct rk_packet *packet)
{
    struct instance *instance = instance_of((uint64_t)packet->a[1], 1);
    if (!instance)
        return RKNN_ERR_MALLOC_FAIL;
    if (packet->number == 1) {
        int (*destroy)(rknn_custom_op_context *) = (void *)(uintptr_t)packet->a[0];
        int64_t result = destroy ? destroy(&instance->shown) : 0;
        remove_instance(instance);
        return result;
    }
    int (*function)(rknn_custom_op_context *, rknn_custom_op_tensor *, uint32_t, rknn_custom_op_tensor *,
                    uint32_t) = (void *)(uintptr_t)packet->a[0];
    rknn_custom_op_tensor *tensors[2];
    for (int side = 0; side < 2; side++) {
        tensors[side] = (rknn_custom_op_tensor *)(link->arena + packet->a[2 + 2 * side]);
        for (int64_t n = 0; n < packet->a[3 + 2 * side]; n++)
            tensors[side][n].mem.virt_addr = link->arena + (uintptr_t)tensors[side][n].mem.virt_addr;
    }
    return function(&instance->shown, tensors[0], (uint32_t)packet->a[3], tensors[1], (uint32_t)packet->a[5]);
}

static void take_attribute(const struct rk_link *link, const uint64_t *given, const struct rk_packet *reply)
{
    rknn_custom_op_attr *attr = (rknn_custom_op_attr *)(uintptr_t)given[2];
    const rknn_custom_op_context *context = (const rknn_custom_op_context *)(uintptr_t)given[0];
    struct instance *instance = context ? instance_of(context->internal_ctx, 0) : NULL;
    if (!attr)
        return;
    attr->data = NULL;
    if (instance && reply->a[1])
        attr->data = keep(&instance->attributes, link->arena + reply->a[1], (size_t)reply->a[2]);
    if (!attr->data)
        attr->n_elems = 0;
}

/* -- any call ------------------------------------------------------------------------------------------- */

/* Return the size in bytes of a pointer's target; 0 for a target that the server does not read. */
static uint64_t target_size(int number, int place, const uint64_t *given)
{
    const struct rk_argument *argument = &rk_functions[number].arguments[place];
    if (!argument->way || !given[place])
        return 0;
    switch (argument->count) {
    case RK_COUNT_ONE:
        return argument->size;
    case RK_COUNT_TEXT:
        return strlen((const char *)(uintptr_t)given[place]) + 1;
    case RK_COUNT_MATRIX:
    case RK_COUNT_UNPACKED: {
        const rknn_matmul_info *info = (const rknn_matmul_info *)(uintptr_t)given[4];
        int32_t rows = (int32_t)given[2], columns = (int32_t)given[3];
        if (!info || rows <= 0 || columns <= 0)
            return 0;
        uint32_t bits = rk_operand_bits((int)info->type);
        if (argument->count == RK_COUNT_UNPACKED && bits && bits < 8)
            bits = 8;
        return (uint64_t)rows * (uint64_t)columns * bits / 8;
    }
    }
    uint64_t count = given[(int)argument->count];
    if (number == RK_rknn_init)
        return count ? count : strlen((const char *)(uintptr_t)given[place]) + 1;
    if (number == RK_rknn_query) {
        uint64_t needed = rk_query_size(given[1]);
        return needed && (uint32_t)count >= needed ? needed : 1;
    }
    if (number == RK_rknn_inputs_set || number == RK_rknn_outputs_get || number == RK_rknn_outputs_release ||
        number == RK_rknn_set_input_shapes)
        if (count > known_count(number, given[0]))
            return 0;
    return count <= MOST_STRUCTS ? count * argument->size : 0;
}

static uint64_t nested_size(const struct rk_nested *nested, const uint8_t *item, int number)
{
    uint64_t pointer;
    uint32_t length;
    memcpy(&pointer, item + nested->at, sizeof(pointer));
    memcpy(&length, item + nested->length_at, sizeof(length));
    if (number == RK_rknn_outputs_release || number == RK_rknn_matmul_get_quant_params || !pointer || (nested->unit > 1 && length > MOST_STRUCTS * 16))
        return 0;
    if (number == RK_rknn_outputs_get && !((const rknn_output *)item)->is_prealloc)
        return 0;
    return (uint64_t)length * nested->unit;
}

/* Copy the targets of the pointers in some structs into the arena, and replace the pointers by offsets. */
static int place_nested(struct rk_link *link, int number, const struct rk_argument *argument, uint64_t at,
                        const uint8_t *items, uint64_t size)
{
    for (uint64_t first = 0; first < size; first += argument->size)
        for (int n = 0; n < argument->nested_count; n++) {
            const struct rk_nested *nested = &argument->nested[n];
            uint64_t bytes = nested_size(nested, items + first, number), place = 0;
            if (bytes) {
                const void *source;
                place = rk_place(link, bytes);
                if (!place)
                    return -1;
                memcpy(&source, items + first + nested->at, sizeof(source));
                if (number != RK_rknn_outputs_get)
                    memcpy(link->arena + place, source, bytes);
            }
            memcpy(link->arena + at + first + nested->at, &place, sizeof(place));
        }
    return 0;
}

static int64_t call(int number, const uint64_t given[RK_ARGUMENTS]);

static int64_t finish(struct rk_link *link, int number, const uint64_t *given, struct rk_packet *packet,
                      const uint64_t *places, const uint64_t *sizes, int fd)
{
    int64_t result = packet->a[0];
    const struct rk_function *function = &rk_functions[number];
    for (int n = 0; n < function->count; n++)
        if (places[n] && (function->arguments[n].way & RK_OUT) && !function->arguments[n].nested)
            memcpy((void *)(uintptr_t)given[n], link->arena + places[n], sizes[n]);
    after_device(number, given);
    if (gives_memory(number)) {
        const rknn_tensor_mem *shown = (const rknn_tensor_mem *)(link->arena + places[RK_ARGUMENTS - 1]);
        if (!result)
            return 0;
        rknn_tensor_mem kept = *shown; /* the next call uses the arena again */
        result = add_memory(number, given, &kept, packet, fd);
        if (!result) {
            uint64_t undo[RK_ARGUMENTS] = {given[0], (uint64_t)(uintptr_t)&kept};
            call(RK_rknn_destroy_mem, undo);
        }
        return result;
    }
    switch (number) {
    case RK_rknn_init:
    case RK_rknn_dup_context:
    case RK_rknn_matmul_create:
    case RK_rknn_matmul_create_dynamic_shape:
        if (!result) {
            int place = number == RK_rknn_dup_context ? 1 : 0;
            add_context(*(rknn_context *)(uintptr_t)given[place], packet->a[1], packet->a[2]);
        }
        break;
    case RK_rknn_destroy:
    case RK_rknn_matmul_destroy:
        if (!result)
            remove_context(given[0]);
        break;
    case RK_rknn_destroy_mem:
        if (given[1])
            remove_memory((const rknn_tensor_mem *)(uintptr_t)given[1], result);
        break;
    case RK_rknn_query:
        if (!result) {
            take_query(link, given, packet, fd);
            fd = -1;
        }
        break;
    case RK_rknn_inputs_set:
    case RK_rknn_outputs_get:
        if (fd >= 0) {
            adopt(number, given[0], (uint64_t)packet->a[1], fd);
            fd = -1;
        }
        if (!result && number == RK_rknn_outputs_get)
            result = take_outputs(link, places[2], (rknn_output *)(uintptr_t)given[2], given[1]);
        break;
    case RK_rknn_outputs_release: {
        rknn_output *outputs = (rknn_output *)(uintptr_t)given[2];
        for (uint64_t n = 0; sizes[2] && n < given[1]; n++)
            if (!outputs[n].is_prealloc && outputs[n].buf && release(outputs[n].buf)) {
                outputs[n].buf = NULL;
                outputs[n].size = 0;
            }
        break;
    }
    case RK_rknn_run:
        if (fd >= 0 && given[1]) {
            ((rknn_run_extend *)(uintptr_t)given[1])->fence_fd = fd;
            fd = -1;
        }
        break;
    case RK_rknn_custom_op_get_op_attr:
        take_attribute(link, given, packet);
        break;
    }
    if (fd >= 0)
        close(fd);
    return result;
}

/* Convert inputs or outputs on the board of the context; return 0 if the server has to do it. */
static int on_board(int number, const uint64_t *given)
{
    int done = 0;
    if (number == RK_rknn_outputs_get && given[3])
        return 0;
    pthread_rwlock_rdlock(&boards_lock);
    pthread_mutex_lock(&rk_links_lock);
    const struct context *c = find_context(given[0]);
    pthread_mutex_unlock(&rk_links_lock);
    uint64_t count = (uint32_t)given[1];
    if (c && number == RK_rknn_inputs_set)
        done = rk_board_inputs(c->board, c->board_size, count, (const rknn_input *)(uintptr_t)given[2]);
    else if (c)
        done = rk_board_outputs(c->board, c->pages, c->pages_size, count, (rknn_output *)(uintptr_t)given[2],
                                reserve_output);
    pthread_rwlock_unlock(&boards_lock);
    return done;
}

static int64_t call(int number, const uint64_t given[RK_ARGUMENTS])
{
    if ((number == RK_rknn_inputs_set || number == RK_rknn_outputs_get) && on_board(number, given))
        return RKNN_SUCC;
    struct rk_link *link = rk_take();
    if (!link)
        return failure(number, RKNN_ERR_DEVICE_UNAVAILABLE);
    const struct rk_function *function = &rk_functions[number];
    struct rk_packet packet = {.op = RK_CALL, .number = (uint32_t)number};
    uint64_t places[RK_ARGUMENTS] = {0}, sizes[RK_ARGUMENTS] = {0}, before = link->used;
    int64_t result = failure(number, RKNN_ERR_MALLOC_FAIL);
    int passed = -1, opened = -1, fd = -1, room = 1;
    for (int n = 0; n < function->count && room; n++) {
        sizes[n] = target_size(number, n, given);
        packet.a[n] = (int64_t)given[n];
        if (!function->arguments[n].way)
            continue;
        packet.a[n] = 0;
        if (!sizes[n])
            continue;
        places[n] = rk_place(link, sizes[n]);
        room = places[n] != 0;
        packet.a[n] = (int64_t)places[n];
    }
    if (gives_memory(number)) {
        places[RK_ARGUMENTS - 1] = rk_place(link, sizeof(rknn_tensor_mem));
        packet.a[RK_ARGUMENTS - 1] = (int64_t)places[RK_ARGUMENTS - 1];
        room = room && places[RK_ARGUMENTS - 1];
    }
    for (int n = 0; n < function->count && room; n++)
        if (places[n]) {
            const struct rk_argument *argument = &function->arguments[n];
            memcpy(link->arena + places[n], (const void *)(uintptr_t)given[n], sizes[n]);
            if (argument->nested)
                room = !place_nested(link, number, argument, places[n],
                                     (const uint8_t *)(uintptr_t)given[n], sizes[n]);
        }
    if (number == RK_rknn_init && !given[2] && given[1])
        passed = opened = open((const char *)(uintptr_t)given[1], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    else if (number == RK_rknn_create_mem_from_fd)
        passed = (int)given[1];
    else if (number == RK_rknn_run && given[1])
        passed = ((const rknn_run_extend *)(uintptr_t)given[1])->fence_fd;
    if (passed >= 0 && fcntl(passed, F_GETFD) < 0)
        passed = -1;
    if (number == RK_rknn_run && !passed)
        passed = -1; /* a struct of zeros contains no fence */
    before_device(number, given);
    packet.used = link->used;
    if (room) {
        if (rk_exchange(link, &packet, passed, &fd))
            result = failure(number, RKNN_ERR_DEVICE_UNAVAILABLE);
        else
            result = finish(link, number, given, &packet, places, sizes, fd);
    }
    if (opened >= 0)
        close(opened);
    link->used = before;
    return result;
}

int64_t rk_call(int number, const uint64_t given[RK_ARGUMENTS])
{
    static const char said[] = "E RKNN: a signal handler cannot call the library within a call of its thread\n";
    if (within) {
        int before = errno;
        if (write(STDERR_FILENO, said, sizeof(said) - 1) < 0)
            errno = before;
        return failure(number, RKNN_ERR_FAIL);
    }
    within = 1;
    int64_t result = call(number, given);
    within = 0;
    return result;
}

int rk_leave(void)
{
    int before = within;
    within = 0;
    return before;
}

void rk_enter_again(int before)
{
    within = before;
}
