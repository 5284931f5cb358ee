"""The mainline interface on the golden device."""

from __future__ import annotations

import threading
import time
from errno import E2BIG, EBUSY, EFAULT, EINTR, EINVAL, ENOENT, ENOSPC, ENOSYS, ETIMEDOUT

import numpy as np
import pytest

from rkcosim.driver.kernel import Credentials, Kernel, KernelError
from rkcosim.driver.kernel import structs as s
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import build_task_list
from tests.makers.kernel_client import (
    ACCEL,
    HIGH,
    LOW,
    Program,
    SlowNpu,
    Sum,
    hanging_task,
    rocket_submit,
    submit_of,
    sums,
    until,
)


@pytest.fixture
def device() -> SlowNpu:
    return SlowNpu()


@pytest.fixture
def kernel(device: SlowNpu):
    with Kernel(device) as opened:
        yield opened


@pytest.fixture
def program(kernel: Kernel) -> Program:
    return Program(kernel, ACCEL)


def prep(program: Program, handle: int, seconds: float = 60) -> int:
    deadline = time.monotonic_ns() + int(seconds * 1e9) if seconds else 0
    return program.fails(s.ROCKET_PREP_BO, s.PrepBo(handle=handle, timeout_ns=deadline))


def job(work: Sum) -> tuple:
    return work.entries, [work.left.handle, work.right.handle], [work.out.handle]


@pytest.fixture
def mainline(device: SlowNpu):
    """The driver as in Linux."""
    with Kernel(device, rocket_interface="0.0") as opened:
        yield opened


def test_identity(program: Program) -> None:
    told = program.ioctl(s.DRM_VERSION, s.Version(name_len=9, name=LOW + 256, date_len=9, date=LOW + 300))
    assert (told.version_major, told.version_minor, told.version_patchlevel) == (1, 0, 0)
    assert program.memory.read(LOW + 256, 7) == b"rocket\0" and program.memory.read(LOW + 300, 2) == b"0\0"
    assert (told.name_len, told.date_len, told.desc_len) == (6, 1, 10)
    for number in (4, 5, 0x3F):
        assert program.fails(s.ioc(3, 0x64, 0x40 + number, 16), s.PrepBo()) == EINVAL
    assert program.fails(s.DRM_CREATE_DUMB, s.CreateDumb(4, 4, 32)) == ENOSYS


def test_buffers_start_at_address_zero_of_the_file(program: Program, kernel: Kernel) -> None:
    other = Program(kernel, ACCEL, pid=2)
    first, second = program.create_bo(4096), program.create_bo(5000)
    assert (first.iova, second.iova) == (0, 0x2000)
    assert other.create_bo(4096).iova == 0
    made = program.last
    assert made.size == 5000 and made.offset >= 0x1_0000_0000
    assert program.fails(s.ROCKET_CREATE_BO, s.CreateBo(size=0)) == EINVAL
    for _ in range(2):
        program.fails(s.ROCKET_CREATE_BO, s.CreateBo(size=0x7FFF_0000))
    assert program.fails(s.ROCKET_CREATE_BO, s.CreateBo(size=0x7FFF_0000)) == ENOSPC
    assert program.fails(s.DRM_GEM_CLOSE, s.GemClose(handle=first.handle)) == 0
    assert program.create_bo(4096).iova == 0


def test_jobs_run_task_by_task(program: Program, device: SlowNpu) -> None:
    work = sums(program, 3, rocket=True, linked=False)
    assert rocket_submit(program, [job(work)]) == 0
    assert prep(program, work.out.handle) == 0
    assert work.right_result and device.kicks == [0, 0, 0]
    assert prep(program, work.out.handle, 0) == 0
    assert program.fails(s.ROCKET_FINI_BO, s.FiniBo(handle=work.out.handle)) == 0


def test_stages_that_a_client_left_on_are_off_for_the_next(kernel: Kernel, program: Program) -> None:
    """Programs for boards leave BS_CFG and BN_CFG as a reset core has them [HW 7.5]."""
    alone = sums(program, rocket=True, bypass=None)
    assert rocket_submit(program, [job(alone)]) == 0
    assert prep(program, alone.out.handle) == 0 and alone.right_result
    other, last = Program(kernel, ACCEL, pid=2), Program(kernel, ACCEL, pid=3)
    live = sums(other, rocket=True, bypass=0)
    assert rocket_submit(other, [job(live)]) == 0
    assert prep(other, live.out.handle) == 0 and not live.right_result
    later = sums(last, rocket=True, bypass=None)
    assert rocket_submit(last, [job(later)]) == 0
    assert prep(last, later.out.handle) == 0 and later.right_result


def test_bad_arguments(program: Program) -> None:
    made = program.create_bo(4096)
    for request, struct, errno in (
        (s.ROCKET_PREP_BO, s.PrepBo(handle=9), ENOENT),
        (s.ROCKET_PREP_BO, s.PrepBo(handle=made.handle, reserved=1), EINVAL),
        (s.ROCKET_FINI_BO, s.FiniBo(handle=9), ENOENT),
        (s.ROCKET_FINI_BO, s.FiniBo(handle=made.handle, reserved=1), EINVAL),
        (s.ROCKET_SUBMIT, s.RocketSubmit(job_count=0, job_struct_size=3, reserved=9), 0),
        (s.ROCKET_SUBMIT, s.RocketSubmit(jobs=LOW, job_count=1, job_struct_size=39), EINVAL),
        (s.ROCKET_SUBMIT, s.RocketSubmit(jobs=LOW, job_count=1, job_struct_size=40, reserved=1), EINVAL),
        (s.ROCKET_SUBMIT, s.RocketSubmit(jobs=HIGH - 8, job_count=1, job_struct_size=40), EFAULT),
        (s.ROCKET_SUBMIT, s.RocketSubmit(jobs=0, job_count=1, job_struct_size=40), EFAULT),
        (s.ROCKET_SUBMIT, s.RocketSubmit(jobs=LOW, job_count=1 << 31, job_struct_size=40), 12),
    ):
        assert program.fails(request, struct) == errno, (request, errno)


def test_refused_jobs_are_silent_and_later_ones_run(mainline: Kernel) -> None:
    program, kernel = Program(mainline, ACCEL), mainline
    work = sums(program, rocket=True)
    entries, reads, writes = job(work)
    empty = ([], reads, writes)
    for bad in (empty, (entries, [99], writes), (entries, reads, [reads[0]]), (entries, reads * 2, writes)):
        work.out.bytes[:] = 0
        assert rocket_submit(program, [bad, (entries, reads, writes)]) == 0
        assert prep(program, work.out.handle) == 0 and work.right_result
    said = [line.text for line in kernel.log if "rocket drops job 0 of 2" in line.text]
    assert [text.partition(": rocket drops job 0 of 2: ")[2].partition(":")[0] for text in said] == [
        "EINVAL",
        "ENOENT",
        "EALREADY",
        "EALREADY",
    ]


def test_strides_wider_than_the_structures(mainline: Kernel) -> None:
    program = Program(mainline, ACCEL)
    work = sums(program, 2, rocket=True, linked=False)
    tasks = b"".join(bytes(s.RocketTask(e.address, e.n_words)) + b"more" * 2 for e in work.entries)
    program.memory.write(LOW + 0x1000, tasks)
    one = s.RocketJob(tasks=LOW + 0x1000, task_count=2, task_struct_size=16)
    program.memory.write(LOW + 0x2000, (bytes(one) + b"\xff" * 24) * 2)
    args = s.RocketSubmit(jobs=LOW + 0x2000, job_count=2, job_struct_size=64)
    assert program.fails(s.ROCKET_SUBMIT, args) == 0
    until(lambda: not program.file.jobs)
    assert work.right_result


def test_what_the_driver_does_not_know_is_refused(program: Program) -> None:
    """From interface 1.0 on: E2BIG for unknown members that are set, and errors of jobs are returned."""
    work = sums(program, 2, rocket=True, linked=False)

    def submit(tasks: bytes, jobs: bytes, **more: int) -> int:
        program.memory.write(LOW + 0x1000, tasks)
        one = s.RocketJob(tasks=LOW + 0x1000, task_count=2, task_struct_size=16, **more)
        program.memory.write(LOW + 0x2000, bytes(one) + jobs)
        args = s.RocketSubmit(jobs=LOW + 0x2000, job_count=1, job_struct_size=64)
        errno = program.fails(s.ROCKET_SUBMIT, args)
        until(lambda: not program.file.jobs)
        return errno

    plain = b"".join(bytes(s.RocketTask(e.address, e.n_words)) + bytes(8) for e in work.entries)
    assert submit(plain, bytes(24)) == 0 and work.right_result
    assert submit(plain, bytes(23) + b"\1") == E2BIG
    assert submit(plain[:-1] + b"\1", bytes(24)) == E2BIG
    program.memory.write(LOW + 0x3000, (99).to_bytes(4, "little"))
    assert submit(plain, bytes(24), in_bo_handles=LOW + 0x3000, in_bo_handle_count=1) == ENOENT


FLAGS = {"1.0": 0, "1.1": 1, "1.3": 7, "1.5": 7}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_of_a_job(name: str, device: SlowNpu) -> None:
    with Kernel(device, rocket_interface=name) as kernel:
        program = Program(kernel, ACCEL)
        told = program.ioctl(s.DRM_VERSION, s.Version())
        assert f"{told.version_major}.{told.version_minor}" == name

        def submit(work: Sum, flags: int, reserved: int = 0) -> int:
            work.out.bytes[:] = 0
            tasks = b"".join(bytes(s.RocketTask(e.address, e.n_words)) for e in work.entries)
            program.memory.write(LOW + 0x1000, tasks)
            one = s.RocketJob(tasks=LOW + 0x1000, task_count=len(work.entries), task_struct_size=8)
            program.memory.write(LOW + 0x2000, bytes(one) + bytes(s.RocketJobFlags(flags, reserved)))
            args = s.RocketSubmit(jobs=LOW + 0x2000, job_count=1, job_struct_size=48)
            errno = program.fails(s.ROCKET_SUBMIT, args)
            until(lambda: not program.file.jobs)
            return errno

        apart, chain = sums(program, 3, rocket=True, linked=False), sums(program, 3, rocket=True)
        assert submit(apart, 0) == 0 and apart.right_result and device.kicks == [0] * 3
        for bit in range(32):
            if not FLAGS[name] >> bit & 1:
                assert submit(apart, 1 << bit) == (EINVAL if FLAGS[name] else E2BIG), bit
        if not FLAGS[name]:
            return
        assert submit(apart, 0, reserved=1) == EINVAL
        device.kicks.clear()
        assert submit(chain, 1) == 0 and chain.right_result and device.kicks == [0], "not one kick"
        if name == "1.1":
            return
        assert submit(chain, 3) == 0 and chain.right_result
        until(lambda: not kernel.scheduler.busy)
        assert not kernel.scheduler.trouble.kinds()
        submit(chain, 4)  # no PPU at work: the job ends with its time-out
        assert any("NPU job timed out" in line.text for line in kernel.log)


RANGES = {
    "whole": ([], 0),
    "one": ([(0, 64)], 0),
    "to the end": ([(8192 - 64, 64)], 0),
    "side by side": ([(0, 64), (64, 64)], 0),
    "as many as there may be": ([(n, 1) for n in range(1024)], 0),
    "one more": ([(n, 1) for n in range(1025)], EINVAL),
    "empty": ([(0, 0)], EINVAL),
    "past the end": ([(8192 - 32, 64)], EINVAL),
    "sum beyond 64 bits": ([(4096, 2**64 - 1024)], EINVAL),
    "downwards": ([(4096, 64), (0, 64)], EINVAL),
    "overlapping": ([(0, 128), (64, 64)], EINVAL),
}


@pytest.mark.parametrize("case", RANGES)
def test_ranges_of_a_buffer(case: str, device: SlowNpu) -> None:
    ranges, errno = RANGES[case]
    with Kernel(device, rocket_interface="1.5") as kernel, Kernel(SlowNpu(), rocket_interface="1.3") as older:
        for opened, wanted in ((kernel, errno), (older, EINVAL)):
            program = Program(opened, ACCEL)
            buffer = program.create_bo(8192)
            program.memory.write(LOW + 0x1000, b"".join(bytes(s.BoRange(*one)) for one in ranges))
            for request, kind in (
                (s.ROCKET_PREP_BO_RANGES, s.PrepBoRanges),
                (s.ROCKET_FINI_BO_RANGES, s.FiniBoRanges),
            ):
                asked = {"handle": buffer.handle, "range_count": len(ranges), "ranges": LOW + 0x1000}
                assert program.fails(request, kind(**asked)) == wanted
                if opened is kernel and not errno:
                    assert program.fails(request, kind(**asked | {"handle": 99})) == ENOENT
                    assert program.fails(request, kind(**asked, reserved=1)) == EINVAL
                    if ranges:
                        assert program.fails(request, kind(**asked | {"ranges": HIGH})) == EFAULT


def test_an_interface_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"one of 0\.0, 1\.0, 1\.1, 1\.3, 1\.5, not 2\.0"):
        Kernel(SlowNpu(), rocket_interface="2.0")


def test_out_buffers_order_jobs_and_make_prep_wait(kernel: Kernel, program: Program, device: SlowNpu) -> None:
    first = sums(program, rocket=True)
    device.held = 1
    assert rocket_submit(program, [job(first)]) == 0
    until(lambda: device.kicks)
    assert prep(program, first.out.handle, 0) == EBUSY
    assert program.fails(s.ROCKET_PREP_BO, s.PrepBo(handle=first.out.handle, timeout_ns=-5)) == EBUSY
    assert prep(program, first.out.handle, 0.02) == ETIMEDOUT
    assert prep(program, first.left.handle, 0) == 0, "inputs get no fence"
    # another file whose job lists the same buffer waits, though its core is free
    other = Program(kernel, ACCEL, pid=2)
    other.fds = program.fds
    fd = program.ioctl(s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=first.out.handle)).fd
    handle = other.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd)).handle
    second = sums(other, rocket=True)
    entries, reads, writes = job(second)
    assert rocket_submit(other, [(entries, [*reads, handle], writes)]) == 0
    time.sleep(0.02)
    assert device.kicks == [0] and prep(other, second.out.handle, 0) == EBUSY
    device.held = 0
    assert prep(other, second.out.handle) == 0
    assert second.right_result and first.right_result


def test_one_file_keeps_to_one_core_and_files_share_out(kernel: Kernel, device: SlowNpu) -> None:
    programs = [Program(kernel, ACCEL, pid=n) for n in range(3)]
    works = [sums(program, rocket=True, seed=n) for n, program in enumerate(programs)]
    device.held = 7
    for program, work in zip(programs, works, strict=True):
        assert rocket_submit(program, [job(work), job(work)]) == 0
    until(lambda: device.kicks)
    time.sleep(0.02)
    # domains of files differ, so one file works at a time
    assert len(device.kicks) == 1 and len(kernel.scheduler.busy) == 1
    device.held = 0
    for program, work in zip(programs, works, strict=True):
        assert prep(program, work.out.handle) == 0 and work.right_result
    assert len(device.kicks) == 6


def test_timeout_resets_the_core_and_goes_on(kernel: Kernel, program: Program) -> None:
    bad, good = sums(program, rocket=True), sums(program, rocket=True, seed=2)
    placed = build_task_list([hanging_task()], bad.commands.iova)
    bad.commands.bytes[: len(placed.data)] = np.frombuffer(placed.data, np.uint8)
    begin = kernel.scheduler.time
    assert rocket_submit(program, [(placed.tasks, [], [bad.out.handle]), job(good)]) == 0
    assert prep(program, bad.out.handle) == 0, "a failure is not reported"
    assert kernel.scheduler.time - begin >= 500_000_000
    assert prep(program, good.out.handle) == 0 and good.right_result
    assert "rocket fdab0000.npu: NPU job timed out" in [line.text for line in kernel.log]


def test_prep_is_interrupted(program: Program, device: SlowNpu) -> None:
    work = sums(program, rocket=True)
    device.held = 1
    rocket_submit(program, [job(work)])
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(prep(program, work.out.handle, 3600)), daemon=True)
    thread.start()
    time.sleep(0.05)
    program.file.interrupt()
    thread.join(5)
    assert result == [EINTR]
    device.held = 0


def test_close_drops_the_queue(kernel: Kernel, program: Program, device: SlowNpu) -> None:
    work = sums(program, rocket=True)
    device.held = 1
    rocket_submit(program, [job(work)] * 3)
    until(lambda: device.kicks)
    program.file.close()
    device.held = 0
    until(lambda: not kernel.rocket.files)
    assert device.kicks == [0] and kernel.rocket.ram.used == 0


def test_both_drivers_share_the_cores(kernel: Kernel, program: Program) -> None:
    vendor = Program(kernel, pid=2)
    works = sums(program, rocket=True, seed=1), sums(vendor, seed=2)
    for _ in range(5):
        assert rocket_submit(program, [job(works[0])]) == 0
        assert vendor.fails(s.RKNPU_SUBMIT, submit_of(works[1])) == 0
    assert prep(program, works[0].out.handle) == 0
    assert all(work.right_result for work in works)
    # the vendor's driver imports a buffer of rocket, the other direction is refused
    vendor.fds = program.fds
    fd = program.ioctl(s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=works[0].out.handle)).fd
    handle = vendor.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd)).handle
    assert vendor.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd)).handle == handle
    assert vendor.ioctl(s.RKNPU_MEM_CREATE, s.MemCreate(handle=handle)).dma_addr
    assert vendor.fails(s.RKNPU_MEM_MAP, s.MemMap(handle=handle)) == EINVAL
    fd = vendor.ioctl(s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=works[1].out.handle)).fd
    assert program.fails(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd)) == EINVAL


def test_opening(kernel: Kernel) -> None:
    for path, flags in (("/dev/dri/card0", 2), ("/dev/accel/accel0", 0o200000)):
        with pytest.raises(KernelError):
            kernel.open(path, flags, Credentials(1))
    with pytest.raises(ValueError, match="rknpu and rocket"):
        Kernel(GoldenNpu(), drivers=("nvdla",))
    with Kernel(GoldenNpu(), drivers=("rocket",)) as other:
        assert [node.path for node in other.nodes() if "dma_heap" not in node.path] == [ACCEL]
