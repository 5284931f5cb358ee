/* The mainline driver's ioctls (Linux 6.18), from the facts about its public header. */
#ifndef ROCKET_UAPI_H
#define ROCKET_UAPI_H
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

struct drm_rocket_create_bo {
    uint32_t size;
    uint32_t handle;
    uint64_t dma_address;
    uint64_t offset;
};

struct drm_rocket_prep_bo {
    uint32_t handle;
    uint32_t reserved;
    int64_t timeout_ns;
};

struct drm_rocket_fini_bo {
    uint32_t handle;
    uint32_t reserved;
};

struct drm_rocket_task {
    uint32_t regcmd;
    uint32_t regcmd_count;
};

struct drm_rocket_job {
    uint64_t tasks;
    uint64_t in_bo_handles;
    uint64_t out_bo_handles;
    uint32_t task_count;
    uint32_t task_struct_size;
    uint32_t in_bo_handle_count;
    uint32_t out_bo_handle_count;
};

struct drm_rocket_submit {
    uint64_t jobs;
    uint32_t job_count;
    uint32_t job_struct_size;
    uint64_t reserved;
};

#define DRM_IOCTL_ROCKET_CREATE_BO _IOWR('d', 0x40, struct drm_rocket_create_bo)
#define DRM_IOCTL_ROCKET_SUBMIT _IOW('d', 0x41, struct drm_rocket_submit)
#define DRM_IOCTL_ROCKET_PREP_BO _IOW('d', 0x42, struct drm_rocket_prep_bo)
#define DRM_IOCTL_ROCKET_FINI_BO _IOW('d', 0x43, struct drm_rocket_fini_bo)

#define ROCKET_IS(condition) _Static_assert(condition, #condition)
ROCKET_IS(sizeof(struct drm_rocket_create_bo) == 24);
ROCKET_IS(sizeof(struct drm_rocket_prep_bo) == 16);
ROCKET_IS(sizeof(struct drm_rocket_fini_bo) == 8);
ROCKET_IS(sizeof(struct drm_rocket_task) == 8);
ROCKET_IS(sizeof(struct drm_rocket_job) == 40);
ROCKET_IS(sizeof(struct drm_rocket_submit) == 24);
ROCKET_IS(DRM_IOCTL_ROCKET_CREATE_BO == 0xC0186440);
ROCKET_IS(DRM_IOCTL_ROCKET_SUBMIT == 0x40186441);
ROCKET_IS(DRM_IOCTL_ROCKET_PREP_BO == 0x40106442);
ROCKET_IS(DRM_IOCTL_ROCKET_FINI_BO == 0x40086443);

#endif
