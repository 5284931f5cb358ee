/* Execution provider of onnxruntime: nodes that the NPU can do run in the simulator's process.
 *
 * The provider sends the graph (ort_graph.c) to the process, which divides it into parts and compiles them.
 * Nodes that the compiler leaves to the host remain with onnxruntime. */
#include "ort_graph.h"
#include "ort_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NAME "RkCosim"
#define PREFIX "ep.rkcosim." /* of the provider's options among the session's settings */

enum { VENDOR = 0x1d87, DEVICE = 0x3588 }; /* Rockchip's number in lists of PCI vendors; the chip */

struct factory {
    struct ort_factory shown; /* first member: onnxruntime uses its address */
    const struct ort_api *api;
    const struct ort_provider_api *provider;
    struct ort_hardware *hardware;
    int owners; /* the registration, and sessions, which may outlive it; changed atomically */
};

struct ep {
    struct ort_ep shown;
    const struct ort_api *api;
    const struct ort_provider_api *provider;
    struct rk_worker *worker; /* NULL: it could not be started */
    uint64_t graph;
    int code; /* of `error`, which is empty if the provider works */
    char error[RK_TEXT];
};

/* -- a session's provider ------------------------------------------------------------------------- */

static const char *ep_name(const struct ort_ep *shown)
{
    (void)shown;
    return NAME;
}

/* Offer the groups of nodes that the process names: `groups` has a number for each node, or -1. */
static struct ort_status *offer(const struct ep *e, const struct ort_graph *graph, struct ort_support *support,
                                const int32_t *groups, size_t count)
{
    const struct ort_node **nodes = calloc(count + 1, sizeof(*nodes));
    const struct ort_node **group = calloc(count + 1, sizeof(*group));
    struct ort_fusion fusion = {.version = ORT_CALLBACKS, .drop_constants = true};
    struct ort_status *status =
        nodes && group ? e->api->nodes(graph, nodes, count) : ort_failure(e->api, ORT_FAIL, "out of memory");
    int32_t most = -1;
    for (size_t n = 0; n < count; n++)
        most = groups[n] > most ? groups[n] : most;
    for (int32_t number = 0; !status && number <= most; number++) {
        size_t used = 0;
        for (size_t n = 0; n < count; n++)
            if (groups[n] == number)
                group[used++] = nodes[n];
        if (used)
            status = e->provider->fuse(support, group, used, &fusion);
    }
    free(nodes);
    free(group);
    return status;
}

/* Ask the process for the parts of a graph, and offer them.  The runtime's own errors become a status, those
 * of the process `e->error`. */
static struct ort_status *ask(struct ep *e, const struct ort_graph *graph, struct ort_support *support,
                              size_t nodes)
{
    struct out count = {NULL, 0};
    struct rk_message message;
    char error[RK_TEXT] = "there is no shared memory for the graph";
    int32_t *groups = NULL;
    struct ort_status *status = ort_put_graph(e->api, graph, &count);
    if (status)
        return status;
    struct out o = {rk_worker_begin(e->worker, count.used + nodes * sizeof(*groups) + TEXT_ROOM), 0};
    int result = RK_FAILED;
    if (o.at) {
        status = ort_put_graph(e->api, graph, &o);
        if (!status && o.used == count.used)
            result = rk_worker_call(e->worker, RK_GRAPH, 0, o.used, &message, error);
        else
            snprintf(error, RK_TEXT, "the graph changed while it was read");
        groups = calloc(nodes, sizeof(*groups));
        if (result == RK_OK && groups && message.used == nodes * sizeof(*groups)) {
            memcpy(groups, o.at, nodes * sizeof(*groups));
            e->graph = message.number;
        } else if (result == RK_OK) {
            snprintf(error, RK_TEXT, "the simulator's answer has the wrong size");
            result = RK_FAILED;
        }
    }
    rk_worker_end(e->worker);
    bool some = false;
    for (size_t n = 0; result == RK_OK && groups && n < nodes; n++)
        some |= groups[n] >= 0;
    if (!status && some)
        status = offer(e, graph, support, groups, nodes);
    else if (!status && result == RK_OK)
        ort_simple_call(e->worker, RK_FORGET, e->graph); /* the runtime will compile nothing of it */
    else if (!status)
        memcpy(e->error, error, sizeof(error));
    free(groups);
    return status;
}

/* The runtime only logs an error of this call, and its Python interface replaces a provider that cannot be
 * created by the processor's.  So that a script gets the error, a provider that failed takes one node, and its
 * compilation is the error. */
static struct ort_status *ep_capability(struct ort_ep *shown, const struct ort_graph *graph,
                                        struct ort_support *support)
{
    struct ep *e = (struct ep *)shown;
    size_t nodes = 0;
    struct ort_status *status = e->api->count_nodes(graph, &nodes);
    if (status || !nodes)
        return status;
    if (!*e->error)
        status = ask(e, graph, support, nodes);
    if (status) {
        snprintf(e->error, RK_TEXT, "onnxruntime does not give its graph: %s", e->api->status_text(status));
        e->api->release_status(status);
    }
    if (!*e->error)
        return NULL;
    int32_t *groups = malloc(nodes * sizeof(*groups));
    if (!groups)
        return ort_failure(e->api, ORT_FAIL, "out of memory");
    for (size_t n = 0; n < nodes; n++)
        groups[n] = n ? -1 : 0;
    status = offer(e, graph, support, groups, nodes);
    free(groups);
    return status;
}

static struct ort_status *start_part(struct ep *e, const struct ort_graph *graph, const struct ort_node *node,
                                     struct kernel *k)
{
    struct out count = {NULL, 0};
    struct rk_message message;
    char error[RK_TEXT] = "there is no shared memory for a part of the graph";
    struct ort_status *status = ort_put_part(e->api, graph, node, &count);
    if (status)
        return status;
    struct out o = {rk_worker_begin(e->worker, count.used + TEXT_ROOM), 0};
    int result = RK_FAILED;
    if (o.at) {
        status = ort_put_part(e->api, graph, node, &o);
        if (!status)
            result = rk_worker_call(e->worker, RK_COMPILE, e->graph, o.used, &message, error);
        if (result == RK_OK)
            k->part = message.number;
    }
    rk_worker_end(e->worker);
    if (!status && result != RK_OK)
        status = ort_failure(e->api, ORT_FAIL, error);
    if (!status)
        status = e->api->count_node_inputs(node, &k->inputs);
    if (!status)
        status = e->api->count_node_outputs(node, &k->outputs);
    return status;
}

static void ep_release_kernels(struct ort_ep *shown, struct ort_kernel **kernels, size_t count)
{
    (void)shown;
    for (size_t n = 0; n < count; n++)
        if (kernels[n])
            ort_free_kernel((struct kernel *)kernels[n]);
}

static struct ort_status *ep_compile(struct ort_ep *shown, const struct ort_graph **graphs,
                                     const struct ort_node **nodes, size_t count, struct ort_kernel **kernels,
                                     struct ort_node **contexts)
{
    struct ep *e = (struct ep *)shown;
    struct ort_status *status = *e->error ? ort_failure(e->api, e->code, e->error) : NULL;
    (void)contexts;
    memset(kernels, 0, count * sizeof(*kernels));
    for (size_t n = 0; !status && n < count; n++) {
        struct kernel *k = ort_new_kernel(e->api, e->worker);
        if (!k) {
            status = ort_failure(e->api, ORT_FAIL, "out of memory");
            break;
        }
        kernels[n] = &k->shown;
        status = start_part(e, graphs[n], nodes[n], k);
    }
    for (size_t n = 0; status && n < count; n++) {
        if (kernels[n])
            ort_free_kernel((struct kernel *)kernels[n]);
        kernels[n] = NULL;
    }
    if (e->worker && !*e->error)
        ort_simple_call(e->worker, RK_FORGET, e->graph);
    return status;
}

/* -- the factory ---------------------------------------------------------------------------------- */

static const char *factory_name(const struct ort_factory *shown)
{
    (void)shown;
    return NAME;
}

static const char *factory_vendor(const struct ort_factory *shown)
{
    (void)shown;
    return "rkcosim";
}

static uint32_t factory_vendor_id(const struct ort_factory *shown)
{
    (void)shown;
    return VENDOR;
}

static const char *factory_release_text(const struct ort_factory *shown)
{
    (void)shown;
    return RK_VERSION;
}

static struct ort_status *factory_devices(struct ort_factory *shown, const struct ort_hardware *const *found,
                                          size_t count, struct ort_device **devices, size_t most, size_t *made)
{
    struct factory *f = (struct factory *)shown;
    struct ort_status *status = NULL;
    (void)found;
    (void)count;
    *made = 0;
    if (!most)
        return NULL;
    if (!f->hardware)
        status = f->provider->create_hardware(ORT_NPU, VENDOR, DEVICE, "Rockchip", NULL, &f->hardware);
    if (!status)
        status = f->provider->create_device(shown, f->hardware, NULL, NULL, &devices[0]);
    *made = !status;
    return status;
}

/* Start the process with the provider's options, which are among the session's settings. */
static struct rk_worker *start_worker(const struct ort_api *api, const struct ort_pairs *pairs, uint64_t *limit,
                                      char *error)
{
    const char *const *keys = NULL, *const *values = NULL;
    size_t count = 0, used = 0;
    struct rk_worker *worker = NULL;
    api->pairs(pairs, &keys, &values, &count);
    const char **strings = calloc(2 * count + 1, sizeof(*strings));
    if (strings) {
        for (size_t n = 0; n < count; n++)
            if (!strncmp(keys[n], PREFIX, strlen(PREFIX))) {
                strings[used++] = keys[n] + strlen(PREFIX);
                strings[used++] = values[n];
            }
        worker = rk_worker_start(RK_ONNXRUNTIME, strings, used, limit, sizeof(*limit), error);
    }
    free(strings);
    return worker;
}

static struct ort_status *factory_create(struct ort_factory *shown, const struct ort_hardware *const *hardware,
                                         const struct ort_pairs *const *metadata, size_t count,
                                         const struct ort_options *options, const struct ort_logger *logger,
                                         struct ort_ep **made)
{
    struct factory *f = (struct factory *)shown;
    struct ort_pairs *pairs = NULL;
    char error[RK_TEXT] = "out of memory";
    uint64_t limit = 0;
    (void)hardware;
    (void)metadata;
    (void)count;
    (void)logger;
    *made = NULL;
    struct ort_status *status = f->api->settings(options, &pairs);
    if (status)
        return status;
    struct ep *e = calloc(1, sizeof(*e));
    if (e) {
        e->worker = start_worker(f->api, pairs, &limit, error);
        e->code = e->worker ? ORT_FAIL : ORT_INVALID_ARGUMENT;
        if (e->worker)
            rk_worker_limit(e->worker, limit);
        else
            memcpy(e->error, error, sizeof(error));
    }
    f->api->release_pairs(pairs);
    if (!e)
        return ort_failure(f->api, ORT_FAIL, error);
    e->api = f->api;
    e->provider = f->provider;
    e->shown = (struct ort_ep){.version = ORT_CALLBACKS,
                               .name = ep_name,
                               .capability = ep_capability,
                               .compile = ep_compile,
                               .release_kernels = ep_release_kernels};
    __atomic_fetch_add(&f->owners, 1, __ATOMIC_RELAXED);
    *made = &e->shown;
    return NULL;
}

static void drop_factory(struct factory *f)
{
    if (__atomic_sub_fetch(&f->owners, 1, __ATOMIC_ACQ_REL))
        return;
    if (f->hardware)
        f->provider->release_hardware(f->hardware);
    free(f);
}

/* The process writes its results now. */
static void factory_release(struct ort_factory *shown, struct ort_ep *ep)
{
    struct ep *e = (struct ep *)ep;
    if (!e)
        return;
    if (e->worker) {
        rk_worker_close(e->worker);
        rk_worker_drop(e->worker);
    }
    free(e);
    drop_factory((struct factory *)shown);
}

static struct ort_status *factory_data_transfer(struct ort_factory *shown, void **made)
{
    (void)shown;
    *made = NULL; /* tensors are in the processor's memory */
    return NULL;
}

static bool factory_has_streams(const struct ort_factory *shown)
{
    (void)shown;
    return false;
}

EXPORT struct ort_status *CreateEpFactories(const char *registered, const struct ort_base *base,
                                            const struct ort_logger *logger, struct ort_factory **factories,
                                            size_t most, size_t *count)
{
    (void)registered;
    (void)logger;
    *count = 0;
    const struct ort_api *first = base->api(1);
    const char *version = base->version();
    const struct ort_api *api = version && !strncmp(version, "1.", 2) ? base->api(ORT_VERSION) : NULL;
    if (!first) /* without any table there is no way to make a status; no factory is an error of the runtime */
        return NULL;
    if (!api) {
        char text[RK_TEXT];
        snprintf(text, sizeof(text),
                 "onnxruntime %s does not have version %d of the C interface, which this provider needs "
                 "(onnxruntime 1.%d or newer, below 2)",
                 version ? version : "(unknown)", ORT_VERSION, ORT_VERSION);
        return ort_failure(first, ORT_FAIL, text);
    }
    struct factory *f = most ? calloc(1, sizeof(*f)) : NULL;
    if (!f)
        return ort_failure(api, ORT_FAIL, "there is no room for the provider");
    f->api = api;
    f->provider = api->provider_api();
    f->owners = 1;
    f->shown = (struct ort_factory){.version = ORT_CALLBACKS,
                                    .name = factory_name,
                                    .vendor = factory_vendor,
                                    .devices = factory_devices,
                                    .create = factory_create,
                                    .release = factory_release,
                                    .vendor_id = factory_vendor_id,
                                    .release_text = factory_release_text,
                                    .data_transfer = factory_data_transfer,
                                    .has_streams = factory_has_streams};
    factories[0] = &f->shown;
    *count = 1;
    return NULL;
}

EXPORT struct ort_status *ReleaseEpFactory(struct ort_factory *shown)
{
    if (shown)
        drop_factory((struct factory *)shown);
    return NULL;
}
