"""Structures and numbers of both kernel interfaces and of the DRM core, as 64-bit programs see them.

The layouts are those of the public headers (`rknpu_ioctl.h` 0.9.8, `rocket_accel.h`, `drm.h`,
`dma-buf.h`, `sync_file.h`); the tests hold every size and offset against the table of facts.
"""

from __future__ import annotations

import ctypes as ct
from typing import TYPE_CHECKING, Any, Self

IOC_WRITE, IOC_READ = 1, 2
"""Direction bits of an ioctl number: the program writes to the kernel, reads from it."""

DRM_TYPE, DRIVER_BASE, DRIVER_END = 0x64, 0x40, 0xA0
"""The letter 'd', and the numbers of a driver's own commands within DRM's."""


def ioc(direction: int, kind: int, number: int, size: int) -> int:
    """An ioctl number as `_IOC` makes it."""
    return direction << 30 | size << 16 | kind << 8 | number


def ioc_direction(request: int) -> int:
    """`IOC_READ` and `IOC_WRITE` of an ioctl number."""
    return request >> 30 & 3


def ioc_size(request: int) -> int:
    """Bytes of the structure."""
    return request >> 16 & 0x3FFF


def ioc_number(request: int) -> int:
    """The command within its type."""
    return request & 0xFF


class Struct(ct.LittleEndianStructure):
    """A structure of the interface; `of` fills one from bytes, missing ones being zero."""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The structure that `data` begins with."""
        return cls.from_buffer_copy(data[: ct.sizeof(cls)].ljust(ct.sizeof(cls), b"\0"))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


_u32, _s32, _u64, _s64 = ct.c_uint32, ct.c_int32, ct.c_uint64, ct.c_int64

# rknpu


class Action(Struct):
    """Get or set one thing."""

    _fields_ = [("flags", _u32), ("value", _u32)]


class MemCreate(Struct):
    """48 bytes since 0.9.6; 40 and 32 before."""

    _fields_ = [
        ("handle", _u32),
        ("flags", _u32),
        ("size", _u64),
        ("obj_addr", _u64),
        ("dma_addr", _u64),
        ("sram_size", _u64),
        ("iommu_domain_id", _s32),
        ("core_mask", _u32),
    ]


class MemMap(Struct):
    """Asks for the mmap offset."""

    _fields_ = [("handle", _u32), ("reserved", _u32), ("offset", _u64)]


class MemDestroy(Struct):
    """Gives up a handle."""

    _fields_ = [("handle", _u32), ("reserved", _u32), ("obj_addr", _u64)]


class MemSync(Struct):
    """Cache maintenance."""

    _fields_ = [("flags", _u32), ("reserved", _u32), ("obj_addr", _u64), ("offset", _u64), ("size", _u64)]


class RknpuTask(Struct):
    """A record of the task buffer."""

    _pack_ = 1
    _fields_ = [
        ("flags", _u32),
        ("op_idx", _u32),
        ("enable_mask", _u32),
        ("int_mask", _u32),
        ("int_clear", _u32),
        ("int_status", _u32),
        ("regcfg_amount", _u32),
        ("regcfg_offset", _u32),
        ("regcmd_addr", _u64),
    ]


class SubcoreTask(Struct):
    """The tasks of one core."""

    _fields_ = [("task_start", _u32), ("task_number", _u32)]


class RknpuSubmit(Struct):
    """A job."""

    _fields_ = [
        ("flags", _u32),
        ("timeout", _u32),
        ("task_start", _u32),
        ("task_number", _u32),
        ("task_counter", _u32),
        ("priority", _s32),
        ("task_obj_addr", _u64),
        ("iommu_domain_id", _u32),
        ("reserved", _u32),
        ("task_base_addr", _u64),
        ("hw_elapse_time", _s64),
        ("core_mask", _u32),
        ("fence_fd", _s32),
        ("subcore_task", SubcoreTask * 5),
    ]


MEM_NON_CONTIGUOUS, MEM_CACHEABLE, MEM_WRITE_COMBINE, MEM_KERNEL_MAPPING = 0x1, 0x2, 0x4, 0x8
MEM_TRY_ALLOC_SRAM, MEM_LIMIT_IOVA_ALIGNMENT = 0x100, 0x400
JOB_PC, JOB_NONBLOCK, JOB_PINGPONG, JOB_FENCE_IN, JOB_FENCE_OUT = 0x1, 0x2, 0x4, 0x8, 0x10

# rocket


class CreateBo(Struct):
    """A buffer."""

    _fields_ = [("size", _u32), ("handle", _u32), ("dma_address", _u64), ("offset", _u64)]


class PrepBo(Struct):
    """Waits for a buffer."""

    _fields_ = [("handle", _u32), ("reserved", _u32), ("timeout_ns", _s64)]


class FiniBo(Struct):
    """Ends the CPU's use of a buffer."""

    _fields_ = [("handle", _u32), ("reserved", _u32)]


class RocketTask(Struct):
    """One command list."""

    _fields_ = [("regcmd", _u32), ("regcmd_count", _u32)]


class RocketJob(Struct):
    """Tasks with their buffers."""

    _fields_ = [
        ("tasks", _u64),
        ("in_bo_handles", _u64),
        ("out_bo_handles", _u64),
        ("task_count", _u32),
        ("task_struct_size", _u32),
        ("in_bo_handle_count", _u32),
        ("out_bo_handle_count", _u32),
    ]


class RocketSubmit(Struct):
    """Several jobs."""

    _fields_ = [("jobs", _u64), ("job_count", _u32), ("job_struct_size", _u32), ("reserved", _u64)]


# DRM core


class Version(Struct):
    """Who the driver is."""

    _fields_ = [
        ("version_major", _s32),
        ("version_minor", _s32),
        ("version_patchlevel", _s32),
        ("pad", _s32),
        ("name_len", _u64),
        ("name", _u64),
        ("date_len", _u64),
        ("date", _u64),
        ("desc_len", _u64),
        ("desc", _u64),
    ]


class Unique(Struct):
    """The bus id."""

    _fields_ = [("unique_len", _u64), ("unique", _u64)]


class Auth(Struct):
    """A magic."""

    _fields_ = [("magic", _u32)]


class GemClose(Struct):
    """Gives up a handle."""

    _fields_ = [("handle", _u32), ("pad", _u32)]


class GemFlink(Struct):
    """Makes a global name."""

    _fields_ = [("handle", _u32), ("name", _u32)]


class GemOpen(Struct):
    """Opens a global name."""

    _fields_ = [("name", _u32), ("handle", _u32), ("size", _u64)]


class GetCap(Struct):
    """A capability."""

    _fields_ = [("capability", _u64), ("value", _u64)]


class PrimeHandle(Struct):
    """Handle to descriptor and back."""

    _fields_ = [("handle", _u32), ("flags", _u32), ("fd", _s32)]


class CreateDumb(Struct):
    """A buffer by width and height."""

    _fields_ = [
        ("height", _u32),
        ("width", _u32),
        ("bpp", _u32),
        ("flags", _u32),
        ("handle", _u32),
        ("pitch", _u32),
        ("size", _u64),
    ]


class MapDumb(Struct):
    """Asks for the mmap offset."""

    _fields_ = [("handle", _u32), ("pad", _u32), ("offset", _u64)]


class DestroyDumb(Struct):
    """Gives up a handle."""

    _fields_ = [("handle", _u32)]


CAP_PRIME, CAP_TIMESTAMP_MONOTONIC, CAP_SYNCOBJ, CAP_SYNCOBJ_TIMELINE = 0x5, 0x6, 0x13, 0x14

# dma-buf and sync_file


class DmaBufSync(Struct):
    """Begin or end of CPU access."""

    _fields_ = [("flags", _u64)]


class SyncMerge(Struct):
    """Two sync files in one."""

    _fields_ = [("name", ct.c_char * 32), ("fd2", _s32), ("fence", _s32), ("flags", _u32), ("pad", _u32)]


class SyncFileInfo(Struct):
    """State of a sync file."""

    _fields_ = [
        ("name", ct.c_char * 32),
        ("status", _s32),
        ("flags", _u32),
        ("num_fences", _u32),
        ("pad", _u32),
        ("sync_fence_info", _u64),
    ]


class SyncFenceInfo(Struct):
    """State of one fence of it."""

    _fields_ = [
        ("obj_name", ct.c_char * 32),
        ("driver_name", ct.c_char * 32),
        ("status", _s32),
        ("flags", _u32),
        ("timestamp_ns", _u64),
    ]


def _drm(number: int, direction: int, struct: type[Struct]) -> int:
    return ioc(direction, DRM_TYPE, number, ct.sizeof(struct))


_BOTH = IOC_READ | IOC_WRITE

RKNPU_ACTION = _drm(0x40, _BOTH, Action)
RKNPU_SUBMIT = _drm(0x41, _BOTH, RknpuSubmit)
RKNPU_MEM_CREATE = _drm(0x42, _BOTH, MemCreate)
RKNPU_MEM_CREATE_40 = ioc(_BOTH, DRM_TYPE, 0x42, 40)
RKNPU_MEM_CREATE_32 = ioc(_BOTH, DRM_TYPE, 0x42, 32)
RKNPU_MEM_MAP = _drm(0x43, _BOTH, MemMap)
RKNPU_MEM_DESTROY = _drm(0x44, _BOTH, MemDestroy)
RKNPU_MEM_SYNC = _drm(0x45, _BOTH, MemSync)

ROCKET_CREATE_BO = _drm(0x40, _BOTH, CreateBo)
ROCKET_SUBMIT = _drm(0x41, IOC_WRITE, RocketSubmit)
ROCKET_PREP_BO = _drm(0x42, IOC_WRITE, PrepBo)
ROCKET_FINI_BO = _drm(0x43, IOC_WRITE, FiniBo)

DRM_VERSION = _drm(0x00, _BOTH, Version)
DRM_GET_UNIQUE = _drm(0x01, _BOTH, Unique)
DRM_GET_MAGIC = _drm(0x02, IOC_READ, Auth)
DRM_AUTH_MAGIC = _drm(0x11, IOC_WRITE, Auth)
DRM_GEM_CLOSE = _drm(0x09, IOC_WRITE, GemClose)
DRM_GEM_FLINK = _drm(0x0A, _BOTH, GemFlink)
DRM_GEM_OPEN = _drm(0x0B, _BOTH, GemOpen)
DRM_GET_CAP = _drm(0x0C, _BOTH, GetCap)
DRM_PRIME_HANDLE_TO_FD = _drm(0x2D, _BOTH, PrimeHandle)
DRM_PRIME_FD_TO_HANDLE = _drm(0x2E, _BOTH, PrimeHandle)
DRM_CREATE_DUMB = _drm(0xB2, _BOTH, CreateDumb)
DRM_MAP_DUMB = _drm(0xB3, _BOTH, MapDumb)
DRM_DESTROY_DUMB = _drm(0xB4, _BOTH, DestroyDumb)

DMA_BUF_SYNC = ioc(IOC_WRITE, ord("b"), 0, ct.sizeof(DmaBufSync))
SYNC_MERGE = ioc(_BOTH, ord(">"), 3, ct.sizeof(SyncMerge))
SYNC_FILE_INFO = ioc(_BOTH, ord(">"), 4, ct.sizeof(SyncFileInfo))
