/* The entries of onnxruntime's C interface that the provider uses.  Their order and types are facts of
 * include/onnxruntime/core/session/onnxruntime_c_api.h and onnxruntime_ep_c_api.h (microsoft/onnxruntime,
 * version 29 of the interface, read as in yalue/onnxruntime_go at 8ce7fa58) and were tried with onnxruntime
 * 1.32.0; the names are our own.  The tables grow at their ends only: GetApi(n) gives one whose first entries
 * are those of version n. */
#ifndef ORT_H
#define ORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef ORT_VERSION /* a test defines a version that no runtime has */
#define ORT_VERSION 24 /* the newest entries that are used, create_hardware and has_shape, are of this version */
#endif

#define ORT_CALLBACKS 23 /* version of the structures below that the runtime calls; later members are absent */

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 }; /* codes of a status */
enum { ORT_NPU = 2 };                            /* type of a device */
enum { ORT_TENSOR = 1 };                         /* type of a value */
enum { ORT_ATTRIBUTE_GRAPH = 7, ORT_ATTRIBUTE_TENSOR = 8 };

struct ort_status;
struct ort_value;
struct ort_type;
struct ort_shape;
struct ort_context;
struct ort_attribute;
struct ort_info;
struct ort_graph;
struct ort_node;
struct ort_pairs;
struct ort_hardware;
struct ort_device;
struct ort_support;
struct ort_options;
struct ort_logger;
struct ort_factory;
struct ort_ep;

struct ort_provider_api {
    struct ort_status *(*create_device)(struct ort_factory *, const struct ort_hardware *, const struct ort_pairs *,
                                        const struct ort_pairs *, struct ort_device **); /* 0 */
    void *gap_1;
    struct ort_status *(*fuse)(struct ort_support *, const struct ort_node *const *, size_t, const void *); /* 2 */
    void *gap_3[13];
    struct ort_status *(*create_hardware)(int, uint32_t, uint32_t, const char *, const struct ort_pairs *,
                                          struct ort_hardware **); /* 16 */
    void (*release_hardware)(struct ort_hardware *);               /* 17 */
};

struct ort_api {
    struct ort_status *(*create_status)(int, const char *); /* 0 */
    void *gap_1;
    const char *(*status_text)(const struct ort_status *); /* 2 */
    void *gap_3[48];
    struct ort_status *(*tensor_data)(struct ort_value *, void **); /* 51 */
    void *gap_52[3];
    struct ort_status *(*shape_of_type)(const struct ort_type *, const struct ort_shape **); /* 55 */
    struct ort_status *(*kind_of_type)(const struct ort_type *, int *);                      /* 56 */
    void *gap_57[3];
    struct ort_status *(*element)(const struct ort_shape *, int *);                /* 60 */
    struct ort_status *(*rank)(const struct ort_shape *, size_t *);                /* 61 */
    struct ort_status *(*dimensions)(const struct ort_shape *, int64_t *, size_t); /* 62 */
    void *gap_63[2];
    struct ort_status *(*shape_of_value)(const struct ort_value *, struct ort_shape **); /* 65 */
    void *gap_66[22];
    struct ort_status *(*count_inputs)(const struct ort_context *, size_t *);                       /* 88 */
    struct ort_status *(*count_outputs)(const struct ort_context *, size_t *);                      /* 89 */
    struct ort_status *(*input)(const struct ort_context *, size_t, const struct ort_value **);     /* 90 */
    struct ort_status *(*output)(struct ort_context *, size_t, const int64_t *, size_t, struct ort_value **);
    void *gap_92;
    void (*release_status)(struct ort_status *); /* 93 */
    void *gap_94[2];
    void (*release_value)(struct ort_value *); /* 96 */
    void *gap_97[2];
    void (*release_shape)(struct ort_shape *); /* 99 */
    void *gap_100[172];
    struct ort_status *(*read_attribute)(const struct ort_attribute *, int, void *, size_t, size_t *); /* 272 */
    void *gap_273[16];
    struct ort_status *(*info_name)(const struct ort_info *, const char **);            /* 289 */
    struct ort_status *(*info_type)(const struct ort_info *, const struct ort_type **); /* 290 */
    void *gap_291[7];
    void (*pairs)(const struct ort_pairs *, const char *const **, const char *const **, size_t *); /* 298 */
    void *gap_299;
    void (*release_pairs)(struct ort_pairs *); /* 300 */
    void *gap_301[16];
    const struct ort_provider_api *(*provider_api)(void);                     /* 317 */
    struct ort_status *(*tensor_bytes)(const struct ort_value *, size_t *);   /* 318 */
    void *gap_319[7];
    struct ort_status *(*initializer)(const struct ort_info *, const struct ort_value **); /* 326 */
    void *gap_327[4];
    struct ort_status *(*is_constant)(const struct ort_info *, bool *); /* 331 */
    struct ort_status *(*is_outer)(const struct ort_info *, bool *);    /* 332 */
    void *gap_333;
    struct ort_status *(*model_path)(const struct ort_graph *, const char **);     /* 334 */
    struct ort_status *(*ir_version)(const struct ort_graph *, int64_t *);         /* 335 */
    struct ort_status *(*count_opsets)(const struct ort_graph *, size_t *);        /* 336 */
    struct ort_status *(*opsets)(const struct ort_graph *, const char **, int64_t *, size_t);
    void *gap_338[2];
    struct ort_status *(*count_graph_outputs)(const struct ort_graph *, size_t *); /* 340 */
    struct ort_status *(*graph_outputs)(const struct ort_graph *, const struct ort_info **, size_t);
    struct ort_status *(*count_initializers)(const struct ort_graph *, size_t *);  /* 342 */
    struct ort_status *(*initializers)(const struct ort_graph *, const struct ort_info **, size_t);
    struct ort_status *(*count_nodes)(const struct ort_graph *, size_t *);         /* 344 */
    struct ort_status *(*nodes)(const struct ort_graph *, const struct ort_node **, size_t);
    struct ort_status *(*parent)(const struct ort_graph *, const struct ort_node **); /* 346 */
    void *gap_347[2];
    struct ort_status *(*node_name)(const struct ort_node *, const char **);   /* 349 */
    struct ort_status *(*node_kind)(const struct ort_node *, const char **);   /* 350 */
    struct ort_status *(*node_domain)(const struct ort_node *, const char **); /* 351 */
    void *gap_352;
    struct ort_status *(*count_node_inputs)(const struct ort_node *, size_t *);  /* 353 */
    struct ort_status *(*node_inputs)(const struct ort_node *, const struct ort_info **, size_t);
    struct ort_status *(*count_node_outputs)(const struct ort_node *, size_t *); /* 355 */
    struct ort_status *(*node_outputs)(const struct ort_node *, const struct ort_info **, size_t);
    struct ort_status *(*count_node_captures)(const struct ort_node *, size_t *); /* 357 */
    struct ort_status *(*node_captures)(const struct ort_node *, const struct ort_info **, size_t);
    struct ort_status *(*count_attributes)(const struct ort_node *, size_t *);   /* 359 */
    struct ort_status *(*attributes)(const struct ort_node *, const struct ort_attribute **, size_t);
    void *gap_361;
    struct ort_status *(*attribute_tensor)(const struct ort_attribute *, struct ort_value **); /* 362 */
    struct ort_status *(*attribute_type)(const struct ort_attribute *, int *);                 /* 363 */
    struct ort_status *(*attribute_name)(const struct ort_attribute *, const char **);         /* 364 */
    struct ort_status *(*count_bodies)(const struct ort_node *, size_t *);                     /* 365 */
    void *gap_366[13];
    struct ort_status *(*settings)(const struct ort_options *, struct ort_pairs **); /* 379 */
    void *gap_380[10];
    bool (*has_shape)(const struct ort_shape *); /* 390 */
};

#define ORT_AT(table, member, place) \
    _Static_assert(offsetof(struct table, member) == (place) * sizeof(void *), #member)
ORT_AT(ort_provider_api, create_hardware, 16);
ORT_AT(ort_api, tensor_data, 51);
ORT_AT(ort_api, shape_of_value, 65);
ORT_AT(ort_api, output, 91);
ORT_AT(ort_api, release_shape, 99);
ORT_AT(ort_api, read_attribute, 272);
ORT_AT(ort_api, pairs, 298);
ORT_AT(ort_api, tensor_bytes, 318);
ORT_AT(ort_api, initializer, 326);
ORT_AT(ort_api, is_constant, 331);
ORT_AT(ort_api, opsets, 337);
ORT_AT(ort_api, parent, 346);
ORT_AT(ort_api, node_outputs, 356);
ORT_AT(ort_api, node_captures, 358);
ORT_AT(ort_api, count_bodies, 365);
ORT_AT(ort_api, settings, 379);
ORT_AT(ort_api, has_shape, 390);

struct ort_base {
    const struct ort_api *(*api)(uint32_t version); /* NULL: the runtime is older */
    const char *(*version)(void);
};

struct ort_fusion {
    uint32_t version;
    bool drop_constants;
};

struct ort_kernel {
    uint32_t version;
    struct ort_status *(*create_state)(struct ort_kernel *, void *, void **);
    struct ort_status *(*compute)(struct ort_kernel *, void *, struct ort_context *);
    void (*release_state)(struct ort_kernel *, void *);
};

struct ort_ep {
    uint32_t version;
    const char *(*name)(const struct ort_ep *);
    struct ort_status *(*capability)(struct ort_ep *, const struct ort_graph *, struct ort_support *);
    struct ort_status *(*compile)(struct ort_ep *, const struct ort_graph **, const struct ort_node **, size_t,
                                  struct ort_kernel **, struct ort_node **);
    void (*release_kernels)(struct ort_ep *, struct ort_kernel **, size_t);
    void *absent[32];
};

struct ort_factory {
    uint32_t version;
    const char *(*name)(const struct ort_factory *);
    const char *(*vendor)(const struct ort_factory *);
    struct ort_status *(*devices)(struct ort_factory *, const struct ort_hardware *const *, size_t,
                                  struct ort_device **, size_t, size_t *);
    struct ort_status *(*create)(struct ort_factory *, const struct ort_hardware *const *,
                                 const struct ort_pairs *const *, size_t, const struct ort_options *,
                                 const struct ort_logger *, struct ort_ep **);
    void (*release)(struct ort_factory *, struct ort_ep *);
    uint32_t (*vendor_id)(const struct ort_factory *);
    const char *(*release_text)(const struct ort_factory *);
    void *no_compatibility, *no_allocator, *no_release_allocator;
    struct ort_status *(*data_transfer)(struct ort_factory *, void **);
    bool (*has_streams)(const struct ort_factory *);
    void *absent[32];
};

#endif
