/* The vendor driver's ioctls (0.9.8), from the facts about its public header. */
#ifndef RKNPU_UAPI_H
#define RKNPU_UAPI_H
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

struct rknpu_action {
    uint32_t flags;
    uint32_t value;
};

struct rknpu_mem_create {
    uint32_t handle;
    uint32_t flags;
    uint64_t size;
    uint64_t obj_addr;
    uint64_t dma_addr;
    uint64_t sram_size;
    int32_t iommu_domain_id;
    uint32_t core_mask;
};

struct rknpu_mem_map {
    uint32_t handle;
    uint32_t reserved;
    uint64_t offset;
};

struct rknpu_mem_destroy {
    uint32_t handle;
    uint32_t reserved;
    uint64_t obj_addr;
};

struct rknpu_mem_sync {
    uint32_t flags;
    uint32_t reserved;
    uint64_t obj_addr;
    uint64_t offset;
    uint64_t size;
};

struct rknpu_task {
    uint32_t flags;
    uint32_t op_idx;
    uint32_t enable_mask;
    uint32_t int_mask;
    uint32_t int_clear;
    uint32_t int_status;
    uint32_t regcfg_amount;
    uint32_t regcfg_offset;
    uint64_t regcmd_addr;
} __attribute__((packed));

struct rknpu_subcore_task {
    uint32_t task_start;
    uint32_t task_number;
};

struct rknpu_submit {
    uint32_t flags;
    uint32_t timeout;
    uint32_t task_start;
    uint32_t task_number;
    uint32_t task_counter;
    int32_t priority;
    uint64_t task_obj_addr;
    uint32_t iommu_domain_id;
    uint32_t reserved;
    uint64_t task_base_addr;
    int64_t hw_elapse_time;
    uint32_t core_mask;
    int32_t fence_fd;
    struct rknpu_subcore_task subcore_task[5];
};

struct drm_version {
    int32_t version_major;
    int32_t version_minor;
    int32_t version_patchlevel;
    uint64_t name_len;
    char *name;
    uint64_t date_len;
    char *date;
    uint64_t desc_len;
    char *desc;
};

#define DRM_IOCTL_VERSION _IOWR('d', 0x00, struct drm_version)
#define DRM_IOCTL_RKNPU_ACTION _IOWR('d', 0x40, struct rknpu_action)
#define DRM_IOCTL_RKNPU_SUBMIT _IOWR('d', 0x41, struct rknpu_submit)
#define DRM_IOCTL_RKNPU_MEM_CREATE _IOWR('d', 0x42, struct rknpu_mem_create)
#define DRM_IOCTL_RKNPU_MEM_MAP _IOWR('d', 0x43, struct rknpu_mem_map)
#define DRM_IOCTL_RKNPU_MEM_DESTROY _IOWR('d', 0x44, struct rknpu_mem_destroy)
#define DRM_IOCTL_RKNPU_MEM_SYNC _IOWR('d', 0x45, struct rknpu_mem_sync)

enum { RKNPU_GET_HW_VERSION, RKNPU_GET_DRV_VERSION, RKNPU_GET_FREQ };
enum { RKNPU_JOB_PC = 1, RKNPU_JOB_NONBLOCK = 2, RKNPU_JOB_PINGPONG = 4, RKNPU_JOB_FENCE_OUT = 16 };
enum { RKNPU_MEM_NON_CONTIGUOUS = 1, RKNPU_MEM_CACHEABLE = 2, RKNPU_MEM_KERNEL_MAPPING = 8 };

#define RKNPU_IS(condition) _Static_assert(condition, #condition)
RKNPU_IS(sizeof(struct rknpu_action) == 8);
RKNPU_IS(sizeof(struct rknpu_mem_create) == 48);
RKNPU_IS(sizeof(struct rknpu_mem_map) == 16);
RKNPU_IS(sizeof(struct rknpu_mem_destroy) == 16);
RKNPU_IS(sizeof(struct rknpu_mem_sync) == 32);
RKNPU_IS(sizeof(struct rknpu_task) == 40);
RKNPU_IS(sizeof(struct rknpu_submit) == 104);
RKNPU_IS(offsetof(struct rknpu_submit, task_obj_addr) == 24);
RKNPU_IS(offsetof(struct rknpu_submit, hw_elapse_time) == 48);
RKNPU_IS(offsetof(struct rknpu_submit, subcore_task) == 64);
RKNPU_IS(sizeof(struct drm_version) == 64);
RKNPU_IS(DRM_IOCTL_VERSION == 0xC0406400);
RKNPU_IS(DRM_IOCTL_RKNPU_ACTION == 0xC0086440);
RKNPU_IS(DRM_IOCTL_RKNPU_SUBMIT == 0xC0686441);
RKNPU_IS(DRM_IOCTL_RKNPU_MEM_CREATE == 0xC0306442);
RKNPU_IS(DRM_IOCTL_RKNPU_MEM_MAP == 0xC0106443);
RKNPU_IS(DRM_IOCTL_RKNPU_MEM_DESTROY == 0xC0106444);
RKNPU_IS(DRM_IOCTL_RKNPU_MEM_SYNC == 0xC0206445);

#endif
