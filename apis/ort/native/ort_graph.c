/* onnxruntime's graph as bytes; ort_graph.h describes the functions.  All texts and arrays of the runtime
 * live as long as the graph. */
#include "ort_graph.h"

#include <stdlib.h>

#define MOST 1000000 /* elements of a list */
#define RANK 64
#define TRY(call)                             \
    do {                                      \
        struct ort_status *status_ = (call);  \
        if (status_)                          \
            return status_;                   \
    } while (0)

typedef struct ort_status *(*counter)(const void *, size_t *);
typedef struct ort_status *(*lister)(const void *, const void **, size_t);

/* Return a list of the runtime in `*list`, which the caller frees. */
static struct ort_status *get_list(const struct ort_api *api, counter count, lister get, const void *of,
                                   const void ***list, size_t *size)
{
    *list = NULL;
    *size = 0;
    TRY(count(of, size));
    *list = *size <= MOST ? calloc(*size + 1, sizeof(**list)) : NULL;
    if (!*list)
        return api->create_status(ORT_FAIL, "rkcosim: out of memory");
    return *size ? get(of, *list, *size) : NULL;
}

#define GET_LIST(kind, of, list, size) \
    get_list(api, (counter)api->count_##kind, (lister)api->kind, of, list, size)

static struct ort_status *put_shape(const struct ort_api *api, const struct ort_shape *shape, struct out *o)
{
    int element = 0;
    size_t rank = 0;
    int64_t sizes[RANK];
    TRY(api->element(shape, &element));
    TRY(api->rank(shape, &rank));
    if (rank <= RANK)
        TRY(api->dimensions(shape, sizes, rank));
    put_number(o, rank <= RANK ? element : 0);
    put_bytes(o, sizes, rank <= RANK ? rank * sizeof(*sizes) : 0);
    return NULL;
}

/* Write type, shape and contents of a tensor; one of strings has no contents. */
static struct ort_status *put_tensor(const struct ort_api *api, const struct ort_value *value, struct out *o)
{
    struct ort_shape *shape = NULL;
    void *data = NULL;
    size_t size = 0;
    TRY(api->shape_of_value(value, &shape));
    struct ort_status *status = put_shape(api, shape, o);
    api->release_shape(shape);
    if (status)
        return status;
    status = api->tensor_bytes(value, &size);
    if (!status && size)
        status = api->tensor_data((struct ort_value *)value, &data);
    if (status)
        api->release_status(status);
    put_bytes(o, data, data ? size : 0);
    return NULL;
}

/* Write name, contents of a constant of an outer graph, whether the rank is known, type and shape of a value;
 * its element type is 0 if it is no tensor. */
static struct ort_status *put_value(const struct ort_api *api, const struct ort_info *info, struct out *o)
{
    const char *name = "";
    const struct ort_type *type = NULL;
    const struct ort_shape *shape = NULL;
    const struct ort_value *value = NULL;
    bool outer = false, constant = false;
    int kind = 0;
    if (info) {
        TRY(api->info_name(info, &name));
        TRY(api->info_type(info, &type));
        TRY(api->is_outer(info, &outer));
        TRY(api->is_constant(info, &constant));
        if (outer && constant)
            TRY(api->initializer(info, &value));
    }
    if (type)
        TRY(api->kind_of_type(type, &kind));
    if (kind == ORT_TENSOR)
        TRY(api->shape_of_type(type, &shape));
    put_text(o, name);
    put_number(o, value != NULL);
    if (value)
        TRY(put_tensor(api, value, o));
    put_number(o, shape && api->has_shape(shape));
    if (shape)
        return put_shape(api, shape, o);
    put_number(o, 0);
    put_bytes(o, NULL, 0);
    return NULL;
}

static struct ort_status *put_values(const struct ort_api *api, const void **infos, size_t count, struct out *o)
{
    put_number(o, (int64_t)count);
    for (size_t n = 0; n < count; n++)
        TRY(put_value(api, infos[n], o));
    return NULL;
}

static struct ort_status *put_attribute_data(const struct ort_api *api, const struct ort_attribute *attribute,
                                             int type, struct out *o)
{
    size_t size = 0;
    struct ort_status *status = api->read_attribute(attribute, type, NULL, 0, &size);
    if (status) /* the room was too small; the runtime has set `size` */
        api->release_status(status);
    uint8_t *data = malloc(size + 1);
    if (!data)
        return api->create_status(ORT_FAIL, "rkcosim: out of memory");
    status = size ? api->read_attribute(attribute, type, data, size, &size) : NULL;
    if (!status)
        put_bytes(o, data, size);
    free(data);
    return status;
}

static struct ort_status *put_attribute(const struct ort_api *api, const struct ort_attribute *attribute,
                                        struct out *o)
{
    const char *name = NULL;
    int type = 0;
    struct ort_value *value = NULL;
    TRY(api->attribute_name(attribute, &name));
    TRY(api->attribute_type(attribute, &type));
    put_text(o, name);
    put_number(o, type);
    if (type == ORT_ATTRIBUTE_GRAPH || !type)
        return NULL;
    if (type != ORT_ATTRIBUTE_TENSOR)
        return put_attribute_data(api, attribute, type, o);
    TRY(api->attribute_tensor(attribute, &value));
    struct ort_status *status = put_tensor(api, value, o);
    api->release_value(value);
    return status;
}

static struct ort_status *put_node(const struct ort_api *api, const struct ort_node *node, struct out *o)
{
    const char *name = NULL, *kind = NULL, *domain = NULL;
    size_t bodies = 0, size;
    const void **list;
    TRY(api->node_name(node, &name));
    TRY(api->node_kind(node, &kind));
    TRY(api->node_domain(node, &domain));
    TRY(api->count_bodies(node, &bodies));
    put_text(o, name);
    put_text(o, kind);
    put_text(o, domain);
    put_number(o, (int64_t)bodies);
    struct ort_status *status = GET_LIST(node_inputs, node, &list, &size);
    if (!status)
        status = put_values(api, list, size, o);
    free(list);
    if (status)
        return status;
    status = GET_LIST(node_captures, node, &list, &size);
    if (!status)
        status = put_values(api, list, size, o);
    free(list);
    if (status)
        return status;
    status = GET_LIST(node_outputs, node, &list, &size);
    if (!status)
        status = put_values(api, list, size, o);
    free(list);
    if (status)
        return status;
    status = GET_LIST(attributes, node, &list, &size);
    if (!status)
        put_number(o, (int64_t)size);
    for (size_t n = 0; !status && n < size; n++)
        status = put_attribute(api, list[n], o);
    free(list);
    return status;
}

static struct ort_status *put_initializer(const struct ort_api *api, const struct ort_info *info, struct out *o)
{
    const struct ort_value *value = NULL;
    bool constant = false;
    const char *name = NULL;
    TRY(api->is_constant(info, &constant));
    if (constant)
        TRY(api->initializer(info, &value));
    TRY(api->info_name(info, &name));
    put_text(o, name);
    put_number(o, value != NULL);
    return value ? put_tensor(api, value, o) : NULL;
}

static struct ort_status *put_opsets(const struct ort_api *api, const struct ort_graph *graph, struct out *o)
{
    size_t size = 0;
    TRY(api->count_opsets(graph, &size));
    const char **domains = calloc(size + 1, sizeof(*domains));
    int64_t *versions = calloc(size + 1, sizeof(*versions));
    struct ort_status *status = domains && versions ? api->opsets(graph, domains, versions, size)
                                                    : api->create_status(ORT_FAIL, "rkcosim: out of memory");
    if (!status)
        put_number(o, (int64_t)size);
    for (size_t n = 0; !status && n < size; n++) {
        put_text(o, domains[n]);
        put_number(o, versions[n]);
    }
    free(domains);
    free(versions);
    return status;
}

struct ort_status *ort_put_graph(const struct ort_api *api, const struct ort_graph *graph, struct out *o)
{
    const char *path = NULL;
    int64_t version = 0;
    const void **list;
    size_t size;
    TRY(api->model_path(graph, &path));
    TRY(api->ir_version(graph, &version));
    put_text(o, path);
    put_number(o, version);
    TRY(put_opsets(api, graph, o));
    struct ort_status *status = GET_LIST(initializers, graph, &list, &size);
    if (!status)
        put_number(o, (int64_t)size);
    for (size_t n = 0; !status && n < size; n++)
        status = put_initializer(api, list[n], o);
    free(list);
    if (status)
        return status;
    status = GET_LIST(nodes, graph, &list, &size);
    if (!status)
        put_number(o, (int64_t)size);
    for (size_t n = 0; !status && n < size; n++)
        status = put_node(api, list[n], o);
    free(list);
    if (status)
        return status;
    status = GET_LIST(graph_outputs, graph, &list, &size);
    if (!status)
        status = put_values(api, list, size, o);
    free(list);
    return status;
}

struct ort_status *ort_put_part(const struct ort_api *api, const struct ort_graph *graph,
                                const struct ort_node *fused, struct out *o)
{
    const void **list, **outputs;
    size_t size, count;
    struct ort_status *status = GET_LIST(nodes, graph, &list, &size);
    if (!status)
        put_number(o, (int64_t)size);
    for (size_t n = 0; !status && n < size; n++) {
        status = GET_LIST(node_outputs, list[n], &outputs, &count);
        if (!status)
            status = put_value(api, count ? outputs[0] : NULL, o);
        free(outputs);
    }
    free(list);
    if (status)
        return status;
    status = GET_LIST(node_inputs, fused, &list, &size);
    if (!status)
        status = put_values(api, list, size, o);
    free(list);
    if (status)
        return status;
    status = GET_LIST(node_outputs, fused, &list, &size);
    if (!status)
        status = put_values(api, list, size, o);
    free(list);
    return status;
}
