"""The vendor's interface on the golden device: identity, actions, buffers, generic DRM, submit."""

from __future__ import annotations

import ctypes as ct
import mmap
import os
from errno import EACCES, EBADF, EFAULT, EINVAL, ENOENT, ENOMEM, EOPNOTSUPP
from itertools import pairwise

import numpy as np
import pytest

from rkcosim.driver.kernel import Kernel, KernelError
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.heaps import HEAPS
from rkcosim.golden.task import GoldenNpu
from tests.makers.kernel_client import HIGH, LOW, RENDER, Program, submit_of, sums


@pytest.fixture
def kernel():
    with Kernel(GoldenNpu(strict=False)) as opened:
        yield opened


@pytest.fixture
def program(kernel: Kernel) -> Program:
    return Program(kernel)


def action(program: Program, code: int, value: int = 0) -> int:
    return program.ioctl(s.RKNPU_ACTION, s.Action(code, value)).value


def test_version_copies_what_fits_and_tells_the_lengths(program: Program) -> None:
    for room in (0, 3, 64):
        program.memory.write(LOW + 256, b"\xaa" * 64)
        told = program.ioctl(
            s.DRM_VERSION,
            s.Version(name_len=room, name=LOW + 256, desc_len=room, desc=LOW + 272, date_len=9, date=0),
        )
        assert (told.version_major, told.version_minor, told.version_patchlevel) == (0, 9, 8)
        assert (told.name_len, told.date_len, told.desc_len) == (5, 8, 12)
        assert program.memory.read(LOW + 256, 16) == b"rknpu"[:room].ljust(16, b"\xaa")
        assert program.memory.read(LOW + 272, 16) == b"RKNPU driver"[:room].ljust(16, b"\xaa")
    assert program.fails(s.DRM_VERSION, s.Version(name_len=9, name=HIGH - 2)) == EFAULT


def test_actions(program: Program) -> None:
    assert action(program, 0, 0xFFFFFFFF) == 1179210309
    assert action(program, 1) == 908
    assert action(program, 2) == 1_000_000_000
    assert action(program, 4) == 850_000
    assert action(program, 18) == 1
    assert action(program, 19, 0xFFFFFFED) == 0xFFFFFFED and program.file.nice == -19
    assert action(program, 22) == action(program, 23) == 0
    for code in (13, 14, 15, 16, 17):
        assert action(program, code, 77) == 77
    for code in (3, 5, 7, 8, 9, 10, 11, 12, 20, 21, 26, 0x100, 0xFFFFFFFF):
        assert program.fails(s.RKNPU_ACTION, s.Action(code, 5)) == EINVAL, code
    action(program, 25, 3)
    assert action(program, 24) == 3
    assert program.fails(s.RKNPU_ACTION, s.Action(25, 16)) == EINVAL
    action(program, 6)
    lines = [line.text for line in program.kernel.log]
    assert "RKNPU: soft reset, num: 6" in lines
    assert "RKNPU: switch iommu domain from 0 to 3" in lines


def test_dispatch_looks_at_the_number_only(program: Program) -> None:
    assert program.fails(0xC0086446, s.Action()) == EINVAL
    assert program.fails(0xC00864FF, s.Action()) == EINVAL
    assert program.fails(s.RKNPU_ACTION, s.Action(), at=HIGH - 4 - 4) == 0
    with pytest.raises(KernelError) as caught:
        program.file.ioctl(s.RKNPU_ACTION, HIGH - 4, program.memory, program.fds)
    assert caught.value.code == EFAULT
    # a larger structure than the driver's comes back whole, its tail untouched
    program.memory.write(LOW, b"\1\0\0\0\0\0\0\0tail")
    assert program.file.ioctl(s.ioc(3, 0x64, 0x40, 12), LOW, program.memory, program.fds) == 0
    assert program.memory.read(LOW, 12) == b"\1\0\0\0\x8c\3\0\0tail"
    # a smaller one is filled with zeros and cut: action 0 without room for its value
    program.memory.write(LOW, b"\0\0\0\0abcd")
    assert program.file.ioctl(s.ioc(3, 0x64, 0x40, 4), LOW, program.memory, program.fds) == 0
    assert program.memory.read(LOW, 8) == b"\0\0\0\0abcd"


@pytest.mark.parametrize("request_", [s.RKNPU_MEM_CREATE, s.RKNPU_MEM_CREATE_40, s.RKNPU_MEM_CREATE_32])
def test_mem_create_in_its_three_sizes(program: Program, request_: int) -> None:
    made = program.ioctl(request_, s.MemCreate(flags=0x40B, size=100, core_mask=7))
    assert (made.handle, made.flags, made.size, made.sram_size) == (1, 0x40B, 4096, 0)
    assert made.dma_addr == 0xFFFA7000 and made.obj_addr >> 32 == 0xFFFFFF81
    again = program.ioctl(request_, s.MemCreate(handle=1, size=1 << 40))
    assert (again.handle, again.size, again.obj_addr, again.dma_addr) == (
        1,
        4096,
        made.obj_addr,
        made.dma_addr,
    )


def test_addresses_of_the_captured_board() -> None:
    with Kernel(GoldenNpu(strict=False), guard_pages=0) as kernel:
        program, other = Program(kernel), Program(kernel, RENDER, pid=7)
        first, second = program.create(4096), program.create(229 * 4096)
        assert (first.iova, second.iova) == (0xFFFA7000, 0xFFEC2000)
        assert other.create(1).iova == 0xFFEC1000, "one space for all processes"
        offsets = [program.ioctl(s.RKNPU_MEM_MAP, s.MemMap(handle=h)).offset for h in (1, 2)]
        assert offsets == [0x1_0000_0000, 0x1_0000_1000]
        assert program.ioctl(s.RKNPU_MEM_MAP, s.MemMap(handle=2)).offset == 0x1_0000_1000
        aligned = program.create(5 * 4096, flags=3)
        assert aligned.iova % (8 * 4096) == 0


def test_guard_pages_and_domains(program: Program) -> None:
    buffers = sorted((program.create(size) for size in (1, 4096, 5000, 70000)), key=lambda b: b.iova)
    for low, high in pairwise(buffers):
        assert high.iova - low.iova - -(-low.size // 4096) * 4096 >= 4096
    assert program.create(1, domain=5).iova == 0xFFFA7000
    assert action(program, 24) == 5
    for domain in (-1, 16, 1 << 30):
        assert program.fails(s.RKNPU_MEM_CREATE, s.MemCreate(size=1, iommu_domain_id=domain)) == EINVAL


def test_bad_creations_change_nothing(program: Program) -> None:
    for size, errno in ((0, EINVAL), (1 << 32, ENOMEM), ((1 << 64) - 1, ENOMEM), (1 << 63, ENOMEM)):
        assert program.fails(s.RKNPU_MEM_CREATE, s.MemCreate(size=size)) == errno
    ram = program.kernel.rknpu.ram
    assert ram.used == 0 and not len(program.file.handles)
    assert program.fails(s.RKNPU_MEM_CREATE, s.MemCreate(size=0xF000_0000, flags=0x400)) == 0
    assert program.fails(s.RKNPU_MEM_CREATE, s.MemCreate(size=0xF000_0000)) == ENOMEM, "no addresses left"
    program.file.close()
    assert ram.used == 0


def test_mmap_rules(program: Program, kernel: Kernel) -> None:
    made = program.create(3 * 4096)
    offset = program.ioctl(s.RKNPU_MEM_MAP, s.MemMap(handle=made.handle)).offset
    program.map(offset, 3 * 4096 - 100)[:2] = 7, 8
    assert made.bytes[:2].tolist() == [7, 8]
    other = Program(kernel, pid=8)
    for file, at, length, flags, errno in (
        (program, offset, 3 * 4096 + 1, mmap.MAP_SHARED, EINVAL),
        (program, offset, 0, mmap.MAP_SHARED, EINVAL),
        (program, offset + 4096, 4096, mmap.MAP_SHARED, EINVAL),
        (program, 0, 4096, mmap.MAP_SHARED, EINVAL),
        (program, offset, 4096, mmap.MAP_PRIVATE, EINVAL),
        (other, offset, 4096, mmap.MAP_SHARED, EACCES),
    ):
        with pytest.raises(KernelError) as caught:
            file.file.mmap(at, length, 3, flags)
        assert caught.value.code == errno, (at, length, flags)
    fd, _ = program.file.mmap(offset, 4096, 3, mmap.MAP_SHARED)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)


def test_destroy_and_lifetimes(program: Program) -> None:
    assert program.fails(s.RKNPU_MEM_MAP, s.MemMap(handle=1)) == ENOENT
    assert program.fails(s.RKNPU_MEM_DESTROY, s.MemDestroy(handle=1)) == EINVAL
    first, second = program.create(4096), program.create(4096)
    assert program.fails(s.RKNPU_MEM_DESTROY, s.MemDestroy(handle=first.handle, obj_addr=1)) == 0
    third = program.create(4096)
    assert (third.handle, third.iova) == (first.handle, first.iova), "lowest handle, same place"
    assert program.fails(s.DRM_GEM_CLOSE, s.GemClose(handle=second.handle)) == 0
    assert program.fails(s.DRM_GEM_CLOSE, s.GemClose(handle=second.handle)) == EINVAL
    # a mapping that the caller reports keeps the address
    offset = program.ioctl(s.RKNPU_MEM_MAP, s.MemMap(handle=third.handle)).offset
    program.file.mmap(offset, 4096, 3, mmap.MAP_SHARED, hold=True)
    program.ioctl(s.RKNPU_MEM_DESTROY, s.MemDestroy(handle=third.handle))
    assert program.create(4096).iova != third.iova
    program.file.munmap(offset)
    assert program.create(4096).iova == third.iova


def test_mem_sync(program: Program, kernel: Kernel) -> None:
    cached, plain = program.create(4096), program.create(4096, flags=0)
    for address, errno in ((cached.address, 0), (0, EINVAL), (plain.address, EINVAL), (12345, EINVAL)):
        assert program.fails(s.RKNPU_MEM_SYNC, s.MemSync(flags=3, obj_addr=address, size=1 << 60)) == errno
    assert Program(kernel, pid=9).fails(s.RKNPU_MEM_SYNC, s.MemSync(obj_addr=cached.address)) == EINVAL
    same_process = Program(kernel, RENDER, pid=100)
    assert same_process.fails(s.RKNPU_MEM_SYNC, s.MemSync(obj_addr=cached.address)) == 0


def test_sram_is_a_pool() -> None:
    with Kernel(GoldenNpu(strict=False), sram=64 * 1024) as kernel:
        program = Program(kernel)
        sizes = []
        for wanted in (8192, 0, 0):
            made = program.ioctl(s.RKNPU_MEM_CREATE, s.MemCreate(flags=0x103, size=50_000, sram_size=wanted))
            sizes.append(made.sram_size)
        assert sizes == [8192, 53248, 4096]
        assert (action(program, 22), action(program, 23)) == (65536, 0)
        program.ioctl(s.RKNPU_MEM_DESTROY, s.MemDestroy(handle=1))
        assert action(program, 23) == 8192
        text = kernel.files()["/sys/kernel/debug/rknpu/mm"].read().decode()
        assert text.splitlines()[1:] == [
            "[000] [**************..]",
            "SRAM total size: 65536, used: 57344, free: 8192",
        ]


def test_on_chip_memory_is_shown_as_the_vendor_shows_it() -> None:
    """The text that rockchip-linux/rknpu2's guide on the NPU's SRAM prints for a board with 956 KiB."""
    with Kernel(GoldenNpu(strict=False), sram=978944) as kernel:
        text = kernel.files()["/sys/kernel/debug/rknpu/mm"].read().decode()
    assert text.splitlines() == [
        'SRAM bitmap: "*" - used, "." - free (1bit = 4KB)',
        *(f"[{number:03}] [{32 * '.'}]" for number in range(7)),
        f"[007] [{15 * '.'}]",
        "SRAM total size: 978944, used: 0, free: 978944",
    ]


def test_governors() -> None:
    with Kernel(GoldenNpu(strict=False)) as kernel:
        files = kernel.files()
        governor, chosen = (
            files[f"/sys/class/devfreq/fdab0000.npu/{n}"] for n in ("governor", "userspace/set_freq")
        )
        frequency = files["/sys/class/devfreq/fdab0000.npu/cur_freq"]
        assert governor.read() == b"rknpu_ondemand\n"
        for name, hz in (("powersave", 300), ("performance", 1000), ("userspace", 1000)):
            governor.write(f"{name}\n".encode())
            assert (governor.read(), frequency.read()) == (f"{name}\n".encode(), f"{hz}000000\n".encode())
        chosen.write(b"500000000\n")
        assert frequency.read() == b"500000000\n"
        governor.write(b"simple_ondemand")
        for file, text in ((chosen, b"600000000"), (governor, b"turbo"), (governor, b"")):
            with pytest.raises(KernelError) as caught:
                file.write(text)
            assert caught.value.code == EINVAL


@pytest.mark.parametrize(
    ("name", "compatible", "model"),
    [
        (None, b"radxa,rock-5b\0rockchip,rk3588\0", b"Radxa ROCK 5B\0"),
        ("xunlong,orangepi-5", b"xunlong,orangepi-5\0rockchip,rk3588s\0", b"Xunlong Orange Pi 5\0"),
        ("turing,rk1", b"turing,rk1\0rockchip,rk3588\0", b"Turing Machines RK1\0"),
    ],
)
def test_device_trees(name: str | None, compatible: bytes, model: bytes) -> None:
    """Properties of the root nodes in torvalds/linux, arch/arm64/boot/dts/rockchip/rk3588*.dts."""
    with Kernel(GoldenNpu(strict=False), board=name) as kernel:
        files = kernel.files()
    for folder in ("/proc/device-tree", "/sys/firmware/devicetree/base"):
        assert (files[f"{folder}/compatible"].read(), files[f"{folder}/model"].read()) == (compatible, model)


def test_a_board_that_is_not_known() -> None:
    with pytest.raises(
        ValueError, match=r"no board 'raspberrypi', only radxa,rock-5b, xunlong,orangepi-5-plus"
    ):
        Kernel(GoldenNpu(strict=False), board="raspberrypi")


def test_prime_both_ways(program: Program, kernel: Kernel) -> None:
    made = program.create(8192)
    out = program.ioctl(s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=made.handle, flags=0x80002))
    assert program.fds.lookup(out.fd).size == 8192
    assert program.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=out.fd)).handle == made.handle
    other = Program(kernel, RENDER, pid=3)
    other.fds = program.fds  # as passed over a socket
    handle = other.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=out.fd)).handle
    assert other.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=out.fd)).handle == handle
    seen = other.ioctl(s.RKNPU_MEM_CREATE, s.MemCreate(handle=handle))
    assert (seen.obj_addr, seen.dma_addr, seen.size) == (made.address, made.iova, 8192)
    for fd, errno in ((0, EINVAL), (99, EBADF), (-1, EBADF)):
        assert program.fails(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd)) == errno
    assert program.fails(s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=9)) == ENOENT
    assert program.fails(s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=1, flags=1)) == EINVAL
    program.file.close()
    other.file.close()
    assert kernel.rknpu.objects, "the descriptor still holds it"
    program.fds.close(out.fd)
    assert not kernel.rknpu.objects and kernel.rknpu.ram.used == 0


def test_names_and_magic(program: Program, kernel: Kernel) -> None:
    made = program.create(4096)
    name = program.ioctl(s.DRM_GEM_FLINK, s.GemFlink(handle=made.handle)).name
    assert name == program.ioctl(s.DRM_GEM_FLINK, s.GemFlink(handle=made.handle)).name == 1
    assert program.fails(s.DRM_GEM_FLINK, s.GemFlink(handle=5)) == ENOENT
    other = Program(kernel, pid=5, uid=1000)
    assert other.fails(s.DRM_GEM_OPEN, s.GemOpen(name=name)) == EACCES
    magic = other.ioctl(s.DRM_GET_MAGIC, s.Auth()).magic
    assert other.fails(s.DRM_AUTH_MAGIC, s.Auth(magic)) == EACCES, "not the master"
    assert program.fails(s.DRM_AUTH_MAGIC, s.Auth(magic + 1)) == EINVAL
    assert program.fails(s.DRM_AUTH_MAGIC, s.Auth(magic)) == 0
    opened = other.ioctl(s.DRM_GEM_OPEN, s.GemOpen(name=name))
    assert opened.size == 4096 and other.fails(s.DRM_GEM_OPEN, s.GemOpen(name=8)) == ENOENT
    assert program.ioctl(s.DRM_GET_UNIQUE, s.Unique(unique_len=10)).unique_len == 0
    render = Program(kernel, RENDER)
    for request, struct in (
        (s.DRM_GEM_FLINK, s.GemFlink()),
        (s.DRM_GEM_OPEN, s.GemOpen()),
        (s.DRM_GET_MAGIC, s.Auth()),
        (s.DRM_GET_UNIQUE, s.Unique()),
        (s.DRM_CREATE_DUMB, s.CreateDumb(4, 4, 32)),
    ):
        assert render.fails(request, struct) == EACCES


def test_capabilities_and_dumb_buffers(program: Program) -> None:
    values = {cap: program.ioctl(s.DRM_GET_CAP, s.GetCap(cap)).value for cap in (5, 6, 0x13, 0x14)}
    assert values == {5: 3, 6: 1, 0x13: 0, 0x14: 0}
    assert program.fails(s.DRM_GET_CAP, s.GetCap(1)) == EOPNOTSUPP
    dumb = program.ioctl(s.DRM_CREATE_DUMB, s.CreateDumb(height=10, width=33, bpp=24))
    assert (dumb.pitch, dumb.size) == (99, 4096)
    offset = program.ioctl(s.DRM_MAP_DUMB, s.MapDumb(handle=dumb.handle)).offset
    program.map(offset, 990)[:] = 1
    assert program.fails(s.DRM_DESTROY_DUMB, s.DestroyDumb(dumb.handle)) == 0
    assert program.fails(s.DRM_DESTROY_DUMB, s.DestroyDumb(dumb.handle)) == EINVAL
    for height, width, bpp in ((0, 1, 8), (1, 0, 8), (1, 1, 0), (1 << 31, 1 << 31, 32)):
        assert program.fails(s.DRM_CREATE_DUMB, s.CreateDumb(height, width, bpp)) == EINVAL


def test_a_chain_runs_on_shared_pages(program: Program, kernel: Kernel) -> None:
    work = sums(program, 2)
    done = program.ioctl(s.RKNPU_SUBMIT, submit_of(work, core_mask=0, task_number=6, ranges=[(0, 2)] * 3))
    assert work.right_result
    assert (done.task_counter, done.core_mask, done.fence_fd) == (6, 1, -1)
    assert done.hw_elapse_time > 0
    records = work.tasks.bytes.view("<u4").reshape(2, 10)
    assert records[0, 5] == 0 and records[1, 5] in (0x100, 0x200, 0x300), (
        "only the last record gets its status"
    )
    work.left.bytes[:] = 0
    program.ioctl(s.RKNPU_SUBMIT, submit_of(work, core_mask=2, ranges=[(9, 9), (0, 2)]))
    assert (work.out.bytes.reshape(2, -1) == work.right.bytes).all()


def test_three_cores_take_entries_two_to_four(program: Program) -> None:
    work = sums(program, 3, linked=False)
    ranges = [(77, 77), (77, 77), (0, 1), (1, 1), (2, 1)]
    done = program.ioctl(s.RKNPU_SUBMIT, submit_of(work, core_mask=7, ranges=ranges))
    assert work.right_result and (done.task_counter, done.core_mask) == (3, 7)
    assert work.tasks.bytes.view("<u4").reshape(3, 10)[2, 5] in (0x100, 0x200)
    work.out.bytes[:] = 0
    program.ioctl(s.RKNPU_SUBMIT, submit_of(work, core_mask=3, ranges=[(0, 1), (1, 1)]))
    assert (work.out.bytes.reshape(3, -1).any(axis=1)).tolist() == [True, True, False]


def test_refused_submits(program: Program, kernel: Kernel) -> None:
    work = sums(program, 2)
    other = Program(kernel, pid=12)
    assert work.tasks is not None
    address = work.tasks.address
    for change in (
        {"task_number": 0},
        {"core_mask": 8},
        {"core_mask": 0xFFFFFFFF},
        {"iommu_domain_id": 16},
        {"flags": 5 | 8},
        {"flags": 5 | 8, "fence_fd": 0},
        {"ranges": [(0, 0)]},
        {"ranges": [(0, 4096)]},
        {"ranges": [(0xFFFFFFFF, 2)]},
        {"flags": 4},
    ):
        args = submit_of(work, **change)
        assert program.fails(s.RKNPU_SUBMIT, args) == EINVAL, change
        assert not work.out.bytes.any()
    assert other.fails(s.RKNPU_SUBMIT, submit_of(work)) == EINVAL, "another process's task buffer"
    args = submit_of(work)
    args.task_obj_addr = address + 8
    assert program.fails(s.RKNPU_SUBMIT, args) == EINVAL
    args.task_obj_addr = work.out.address
    assert program.fails(s.RKNPU_SUBMIT, args) == EINVAL, "no kernel mapping"
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work)) == 0 and work.right_result
    texts = [line.text for line in kernel.log]
    assert "RKNPU: invalid rknpu task number!" in texts
    assert "RKNPU: invalid rknpu core mask: 0x8" in texts
    assert "RKNPU: invalid fence in fd, fd: -1" in texts


def test_text_files(program: Program, kernel: Kernel) -> None:
    files = kernel.files()
    debug = {name.rpartition("/")[2]: text for name, text in files.items() if "/debug/rknpu/" in name}
    assert debug["version"].read() == b"RKNPU driver: v0.9.8\n"
    assert debug["load"].read() == b"NPU load:  Core0:  0%, Core1:  0%, Core2:  0%,\n"
    assert debug["freq"].read() == b"1000000000\n" and debug["volt"].read() == b"850000\n"
    assert debug["freq"].write(b"600000000\n") == 10
    assert action(program, 2) == 600_000_000 and debug["volt"].read() == b"700000\n"
    for name, data, errno in (
        ("freq", b"", EINVAL),
        ("freq", b"abc", EFAULT),
        ("freq", b"1" * 16, EINVAL),
        ("power", b"maybe", EINVAL),
        ("version", b"1", EACCES),
    ):
        with pytest.raises(KernelError) as caught:
            debug[name].write(data)
        assert caught.value.code == errno, (name, data)
    debug["reset"].write(b"off")
    assert debug["reset"].read() == b"off\n"
    assert [node.path for node in kernel.nodes()] == [
        "/dev/dri/card1",
        "/dev/dri/renderD129",
        "/dev/accel/accel0",
        *(f"/dev/dma_heap/{name}" for name in HEAPS),
    ]
    assert files["/proc/device-tree/compatible"].read().split(b"\0")[-2] == b"rockchip,rk3588"


def test_structures_come_back_on_error(program: Program) -> None:
    work = sums(program)
    args = submit_of(work, flags=5 | 16 | 2, core_mask=5)
    program.ioctl(s.RKNPU_SUBMIT, args)
    assert program.last.fence_fd >= 3
    assert ct.sizeof(s.RknpuSubmit) == 104 and np.dtype("<u4").itemsize == 4
