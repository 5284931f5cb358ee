"""Structures and numbers of both kernel interfaces and of the DRM core, as 64-bit programs see them.

The layouts are those of the public headers (`rknpu_ioctl.h` 0.9.8, `rocket_accel.h`, `drm.h`,
`dma-buf.h`, `dma-heap.h`, `sync_file.h`); the tests compare every size and offset with the table of facts.
"""

from __future__ import annotations

import ctypes as ct
from typing import TYPE_CHECKING, Any, Self

IOC_WRITE, IOC_READ = 1, 2
"""Direction bits of an ioctl number: the program passes data to the kernel, receives data from it."""

DRM_TYPE, DRIVER_BASE, DRIVER_END = 0x64, 0x40, 0xA0
"""The letter 'd', and the numbers of a driver's commands within those of DRM."""


def ioc(direction: int, kind: int, number: int, size: int) -> int:
    """Build an ioctl number as `_IOC` does."""
    return direction << 30 | size << 16 | kind << 8 | number


def ioc_direction(request: int) -> int:
    """`IOC_READ` and `IOC_WRITE` of an ioctl number."""
    return request >> 30 & 3


def ioc_size(request: int) -> int:
    """Size of the structure in bytes."""
    return request >> 16 & 0x3FFF


def ioc_number(request: int) -> int:
    """The command within its type."""
    return request & 0xFF


C_TYPES: dict[str, Any] = {
    **{f"u{bits}": getattr(ct, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": getattr(ct, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{"int": ct.c_int, "float": ct.c_float, "char": ct.c_char},
    **{"pointer": ct.c_void_p, "string": ct.c_char_p},
}
"""Types of members in `c_fields`: those of the kernel's headers, and `void *` and `char *`."""


def c_fields(text: str) -> list[tuple[str, Any]]:
    """The `_fields_` of a structure from its members in C syntax: `u32 flags, size; char name[32]`."""
    fields: list[tuple[str, Any]] = []
    for declaration in text.split(";"):
        kind, _, names = declaration.strip().partition(" ")
        for member in names.split(","):
            name, _, length = member.strip().rstrip("]").partition("[")
            fields.append((name, C_TYPES[kind] * int(length) if length else C_TYPES[kind]))
    return fields


class Struct(ct.LittleEndianStructure):
    """A structure of the interface; `of` fills one from bytes, with zeros for missing bytes."""

    @classmethod
    def of(cls, data: bytes) -> Self:
        """The structure at the beginning of `data`."""
        return cls.from_buffer_copy(data[: ct.sizeof(cls)].ljust(ct.sizeof(cls), b"\0"))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


# rknpu


class Action(Struct):
    """Get or set one value."""

    _fields_ = c_fields("u32 flags, value")


class MemCreate(Struct):
    """48 bytes since 0.9.6; 40 and 32 before."""

    _fields_ = c_fields(
        "u32 handle, flags; u64 size, obj_addr, dma_addr, sram_size; s32 iommu_domain_id; u32 core_mask"
    )


class MemMap(Struct):
    """Request the mmap offset."""

    _fields_ = c_fields("u32 handle, reserved; u64 offset")


class MemDestroy(Struct):
    """Close a handle."""

    _fields_ = c_fields("u32 handle, reserved; u64 obj_addr")


class MemSync(Struct):
    """Cache maintenance."""

    _fields_ = c_fields("u32 flags, reserved; u64 obj_addr, offset, size")


class RknpuTask(Struct):
    """Record of the task buffer."""

    _pack_ = 1
    _fields_ = c_fields(
        "u32 flags, op_idx, enable_mask, int_mask, int_clear, int_status, regcfg_amount, regcfg_offset; "
        "u64 regcmd_addr"
    )


class SubcoreTask(Struct):
    """The tasks of one core."""

    _fields_ = c_fields("u32 task_start, task_number")


class RknpuSubmit(Struct):
    """A job."""

    _fields_ = [
        *c_fields(
            "u32 flags, timeout, task_start, task_number, task_counter; s32 priority; u64 task_obj_addr"
        ),
        *c_fields("u32 iommu_domain_id, reserved; u64 task_base_addr; s64 hw_elapse_time; u32 core_mask"),
        ("fence_fd", ct.c_int32),
        ("subcore_task", SubcoreTask * 5),
    ]


MEM_NON_CONTIGUOUS, MEM_CACHEABLE, MEM_WRITE_COMBINE, MEM_KERNEL_MAPPING = 0x1, 0x2, 0x4, 0x8
MEM_TRY_ALLOC_SRAM, MEM_LIMIT_IOVA_ALIGNMENT = 0x100, 0x400
JOB_PC, JOB_NONBLOCK, JOB_PINGPONG, JOB_FENCE_IN, JOB_FENCE_OUT = 0x1, 0x2, 0x4, 0x8, 0x10

# rocket


class CreateBo(Struct):
    """A buffer."""

    _fields_ = c_fields("u32 size, handle; u64 dma_address, offset")


class PrepBo(Struct):
    """Wait for a buffer."""

    _fields_ = c_fields("u32 handle, reserved; s64 timeout_ns")


class FiniBo(Struct):
    """End the CPU's use of a buffer."""

    _fields_ = c_fields("u32 handle, reserved")


class BoRange(Struct):
    """Range of bytes of a buffer."""

    _fields_ = c_fields("u64 offset, size")


class PrepBoRanges(Struct):
    """As `PrepBo`, for ranges of bytes (interface 1.5)."""

    _fields_ = c_fields("u32 handle, range_count; u64 ranges; s64 timeout_ns; u64 reserved")


class FiniBoRanges(Struct):
    """As `FiniBo`, for ranges of bytes (interface 1.5)."""

    _fields_ = c_fields("u32 handle, range_count; u64 ranges, reserved")


class RocketTask(Struct):
    """One command list."""

    _fields_ = c_fields("u32 regcmd, regcmd_count")


class RocketJob(Struct):
    """Tasks with their buffers."""

    _fields_ = c_fields(
        "u64 tasks, in_bo_handles, out_bo_handles; "
        "u32 task_count, task_struct_size, in_bo_handle_count, out_bo_handle_count"
    )


class RocketJobFlags(Struct):
    """Members after a `RocketJob` (interface 1.1)."""

    _fields_ = c_fields("u32 flags, reserved")


class RocketSubmit(Struct):
    """Several jobs."""

    _fields_ = c_fields("u64 jobs; u32 job_count, job_struct_size; u64 reserved")


# DRM core


class Version(Struct):
    """Name and version of the driver."""

    _fields_ = c_fields(
        "s32 version_major, version_minor, version_patchlevel, pad; "
        "u64 name_len, name, date_len, date, desc_len, desc"
    )


class Unique(Struct):
    """The bus id."""

    _fields_ = c_fields("u64 unique_len, unique")


class Auth(Struct):
    """A magic."""

    _fields_ = c_fields("u32 magic")


class GemClose(Struct):
    """Close a handle."""

    _fields_ = c_fields("u32 handle, pad")


class GemFlink(Struct):
    """Create a global name."""

    _fields_ = c_fields("u32 handle, name")


class GemOpen(Struct):
    """Open a buffer by its global name."""

    _fields_ = c_fields("u32 name, handle; u64 size")


class GetCap(Struct):
    """A capability."""

    _fields_ = c_fields("u64 capability, value")


class PrimeHandle(Struct):
    """Conversion of a handle to a descriptor and back."""

    _fields_ = c_fields("u32 handle, flags; s32 fd")


class CreateDumb(Struct):
    """Create a buffer by width and height."""

    _fields_ = c_fields("u32 height, width, bpp, flags, handle, pitch; u64 size")


class MapDumb(Struct):
    """Request the mmap offset."""

    _fields_ = c_fields("u32 handle, pad; u64 offset")


class DestroyDumb(Struct):
    """Close a handle."""

    _fields_ = c_fields("u32 handle")


CAP_PRIME, CAP_TIMESTAMP_MONOTONIC, CAP_SYNCOBJ, CAP_SYNCOBJ_TIMELINE = 0x5, 0x6, 0x13, 0x14

# dma-buf and sync_file


class DmaBufSync(Struct):
    """Begin or end of CPU access."""

    _fields_ = c_fields("u64 flags")


class HeapAllocation(Struct):
    """Allocate memory from a heap; `fd` is the result."""

    _fields_ = c_fields("u64 len; u32 fd, fd_flags; u64 heap_flags")


class SyncMerge(Struct):
    """Merge two sync files."""

    _fields_ = c_fields("char name[32]; s32 fd2, fence; u32 flags, pad")


class SyncFileInfo(Struct):
    """State of a sync file."""

    _fields_ = c_fields("char name[32]; s32 status; u32 flags, num_fences, pad; u64 sync_fence_info")


class SyncFenceInfo(Struct):
    """State of one fence of a sync file."""

    _fields_ = c_fields("char obj_name[32], driver_name[32]; s32 status; u32 flags; u64 timestamp_ns")


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
ROCKET_PREP_BO_RANGES = _drm(0x44, IOC_WRITE, PrepBoRanges)
ROCKET_FINI_BO_RANGES = _drm(0x45, IOC_WRITE, FiniBoRanges)

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

DMA_HEAP_ALLOC = ioc(_BOTH, ord("H"), 0, ct.sizeof(HeapAllocation))
DMA_BUF_NAME = tuple(ioc(IOC_WRITE, ord("b"), 1, size) for size in (4, 8))
"""DMA_BUF_SET_NAME_A and _B: the argument is the address of a text."""
DMA_BUF_SYNC = ioc(IOC_WRITE, ord("b"), 0, ct.sizeof(DmaBufSync))
SYNC_MERGE = ioc(_BOTH, ord(">"), 3, ct.sizeof(SyncMerge))
SYNC_FILE_INFO = ioc(_BOTH, ord(">"), 4, ct.sizeof(SyncFileInfo))
