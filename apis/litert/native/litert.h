/* The structures of LiteRT's C interface that a delegate reads.  Order and types of the members are facts of
 * tensorflow/lite/core/c/common.h (tensorflow/tensorflow) and were tried with LiteRT 2.3.0; the names are our
 * own.  litert_delegate.c checks the layout before it reads a graph. */
#ifndef LITERT_H
#define LITERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LT_OK = 0, LT_ERROR = 1, LT_DELEGATE_ERROR = 2 };
enum { LT_READ_ONLY = 1 };  /* allocation of a constant in the model file */
enum { LT_AFFINE = 1 };     /* kind of quantisation with scales */

struct lt_ints {
    int size;
    int data[];
};

struct lt_affine {
    const void *scales; /* see scales_of in litert_delegate.c */
    struct lt_ints *zeros;
    int32_t axis;
};

struct lt_tensor {
    int type;
    void *data;
    struct lt_ints *dims;
    float scale;
    int32_t zero;
    int allocation;
    size_t bytes;
    const void *source;
    const char *name;
    void *delegate;
    int buffer;
    bool stale, variable;
    struct {
        int kind;
        void *values;
    } quantisation;
    void *sparsity;
    const struct lt_ints *signature;
};
_Static_assert(sizeof(struct lt_tensor) == 112, "on 64-bit machines");

struct lt_node {
    struct lt_ints *inputs, *outputs, *intermediates, *temporaries;
    void *user_data;
    void *parameters;
    const void *custom;
    int custom_size;
    void *delegate;
    bool side_effect;
};

struct lt_context;

struct lt_kernel { /* of a node */
    void *(*init)(struct lt_context *, const char *, size_t);
    void (*free)(struct lt_context *, void *);
    int (*prepare)(struct lt_context *, struct lt_node *);
    int (*invoke)(struct lt_context *, struct lt_node *);
    const char *(*profiling)(const struct lt_context *, const struct lt_node *);
    int32_t code;
    const char *custom_name;
    int version;
    void *external, *async;
    uint64_t inplace; /* since 2.15; older runtimes copy less of it */
};

struct lt_delegate;

struct lt_part { /* what the kernel of a delegated part gets as `init` buffer */
    struct lt_delegate *delegate;
    struct lt_ints *nodes, *inputs, *outputs;
};

struct lt_context {
    size_t tensors_size;
    int (*plan)(struct lt_context *, struct lt_ints **);
    struct lt_tensor *tensors;
    void *own;
    int (*resize)(struct lt_context *, struct lt_tensor *, struct lt_ints *);
    void (*report)(struct lt_context *, const char *, ...);
    int (*add_tensors)(struct lt_context *, int, int *);
    int (*node)(struct lt_context *, int, struct lt_node **, struct lt_kernel **);
    int (*replace)(struct lt_context *, struct lt_kernel, const struct lt_ints *, struct lt_delegate *);
    int threads;
    void *(*external)(struct lt_context *, int);
    void (*set_external)(struct lt_context *, int, void *);
    bool half_precision;
    void *profiler;
    void *persistent, *evaluation, *request_scratch, *scratch;
    void *resize_explicit;
    int (*preview)(struct lt_context *, const struct lt_ints *, struct lt_part **, int *);
};

struct lt_delegate {
    void *data;
    int (*prepare)(struct lt_context *, struct lt_delegate *);
    void *from_buffer, *to_buffer, *free_buffer;
    int64_t flags;
    void *builder;
};

#endif
