/* External delegate of LiteRT: operators that the NPU can do run in the simulator's process.
 *
 * The delegate sends the graph (shapes, quantisation, constants and parameters of the operators) to the
 * process, which makes a TFLite file of each part that LiteRT would give to the delegate and compiles it.
 * Operators that the compiler leaves to the host remain with LiteRT.  apis/litert/graph.py reads what
 * is written here. */
#include "litert.h"
#include "rk_worker.h"
#include "rk_writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 1000000 /* tensors, nodes, or numbers in a list */
#define OPERATORS 512
#define TEXT_ROOM (RK_TEXT + 64)

struct greeting { /* answer of the process to its options */
    uint64_t limit;                 /* milliseconds of a call */
    int64_t flags;                  /* of the delegate */
    uint32_t parameters[OPERATORS]; /* bytes of an operator's parameters, by its code; UINT32_MAX: not known */
};

struct plugin {
    struct lt_delegate shown; /* first member: LiteRT uses its address */
    pthread_mutex_t preparing;
    uint64_t graph; /* number of the graph that is being prepared */
    struct rk_worker *worker;
    struct greeting known;
};

struct part {
    struct rk_worker *worker;
    uint64_t number;
    uint64_t made, size; /* bytes of its tensors when it was compiled, and now */
    struct lt_ints *inputs, *outputs; /* tensors that are copied in and out */
    char failure[RK_TEXT];
};

/* -- writing -------------------------------------------------------------------------------------- */

static void put_ints(struct out *o, const struct lt_ints *ints)
{
    put_bytes(o, ints ? ints->data : NULL, ints && ints->size > 0 ? (uint64_t)ints->size * sizeof(int) : 0);
}

/* Return the `count` scales of a tensor.  LiteRT 2 has {float *data; int size}, TensorFlow Lite before it had
 * {int size; float data[]}: there, the upper half of what would be the pointer is the first scale, which for
 * no normal number is an address of a program. */
static const float *scales_of(const void *scales, int count)
{
    struct {
        const float *data;
        int size;
    } now;
    struct {
        int size;
        uint32_t first;
    } before;
    memcpy(&before, scales, sizeof(before));
    if (before.first >= 0x00800000u)
        return before.size == count ? (const float *)((const char *)scales + sizeof(int)) : NULL;
    memcpy(&now, scales, sizeof(now));
    return now.size == count ? now.data : NULL;
}

static void put_tensor(struct out *o, const struct lt_tensor *t)
{
    const struct lt_affine *affine = t->quantisation.kind == LT_AFFINE ? t->quantisation.values : NULL;
    const float *scales = NULL;
    int count = affine && affine->zeros ? affine->zeros->size : 0;
    if (count > 0 && count <= MOST && affine->scales)
        scales = scales_of(affine->scales, count);
    int constant = t->allocation == LT_READ_ONLY;
    put_number(o, t->type);
    put_number(o, constant);
    put_number(o, t->variable || t->sparsity);
    put_text(o, t->name);
    put_ints(o, t->dims);
    put_ints(o, t->signature);
    put_number(o, affine ? affine->axis : 0);
    put_bytes(o, scales, scales ? (uint64_t)count * sizeof(float) : 0);
    put_ints(o, scales ? affine->zeros : NULL);
    put_number(o, (int64_t)t->bytes);
    put_number(o, constant ? (int64_t)(intptr_t)t->data : 0);
    put_bytes(o, t->data, constant && t->data ? t->bytes : 0);
}

static int put_graph(struct out *o, struct lt_context *c, const struct lt_ints *plan,
                     const struct greeting *known)
{
    put_number(o, (int64_t)c->tensors_size);
    for (size_t n = 0; n < c->tensors_size; n++)
        put_tensor(o, &c->tensors[n]);
    put_number(o, plan->size);
    for (int n = 0; n < plan->size; n++) {
        struct lt_node *node;
        struct lt_kernel *kernel;
        if (c->node(c, plan->data[n], &node, &kernel) != LT_OK)
            return -1;
        uint32_t code = (uint32_t)kernel->code;
        uint32_t size = code < OPERATORS ? known->parameters[code] : UINT32_MAX;
        int usable = size != UINT32_MAX && (node->parameters || !size);
        put_number(o, plan->data[n]);
        put_number(o, kernel->code);
        put_number(o, kernel->version);
        put_number(o, usable && !node->delegate);
        put_ints(o, node->inputs);
        put_ints(o, node->outputs);
        put_bytes(o, usable ? node->parameters : NULL, usable ? size : 0);
        put_text(o, kernel->custom_name);
    }
    return 0;
}

/* -- the runtime's structures --------------------------------------------------------------------- */

static int element_bytes(int type)
{
    static const uint8_t bytes[] = {0, 4, 4, 1, 8, 0, 1, 2, 8, 1, 2, 8, 16, 8, 0, 0, 4, 2};
    return type > 0 && type < (int)sizeof(bytes) ? bytes[type] : 0;
}

/* Return whether the context has the layout that litert.h declares: all fixed sizes agree. */
static int is_readable(const struct lt_context *c)
{
    if (!c->tensors || !c->tensors_size || c->tensors_size > MOST)
        return 0;
    if (!c->plan || !c->report || !c->node || !c->replace || !c->preview)
        return 0;
    for (size_t n = 0; n < c->tensors_size; n++) {
        const struct lt_tensor *t = &c->tensors[n];
        int unit = element_bytes(t->type);
        if (t->type < 0 || t->type > 64 || t->allocation < 0 || t->allocation > 64)
            return 0;
        if (!unit || t->allocation != LT_READ_ONLY || !t->dims || t->sparsity)
            continue;
        uint64_t bytes = (uint64_t)unit;
        if (t->dims->size < 0 || t->dims->size > 64)
            return 0;
        for (int d = 0; d < t->dims->size; d++)
            bytes *= (uint64_t)t->dims->data[d];
        if (bytes != t->bytes)
            return 0;
    }
    return 1;
}

static struct lt_ints *new_ints(int count)
{
    struct lt_ints *made = calloc(1, sizeof(*made) + (size_t)count * sizeof(int));
    if (made)
        made->size = count;
    return made;
}

/* -- calls of the process ------------------------------------------------------------------------- */

/* Send the graph; `usable` (one byte for each node of the plan) becomes what the process can read. */
static int send_graph(struct plugin *p, struct lt_context *c, const struct lt_ints *plan, uint8_t *usable,
                      char *error)
{
    struct out count = {NULL, 0};
    struct rk_message message;
    if (put_graph(&count, c, plan, &p->known)) {
        snprintf(error, RK_TEXT, "LiteRT does not give a node of its plan");
        return RK_FAILED;
    }
    uint64_t room = count.used + (uint64_t)plan->size + TEXT_ROOM;
    struct out o = {rk_worker_begin(p->worker, room), 0};
    int result = RK_FAILED;
    if (!o.at) {
        snprintf(error, RK_TEXT, "there is no shared memory for a graph of %llu bytes",
                 (unsigned long long)count.used);
    } else if (put_graph(&o, c, plan, &p->known) || o.used != count.used) {
        snprintf(error, RK_TEXT, "the graph changed while it was read");
    } else {
        result = rk_worker_call(p->worker, RK_GRAPH, 0, o.used, &message, error);
        if (result == RK_OK && message.used == (uint64_t)plan->size) {
            memcpy(usable, o.at, (size_t)plan->size);
            p->graph = message.number;
        } else if (result == RK_OK) {
            snprintf(error, RK_TEXT, "the simulator's answer has the wrong size");
            result = RK_FAILED;
        }
    }
    rk_worker_end(p->worker);
    return result;
}

/* Compile a part.  RK_LEAVE: `left` becomes the nodes that the NPU cannot do.  With `use` the part is loaded
 * into the device's memory. */
static int compile(struct plugin *p, const struct lt_part *part, int use, uint64_t *number,
                   struct lt_ints **left, char *error)
{
    struct rk_message message;
    struct out o = {NULL, 0};
    for (int turn = 0; turn < 2; turn++) {
        if (turn) {
            o.at = rk_worker_begin(p->worker, o.used + (uint64_t)part->nodes->size * sizeof(int) + TEXT_ROOM);
            o.used = 0;
            if (!o.at) {
                rk_worker_end(p->worker);
                snprintf(error, RK_TEXT, "there is no shared memory for a part of the graph");
                return RK_FAILED;
            }
        }
        put_number(&o, use);
        put_ints(&o, part->nodes);
        put_ints(&o, part->inputs);
        put_ints(&o, part->outputs);
    }
    int result = rk_worker_call(p->worker, RK_COMPILE, p->graph, o.used, &message, error);
    if (result == RK_LEAVE) {
        int count = (int)(message.used / sizeof(int));
        *left = count > 0 && count <= part->nodes->size ? new_ints(count) : NULL;
        if (*left)
            memcpy((*left)->data, o.at, (size_t)count * sizeof(int));
        else
            result = RK_FAILED;
        if (!*left)
            snprintf(error, RK_TEXT, "the simulator's answer has the wrong size");
    } else if (result == RK_OK) {
        *number = message.number;
    }
    rk_worker_end(p->worker);
    return result;
}

static void simple_call(struct rk_worker *worker, enum rk_call call, uint64_t number)
{
    char error[RK_TEXT];
    struct rk_message message;
    if (rk_worker_begin(worker, 0))
        rk_worker_call(worker, call, number, 0, &message, error);
    rk_worker_end(worker);
}

/* -- the kernel of a part ------------------------------------------------------------------------- */

static struct lt_ints *copied(const struct lt_context *c, const struct lt_ints *from, int variable)
{
    struct lt_ints *made = new_ints(from->size);
    if (!made)
        return NULL;
    made->size = 0;
    for (int n = 0; n < from->size; n++)
        if (from->data[n] >= 0 && (!variable || c->tensors[from->data[n]].allocation != LT_READ_ONLY))
            made->data[made->size++] = from->data[n];
    return made;
}

static uint64_t room_of(const struct lt_context *c, const struct lt_ints *tensors)
{
    uint64_t size = 0;
    for (int n = 0; n < tensors->size; n++)
        size += RK_ALIGN(c->tensors[tensors->data[n]].bytes);
    return size;
}

static void *kernel_init(struct lt_context *c, const char *buffer, size_t length)
{
    (void)length; /* LiteRT gives 0 */
    const struct lt_part *given = (const struct lt_part *)buffer;
    struct plugin *p = given->delegate->data;
    struct lt_ints *left = NULL;
    struct part *part = calloc(1, sizeof(*part));
    if (!part)
        return NULL;
    part->worker = p->worker;
    rk_worker_keep(part->worker);
    part->inputs = copied(c, given->inputs, 1);
    part->outputs = copied(c, given->outputs, 0);
    int result = compile(p, given, 1, &part->number, &left, part->failure);
    if (result == RK_LEAVE)
        snprintf(part->failure, RK_TEXT, "LiteRT makes another part of the graph than it announced");
    else if (result == RK_OK)
        part->failure[0] = 0;
    free(left);
    if (part->inputs && part->outputs)
        part->made = room_of(c, part->inputs) + room_of(c, part->outputs);
    return part;
}

static void kernel_free(struct lt_context *c, void *data)
{
    struct part *part = data;
    (void)c;
    if (!part)
        return;
    if (!*part->failure)
        simple_call(part->worker, RK_RELEASE, part->number);
    rk_worker_drop(part->worker);
    free(part->inputs);
    free(part->outputs);
    free(part);
}

static int kernel_prepare(struct lt_context *c, struct lt_node *node)
{
    struct part *part = node->user_data;
    if (part && !*part->failure && part->inputs && part->outputs) {
        part->size = room_of(c, part->inputs) + room_of(c, part->outputs);
        if (part->size == part->made)
            return LT_OK;
        c->report(c, "rkcosim: with the option dynamic, tensors keep the sizes of the model's file");
        return LT_ERROR;
    }
    c->report(c, "rkcosim: %s", part && *part->failure ? part->failure : "out of memory");
    return LT_ERROR;
}

static int kernel_invoke(struct lt_context *c, struct lt_node *node)
{
    struct part *part = node->user_data;
    struct rk_message message;
    char error[RK_TEXT] = "there is no shared memory for the tensors";
    uint8_t *memory = rk_worker_begin(part->worker, part->size + TEXT_ROOM);
    int result = RK_FAILED;
    if (room_of(c, part->inputs) + room_of(c, part->outputs) != part->size) {
        snprintf(error, RK_TEXT, "a tensor has another size than when the graph was prepared");
    } else if (memory) {
        uint64_t at = 0;
        for (int n = 0; n < part->inputs->size; n++) {
            const struct lt_tensor *t = &c->tensors[part->inputs->data[n]];
            if (t->data)
                memcpy(memory + at, t->data, t->bytes);
            at += RK_ALIGN(t->bytes);
        }
        result = rk_worker_call(part->worker, RK_RUN, part->number, part->size, &message, error);
        for (int n = 0; result == RK_OK && n < part->outputs->size; n++) {
            struct lt_tensor *t = &c->tensors[part->outputs->data[n]];
            if (t->data)
                memcpy(t->data, memory + at, t->bytes);
            at += RK_ALIGN(t->bytes);
        }
    }
    rk_worker_end(part->worker);
    if (result == RK_OK)
        return LT_OK;
    c->report(c, "rkcosim: %s", error);
    return LT_ERROR;
}

static const char *kernel_profiling(const struct lt_context *c, const struct lt_node *node)
{
    (void)c;
    (void)node;
    return "rkcosim";
}

/* -- the delegate --------------------------------------------------------------------------------- */

static void remove_nodes(struct lt_ints *from, const struct lt_ints *gone)
{
    int kept = 0;
    for (int n = 0; n < from->size; n++) {
        int found = 0;
        for (int k = 0; k < gone->size; k++)
            found |= gone->data[k] == from->data[n];
        if (!found)
            from->data[kept++] = from->data[n];
    }
    from->size = kept;
}

/* Remove nodes until the process accepts every part that LiteRT makes of the others. */
static int choose(struct plugin *p, struct lt_context *c, struct lt_ints *nodes, char *error)
{
    while (nodes->size) {
        struct lt_part *parts = NULL;
        int count = 0, before = nodes->size, result = RK_OK;
        if (c->preview(c, nodes, &parts, &count) != LT_OK) {
            snprintf(error, RK_TEXT, "LiteRT cannot divide the graph");
            return RK_FAILED;
        }
        struct lt_ints *gone = new_ints(nodes->size);
        if (!gone) {
            snprintf(error, RK_TEXT, "out of memory");
            return RK_FAILED;
        }
        gone->size = 0;
        for (int n = 0; n < count && result != RK_FAILED; n++) {
            struct lt_ints *left = NULL;
            uint64_t number;
            result = compile(p, &parts[n], 0, &number, &left, error);
            for (int k = 0; left && k < left->size && gone->size < before; k++)
                gone->data[gone->size++] = left->data[k];
            free(left);
        }
        if (result != RK_FAILED)
            remove_nodes(nodes, gone);
        int more = gone->size;
        free(gone);
        if (result == RK_FAILED)
            return RK_FAILED;
        if (!more)
            return RK_OK;
        if (nodes->size == before) {
            snprintf(error, RK_TEXT, "the simulator names nodes that are not in the part");
            return RK_FAILED;
        }
    }
    return RK_OK;
}

static int replace(struct plugin *p, struct lt_context *c, struct lt_ints *plan, char *error)
{
    uint8_t *usable = calloc(1, (size_t)plan->size + 1);
    struct lt_ints *nodes = new_ints(plan->size);
    int result = RK_FAILED;
    if (usable && nodes)
        result = send_graph(p, c, plan, usable, error);
    else
        snprintf(error, RK_TEXT, "out of memory");
    if (result == RK_OK) {
        nodes->size = 0;
        for (int n = 0; n < plan->size; n++)
            if (usable[n])
                nodes->data[nodes->size++] = plan->data[n];
        result = choose(p, c, nodes, error);
        if (result == RK_OK && nodes->size) {
            struct lt_kernel kernel = {kernel_init, kernel_free, kernel_prepare, kernel_invoke,
                                       kernel_profiling, 0, "rkcosim", 1, NULL, NULL, 0};
            if (c->replace(c, kernel, nodes, &p->shown) != LT_OK) {
                snprintf(error, RK_TEXT, "LiteRT does not accept the parts of the delegate");
                result = RK_FAILED;
            }
        }
        simple_call(p->worker, RK_FORGET, p->graph);
    }
    free(usable);
    free(nodes);
    return result;
}

static int delegate_prepare(struct lt_context *c, struct lt_delegate *delegate)
{
    struct plugin *p = delegate->data;
    struct lt_ints *plan = NULL;
    char error[RK_TEXT] = "";
    if (!p)
        return LT_DELEGATE_ERROR; /* it was destroyed */
    int result = RK_FAILED;
    pthread_mutex_lock(&p->preparing);
    if (!is_readable(c))
        snprintf(error, RK_TEXT, "the model is damaged, or this runtime has other structures than LiteRT 2");
    else if (c->plan(c, &plan) != LT_OK || !plan || plan->size < 0 || plan->size > MOST)
        snprintf(error, RK_TEXT, "LiteRT does not give its plan");
    else
        result = replace(p, c, plan, error);
    pthread_mutex_unlock(&p->preparing);
    if (result == RK_OK)
        return LT_OK;
    if (c->report)
        c->report(c, "rkcosim: %s", error);
    return LT_DELEGATE_ERROR;
}

EXPORT struct lt_delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count,
                                                         void (*report)(const char *))
{
    char error[RK_TEXT] = "out of memory";
    uint32_t options = (uint32_t)count; /* Python gives an int */
    struct plugin *p = calloc(1, sizeof(*p));
    const char **strings = calloc((size_t)options * 2 + 1, sizeof(*strings));
    if (p && strings) {
        for (uint32_t n = 0; n < options; n++) {
            strings[2 * n] = keys[n] ? keys[n] : "";
            strings[2 * n + 1] = values[n] ? values[n] : "";
        }
        p->worker = rk_worker_start(RK_LITERT, strings, (size_t)options * 2, &p->known, sizeof(p->known), error);
    }
    free(strings);
    if (!p || !p->worker) {
        char text[RK_TEXT + 16];
        snprintf(text, sizeof(text), "rkcosim: %s", error);
        if (report)
            report(text);
        free(p);
        return NULL;
    }
    rk_worker_limit(p->worker, p->known.limit);
    pthread_mutex_init(&p->preparing, NULL);
    p->shown.data = p;
    p->shown.prepare = delegate_prepare;
    p->shown.flags = p->known.flags;
    return &p->shown;
}

/* The kernels of an interpreter may be freed after the delegate; they keep the connection.  The process
 * writes its results now.  The structure remains: an interpreter that is destroyed later may read it. */
EXPORT void tflite_plugin_destroy_delegate(struct lt_delegate *delegate)
{
    struct plugin *p = delegate ? delegate->data : NULL;
    if (!p)
        return;
    delegate->data = NULL;
    rk_worker_close(p->worker);
    rk_worker_drop(p->worker);
}
