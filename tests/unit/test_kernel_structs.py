"""Sizes, offsets and numbers of the kernel interfaces, against the values in the public headers."""

from __future__ import annotations

import ctypes as ct

import pytest

from rkcosim.driver.kernel import structs as s

LAYOUTS = {
    "Action": (8, "flags@0:4 value@4:4"),
    "MemCreate": (
        48,
        "handle@0:4 flags@4:4 size@8:8 obj_addr@16:8 dma_addr@24:8 sram_size@32:8 iommu_domain_id@40:4 "
        "core_mask@44:4",
    ),
    "MemMap": (16, "handle@0:4 reserved@4:4 offset@8:8"),
    "MemDestroy": (16, "handle@0:4 reserved@4:4 obj_addr@8:8"),
    "MemSync": (32, "flags@0:4 reserved@4:4 obj_addr@8:8 offset@16:8 size@24:8"),
    "RknpuTask": (
        40,
        "flags@0:4 op_idx@4:4 enable_mask@8:4 int_mask@12:4 int_clear@16:4 int_status@20:4 "
        "regcfg_amount@24:4 regcfg_offset@28:4 regcmd_addr@32:8",
    ),
    "SubcoreTask": (8, "task_start@0:4 task_number@4:4"),
    "RknpuSubmit": (
        104,
        "flags@0:4 timeout@4:4 task_start@8:4 task_number@12:4 task_counter@16:4 priority@20:4 "
        "task_obj_addr@24:8 iommu_domain_id@32:4 reserved@36:4 task_base_addr@40:8 hw_elapse_time@48:8 "
        "core_mask@56:4 fence_fd@60:4 subcore_task@64:40",
    ),
    "CreateBo": (24, "size@0:4 handle@4:4 dma_address@8:8 offset@16:8"),
    "PrepBo": (16, "handle@0:4 reserved@4:4 timeout_ns@8:8"),
    "FiniBo": (8, "handle@0:4 reserved@4:4"),
    "BoRange": (16, "offset@0:8 size@8:8"),
    "PrepBoRanges": (32, "handle@0:4 range_count@4:4 ranges@8:8 timeout_ns@16:8 reserved@24:8"),
    "FiniBoRanges": (24, "handle@0:4 range_count@4:4 ranges@8:8 reserved@16:8"),
    "RocketJobFlags": (8, "flags@0:4 reserved@4:4"),
    "HeapAllocation": (24, "len@0:8 fd@8:4 fd_flags@12:4 heap_flags@16:8"),
    "RocketTask": (8, "regcmd@0:4 regcmd_count@4:4"),
    "RocketJob": (
        40,
        "tasks@0:8 in_bo_handles@8:8 out_bo_handles@16:8 task_count@24:4 task_struct_size@28:4 "
        "in_bo_handle_count@32:4 out_bo_handle_count@36:4",
    ),
    "RocketSubmit": (24, "jobs@0:8 job_count@8:4 job_struct_size@12:4 reserved@16:8"),
    "Version": (
        64,
        "version_major@0:4 version_minor@4:4 version_patchlevel@8:4 name_len@16:8 name@24:8 date_len@32:8 "
        "date@40:8 desc_len@48:8 desc@56:8",
    ),
    "Unique": (16, "unique_len@0:8 unique@8:8"),
    "Auth": (4, "magic@0:4"),
    "GemClose": (8, "handle@0:4 pad@4:4"),
    "GemFlink": (8, "handle@0:4 name@4:4"),
    "GemOpen": (16, "name@0:4 handle@4:4 size@8:8"),
    "GetCap": (16, "capability@0:8 value@8:8"),
    "PrimeHandle": (12, "handle@0:4 flags@4:4 fd@8:4"),
    "CreateDumb": (32, "height@0:4 width@4:4 bpp@8:4 flags@12:4 handle@16:4 pitch@20:4 size@24:8"),
    "MapDumb": (16, "handle@0:4 pad@4:4 offset@8:8"),
    "DestroyDumb": (4, "handle@0:4"),
    "SyncMerge": (48, "name@0:32 fd2@32:4 fence@36:4 flags@40:4 pad@44:4"),
    "SyncFileInfo": (56, "name@0:32 status@32:4 flags@36:4 num_fences@40:4 sync_fence_info@48:8"),
    "SyncFenceInfo": (80, "obj_name@0:32 driver_name@32:32 status@64:4 flags@68:4 timestamp_ns@72:8"),
}

NUMBERS = {
    "RKNPU_ACTION": 0xC0086440,
    "RKNPU_SUBMIT": 0xC0686441,
    "RKNPU_MEM_CREATE": 0xC0306442,
    "RKNPU_MEM_CREATE_40": 0xC0286442,
    "RKNPU_MEM_CREATE_32": 0xC0206442,
    "RKNPU_MEM_MAP": 0xC0106443,
    "RKNPU_MEM_DESTROY": 0xC0106444,
    "RKNPU_MEM_SYNC": 0xC0206445,
    "ROCKET_CREATE_BO": 0xC0186440,
    "ROCKET_SUBMIT": 0x40186441,
    "ROCKET_PREP_BO": 0x40106442,
    "ROCKET_FINI_BO": 0x40086443,
    "DRM_VERSION": 0xC0406400,
    "DRM_GET_UNIQUE": 0xC0106401,
    "DRM_GET_MAGIC": 0x80046402,
    "DRM_AUTH_MAGIC": 0x40046411,
    "DRM_GEM_CLOSE": 0x40086409,
    "DRM_GEM_FLINK": 0xC008640A,
    "DRM_GEM_OPEN": 0xC010640B,
    "DRM_GET_CAP": 0xC010640C,
    "DRM_PRIME_HANDLE_TO_FD": 0xC00C642D,
    "DRM_PRIME_FD_TO_HANDLE": 0xC00C642E,
    "DRM_CREATE_DUMB": 0xC02064B2,
    "DRM_MAP_DUMB": 0xC01064B3,
    "DRM_DESTROY_DUMB": 0xC00464B4,
    "DMA_BUF_SYNC": 0x40086200,
    "SYNC_MERGE": 0xC0303E03,
    "SYNC_FILE_INFO": 0xC0383E04,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str) -> None:
    size, fields = LAYOUTS[name]
    struct = getattr(s, name)
    assert ct.sizeof(struct) == size
    for field in fields.split():
        place, _, width = field.partition(":")
        member, _, offset = place.partition("@")
        described = getattr(struct, member)
        assert (described.offset, described.size) == (int(offset), int(width)), field


def test_signed_fields() -> None:
    for struct, member in (
        (s.MemCreate, "iommu_domain_id"),
        (s.RknpuSubmit, "priority"),
        (s.RknpuSubmit, "hw_elapse_time"),
        (s.RknpuSubmit, "fence_fd"),
        (s.PrepBo, "timeout_ns"),
        (s.PrimeHandle, "fd"),
    ):
        assert getattr(struct.of(b"\xff" * 104), member) == -1
    assert s.Action.of(b"\xff" * 8).value == 0xFFFFFFFF


def test_numbers() -> None:
    assert {name: hex(getattr(s, name)) for name in NUMBERS} == {n: hex(v) for n, v in NUMBERS.items()}


def test_every_struct_is_covered() -> None:
    structs = {
        name for name, item in vars(s).items() if isinstance(item, type) and issubclass(item, s.Struct)
    }
    assert structs - {"Struct", "DmaBufSync"} == set(LAYOUTS)


def test_older_sizes_fill_with_zero() -> None:
    short = s.MemCreate.of(b"\1\0\0\0")
    assert (short.handle, short.size, short.iommu_domain_id) == (1, 0, 0)
    assert s.MemCreate.iommu_domain_id.offset == 40 and s.MemCreate.sram_size.offset == 32
