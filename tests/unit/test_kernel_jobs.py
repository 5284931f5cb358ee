"""Queues, time-outs, resets, fences and several clients, on the golden device."""

from __future__ import annotations

import ctypes as ct
import select
import threading
import time
from errno import EINTR, EINVAL, EIO, ETIMEDOUT

import pytest

from rkcosim.driver.kernel import Kernel, KernelError
from rkcosim.driver.kernel import structs as s
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import build_task_list
from rkcosim.regcmd.job import MAX_TASKS_PER_KICK
from rkcosim.spec.regs import registers
from tests.makers.kernel_client import (
    ACCEL,
    CARD,
    RENDER,
    Program,
    SlowNpu,
    Sum,
    hanging_task,
    records,
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
    return Program(kernel)


def hang(program: Program, number: int = 1) -> Sum:
    """A chain whose last task never ends."""
    work = sums(program, number)
    placed = build_task_list([hanging_task()], work.commands.iova + 4096 * (number - 1))
    work.commands.bytes[4096 * (number - 1) :][: len(placed.data)] = memoryview(placed.data)
    assert work.tasks is not None
    work.tasks.bytes[40 * (number - 1) :] = memoryview(records(placed.tasks))
    return work


def texts(kernel: Kernel) -> list[str]:
    return [line.text for line in kernel.log]


def background(program: Program, args: s.RknpuSubmit) -> tuple[threading.Thread, list[int]]:
    """Submit in a thread; the errno is appended to the list."""
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(program.fails(s.RKNPU_SUBMIT, args)), daemon=True)
    thread.start()
    return thread, result


def test_stages_that_a_client_left_on_are_off_for_the_next(program: Program, kernel: Kernel) -> None:
    """Programs for boards leave BS_CFG and BN_CFG as a reset core has them [HW 7.5]."""
    for number, bypass in enumerate((None, 0, None)):
        client = program if not number else Program(kernel, pid=100 + number)
        work = sums(client, bypass=bypass)
        client.ioctl(s.RKNPU_SUBMIT, submit_of(work))
        assert work.right_result == (bypass is None)


def test_timeout(program: Program, kernel: Kernel) -> None:
    work = hang(program, 3)
    begin = kernel.scheduler.time
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work, core_mask=0, timeout=200)) == ETIMEDOUT
    assert (program.last.task_counter, program.last.core_mask, program.last.hw_elapse_time) == (2, 1, 0)
    assert 200_000_000 <= kernel.scheduler.time - begin < 600_000_000
    lines = [line for line in texts(kernel) if line.startswith("RKNPU:")]
    assert "wait_count: 1, continue wait: " in lines[0]
    assert any(
        line.startswith("RKNPU: failed to wait job, task counter: 2, flags: 0x5, ret = 0, elapsed time: ")
        for line in lines
    )
    assert "RKNPU: job timeout, flags: 0x0:" in lines
    assert any(
        "core 0 irq status: 0x0, raw status: " in line and "require mask: 0x300" in line for line in lines
    )
    assert "RKNPU: soft reset, num: 6" in lines
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work, timeout=7)) == ETIMEDOUT
    second = [line for line in texts(kernel) if "wait_count" in line][-1]
    assert "wait time: 7000us, timeout: 7000us" in second, "the pause of the reset is not part of it"
    good = sums(program)
    assert program.fails(s.RKNPU_SUBMIT, submit_of(good)) == 0 and good.right_result


def test_zero_timeout_and_a_mask_that_never_matches(program: Program, kernel: Kernel) -> None:
    work = sums(program)
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work, timeout=0)) == ETIMEDOUT
    work.tasks.bytes.view("<u4")[3] = 0x100
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work, timeout=50)) == ETIMEDOUT
    # the line may rise with the right bit, but the status never equals both bits
    work.tasks.bytes.view("<u4")[3] = 0x100300
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work, timeout=50)) == ETIMEDOUT
    assert any("invalid irq status" in line for line in texts(kernel))
    work.tasks.bytes.view("<u4")[3] = 0x300
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work)) == 0


def test_never_started(program: Program, kernel: Kernel) -> None:
    work = sums(program)
    begin = kernel.scheduler.time
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work, core_mask=5, timeout=100)) == EINVAL
    assert kernel.scheduler.time - begin >= 100_000_000
    assert "RKNPU: Unknown core mask: 5" in texts(kernel)
    args = submit_of(work, timeout=100)
    args.task_obj_addr = 0
    assert program.fails(s.RKNPU_SUBMIT, args) == EINVAL
    assert kernel.scheduler.time - begin >= 200_000_000
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work, flags=4)) == EINVAL
    assert "RKNPU: soft reset, num: 6" not in texts(kernel)
    for change in ({"core_mask": 6}, {"core_mask": 5}):
        assert program.fails(s.RKNPU_SUBMIT, submit_of(work, flags=7, **change)) == 0
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work)) == 0 and work.right_result


def test_queued_behind_a_long_job(program: Program, kernel: Kernel, device: SlowNpu) -> None:
    other = Program(kernel, pid=2)
    slow, waiting = sums(program), sums(other, seed=1)
    device.held = 1
    thread, result = background(program, submit_of(slow, timeout=60_000))
    until(lambda: device.kicks)
    assert other.fails(s.RKNPU_SUBMIT, submit_of(waiting, timeout=20)) == EINVAL, "three waits, never started"
    waits = [line for line in texts(kernel) if "wait_count" in line]
    assert [line.partition("wait_count: ")[2][0] for line in waits] == ["1", "2", "3"]
    # auto takes another core
    done = other.ioctl(s.RKNPU_SUBMIT, submit_of(waiting, core_mask=0))
    assert done.core_mask == 2 and waiting.right_result
    device.held = 0
    thread.join(10)
    assert result == [0] and slow.right_result


def test_multi_core_jobs_start_when_they_head_all_queues(
    program: Program, kernel: Kernel, device: SlowNpu
) -> None:
    first, both, last = sums(program), sums(program, 2, linked=False), sums(program)
    device.held = 2
    for args in (
        submit_of(first, flags=7, core_mask=2, ranges=[(0, 0), (0, 1)]),
        submit_of(both, flags=7, core_mask=3, ranges=[(0, 1), (1, 1)]),
        submit_of(last, flags=7, core_mask=1),
    ):
        assert program.fails(s.RKNPU_SUBMIT, args) == 0
    until(lambda: device.kicks)
    time.sleep(0.02)
    assert device.kicks == [1], "core 0 waits for the job on both, which waits for core 1"
    device.held = 0
    until(lambda: last.out.bytes.any() and not program.file.jobs)
    assert device.kicks == [1, 0, 1, 0]
    assert first.right_result and both.right_result and last.right_result


@pytest.mark.parametrize(("reset_all", "pid"), [(True, 2), (False, 100)])
def test_a_reset_wakes_other_waiters(device: SlowNpu, reset_all: bool, pid: int) -> None:
    """Waiters of all processes, or of the same one."""
    with Kernel(device, reset_all=reset_all) as kernel:
        program, other = Program(kernel), Program(kernel, RENDER, pid=pid)
        work, bad = sums(other), hang(program)
        device.held = 2
        args = submit_of(work, core_mask=2, ranges=[(0, 0), (0, 1)], timeout=60_000)
        thread, result = background(other, args)
        until(lambda: device.kicks)
        assert program.fails(s.RKNPU_SUBMIT, submit_of(bad, timeout=10)) == ETIMEDOUT
        thread.join(10)
        assert result == [EINVAL]
        device.held = 0
        assert other.fails(s.RKNPU_SUBMIT, submit_of(work)) == 0


@pytest.mark.parametrize("killed", [False, True])
def test_other_processes_do_not_notice_a_hanging_job(
    program: Program, kernel: Kernel, device: SlowNpu, killed: bool
) -> None:
    other = Program(kernel, pid=2)
    work, bad = sums(other), hang(program)
    device.held = 2
    thread, result = background(other, submit_of(work, core_mask=2, ranges=[(0, 0), (0, 1)], timeout=60_000))
    until(lambda: device.kicks)
    hanging, error = background(program, submit_of(bad, timeout=50))
    if killed:
        until(lambda: 0 in kernel.scheduler.busy)
        kernel.process_died(100)
    hanging.join(10)
    assert error == [EINTR if killed else ETIMEDOUT]
    until(lambda: 0 not in kernel.scheduler.busy)
    program2 = Program(kernel, pid=3)
    assert program2.fails(s.RKNPU_ACTION, s.Action(6)) == 0
    device.held = 0
    thread.join(10)
    assert result == [0] and work.right_result


def test_non_blocking_with_fences(program: Program, kernel: Kernel, device: SlowNpu) -> None:
    first, second = sums(program), sums(program, seed=3)
    device.held = 1
    out = program.ioctl(s.RKNPU_SUBMIT, submit_of(first, flags=5 | 2 | 16))
    assert (out.core_mask, out.task_counter, out.hw_elapse_time) == (1, 0, 0)
    sync = program.fds.lookup(out.fence_fd)
    poll = select.poll()
    poll.register(sync.fileno(), select.POLLIN)
    assert not poll.poll(0) and not sync.poll()
    # a job on another core that has to come after it
    chained = program.ioctl(
        s.RKNPU_SUBMIT,
        submit_of(second, flags=5 | 2 | 8 | 16, core_mask=2, fence_fd=out.fence_fd, ranges=[(0, 0), (0, 1)]),
    )
    later = program.fds.lookup(chained.fence_fd)
    merge = s.SyncMerge(name=b"both", fd2=chained.fence_fd)
    program.memory.write(0x2_0000, bytes(merge))
    assert sync.ioctl(s.SYNC_MERGE, 0x2_0000, program.memory, program.fds) == 0
    merged = program.fds.lookup(s.SyncMerge.of(program.memory.read(0x2_0000, 48)).fence)
    time.sleep(0.02)
    assert device.kicks == [0] and not second.out.bytes.any()
    device.held = 0
    assert poll.poll(5000) and sync.poll()
    until(merged.poll)
    assert later.poll() and first.right_result and second.right_result
    program.memory.write(0x2_0000, bytes(s.SyncFileInfo(num_fences=2, sync_fence_info=0x2_1000)))
    assert merged.ioctl(s.SYNC_FILE_INFO, 0x2_0000, program.memory, program.fds) == 0
    info = s.SyncFileInfo.of(program.memory.read(0x2_0000, 56))
    assert (info.name, info.status, info.num_fences) == (b"both", 1, 2)
    fence = s.SyncFenceInfo.of(program.memory.read(0x2_1000, 80))
    assert fence.status == 1 and 0 < fence.timestamp_ns <= kernel.scheduler.time
    for fd in list(program.fds.table):
        program.fds.close(fd)
    assert sync.fileno() == -1


def test_fence_descriptor_that_cannot_be_made(program: Program) -> None:
    work = sums(program)
    program.fds.room = len(program.fds.table)
    done = program.ioctl(s.RKNPU_SUBMIT, submit_of(work, flags=5 | 16))
    assert done.fence_fd == -24 and work.right_result


@pytest.mark.parametrize("reset_all", [True, False])
def test_non_blocking_submit_drops_what_is_late(device: SlowNpu, reset_all: bool) -> None:
    with Kernel(device, reset_all=reset_all) as kernel:
        program, other = Program(kernel), Program(kernel, pid=2)
        late, queued, new = sums(program), sums(program), sums(program, seed=9)
        device.held = 1
        fd = program.ioctl(s.RKNPU_SUBMIT, submit_of(late, flags=5 | 2 | 16, timeout=300)).fence_fd
        until(lambda: device.kicks)
        thread, result = background(other, submit_of(sums(other), timeout=60_000))
        until(lambda: other.file.jobs)
        assert program.fails(s.RKNPU_SUBMIT, submit_of(queued, flags=7, core_mask=0)) == 0, (
            "does not check any core"
        )
        start = kernel.scheduler.time
        until(lambda: kernel.scheduler.time > start + 1_000_000)  # 1 ms is later than "300", in microseconds
        if not reset_all:
            third = Program(kernel, pid=3)
            assert third.fails(s.RKNPU_SUBMIT, submit_of(sums(third), flags=7)) == 0
            assert not program.fds.lookup(fd).poll(), "another process's job stays"
        assert program.fails(s.RKNPU_SUBMIT, submit_of(new, flags=7)) == 0
        assert program.fds.lookup(fd).poll()
        device.held = 0
        until(lambda: not program.file.jobs)
        thread.join(10)
        assert result == [EINVAL if reset_all else 0] and new.right_result


def test_forgotten_jobs_end(program: Program, kernel: Kernel) -> None:
    work = hang(program)
    fd = program.ioctl(s.RKNPU_SUBMIT, submit_of(work, flags=5 | 2 | 16, timeout=100)).fence_fd
    until(program.fds.lookup(fd).poll)
    assert any("nobody waits for it" in line for line in texts(kernel))
    good = sums(program)
    assert program.fails(s.RKNPU_SUBMIT, submit_of(good)) == 0 and good.right_result


def test_a_killed_process_leaves_nothing(kernel: Kernel, device: SlowNpu) -> None:
    survivor, victim = Program(kernel, pid=1), Program(kernel, pid=2)
    good, first, queued = sums(survivor), sums(victim), sums(victim)
    device.held = 1
    running = background(victim, submit_of(first, timeout=60_000))
    until(lambda: device.kicks)
    waiting = background(victim, submit_of(queued, timeout=60_000))
    thread, result = background(survivor, submit_of(good, timeout=60_000))
    until(lambda: len(kernel.scheduler.outstanding(0)) == 3)
    kernel.process_died(2)
    for blocked, errors in (running, waiting):
        blocked.join(5)
        assert errors == [EINTR]
    assert victim.file in kernel.rknpu.files, "its job is still on the hardware"
    device.held = 0
    thread.join(10)
    assert result == [0] and good.right_result
    assert kernel.rknpu.files == [survivor.file] and len(kernel.rknpu.objects) == 5
    assert not queued.out.bytes.any()
    with pytest.raises(KernelError):
        victim.file.ioctl(s.DRM_VERSION, 0, victim.memory, victim.fds)
    survivor.file.close()
    assert kernel.rknpu.ram.used == 0 and not kernel.scheduler.queues


def test_a_buffer_lives_as_long_as_its_job(program: Program, kernel: Kernel, device: SlowNpu) -> None:
    work = sums(program)
    device.held = 1
    thread, result = background(program, submit_of(work, timeout=60_000))
    until(lambda: device.kicks)
    program.ioctl(s.RKNPU_MEM_DESTROY, s.MemDestroy(handle=work.tasks.handle))
    assert len(kernel.rknpu.objects) == 5
    device.held = 0
    thread.join(10)
    assert result == [0] and len(kernel.rknpu.objects) == 4
    assert work.tasks.bytes.view("<u4")[5] in (0x100, 0x200)


def test_domains_take_turns(kernel: Kernel, device: SlowNpu) -> None:
    programs = [Program(kernel, pid=n) for n in range(3)]
    works = [sums(program, domain=n, seed=n) for n, program in enumerate(programs)]
    assert works[0].out.iova == works[1].out.iova == works[2].out.iova
    threads = [
        background(program, submit_of(work, core_mask=0, iommu_domain_id=n))
        for _ in range(5)
        for n, (program, work) in enumerate(zip(programs, works, strict=True))
    ]
    for thread, result in threads:
        thread.join(20)
        assert result == [0]
    assert all(work.right_result for work in works)
    device.held, device.stride = 1, 100_000_000
    thread, result = background(programs[0], submit_of(works[0], timeout=60_000))
    until(lambda: programs[0].file.jobs and kernel.scheduler.busy)
    begin = kernel.scheduler.time
    assert programs[1].fails(s.RKNPU_ACTION, s.Action(25, 1)) == EINVAL, "6 s are over"
    assert kernel.scheduler.time - begin >= 6_000_000_000
    device.held = 0
    thread.join(10)
    assert result == [0]


def test_more_tasks_than_one_kick_takes(
    program: Program, monkeypatch: pytest.MonkeyPatch, device: SlowNpu
) -> None:
    assert MAX_TASKS_PER_KICK == 4095
    monkeypatch.setattr("rkcosim.regcmd.job.MAX_TASKS_PER_KICK", 2)
    work = sums(program, 5)
    done = program.ioctl(s.RKNPU_SUBMIT, submit_of(work))
    assert work.right_result and done.task_counter == 5
    assert device.kicks == [0, 0, 0]
    assert [bool(status) for status in work.tasks.bytes.view("<u4").reshape(5, 10)[:, 5]] == [False] * 4 + [
        True
    ]


def test_a_device_that_raises_does_not_stop_the_kernel() -> None:
    with Kernel(GoldenNpu(strict=True)) as kernel:
        program = Program(kernel)
        work = sums(program)
        keep = work.commands.bytes[:8].copy()
        work.commands.bytes[:8] = 0xFF
        assert program.fails(s.RKNPU_SUBMIT, submit_of(work, timeout=30)) == ETIMEDOUT
        assert any("GoldenError" in line for line in texts(kernel))
        work.commands.bytes[:8] = keep
        assert program.fails(s.RKNPU_SUBMIT, submit_of(work)) == 0 and work.right_result
        # commands that are not mapped
        work.tasks.bytes.view("<u4")[8] = 0x1000
        assert program.fails(s.RKNPU_SUBMIT, submit_of(work, timeout=30)) == ETIMEDOUT


def test_many_clients_at_once(kernel: Kernel) -> None:
    programs = [Program(kernel, pid=n) for n in range(6)]
    works = [sums(program, 2, seed=n) for n, program in enumerate(programs)]
    errors: list[int] = []

    def loop(number: int) -> None:
        for turn in range(10):
            works[number].out.bytes[:] = 0
            args = submit_of(works[number], core_mask=(0, 1, 2, 4)[turn % 4])
            args.subcore_task[1] = args.subcore_task[2] = args.subcore_task[0]
            errors.append(programs[number].fails(s.RKNPU_SUBMIT, args))
            errors.append(0 if works[number].right_result else -1)

    threads = [threading.Thread(target=loop, args=(n,), daemon=True) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == [0] * 120
    load = kernel.files()["/sys/kernel/debug/rknpu/load"].read()
    assert load.startswith(b"NPU load:  Core0: ") and ct.sizeof(s.RknpuTask) == 40


def test_ended_jobs_leave_no_timers(program: Program, kernel: Kernel) -> None:
    work = sums(program)
    args = submit_of(work, timeout=60_000)
    for _ in range(300):
        program.ioctl(s.RKNPU_SUBMIT, args)
    assert len(kernel.scheduler._timers) < 200


class DeadNpu(GoldenNpu):
    """A device that raises an error in every run once `dead` is set."""

    dead = False

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        if self.dead:
            raise RuntimeError("broken")
        return super().run_until_irq(core_mask, max_cycles)


def test_a_dead_device_ends_the_jobs() -> None:
    device = DeadNpu(strict=False)
    with Kernel(device) as kernel:
        program = Program(kernel)
        work = hang(program)
        device.dead = True
        assert program.fails(s.RKNPU_SUBMIT, submit_of(work)) == EIO
        assert any("makes no progress" in line for line in texts(kernel))
        device.dead = False
        good = sums(program)
        assert program.fails(s.RKNPU_SUBMIT, submit_of(good)) == 0 and good.right_result


@pytest.mark.parametrize("path", [CARD, ACCEL])
def test_other_clients_go_on_while_a_time_out_is_explained(path: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Thorough(GoldenNpu):
        def block_state(self, core: int) -> str:
            begun.set()
            assert go_on.wait(20)
            return "it waits for a convolution\nthat never comes"

    with Kernel(Thorough(strict=False)) as kernel:
        program, other = Program(kernel, path), Program(kernel, pid=7)
        if path == CARD:
            work = hang(program)
            thread, codes = background(program, submit_of(work, timeout=1))
        else:
            work = sums(program, rocket=True)
            placed = build_task_list([hanging_task()], work.commands.iova)
            work.commands.bytes[: len(placed.data)] = memoryview(placed.data)
            assert not rocket_submit(program, [(placed.tasks, [work.left.handle], [work.out.handle])])
        assert begun.wait(20)
        late = threading.Timer(5, go_on.set)  # without this a kernel that holds its lock would hang the test
        late.start()
        other.create(4096)
        went_on = not go_on.is_set()
        late.cancel()
        go_on.set()
        assert went_on, "another client had to wait"
        if path == CARD:
            thread.join(20)
            assert codes == [ETIMEDOUT]
        else:
            until(lambda: not kernel.scheduler.busy)
        (kind,) = kernel.scheduler.trouble.kinds()
        assert kind.count == 1 and "never comes" in kind.text
        good = sums(other)
        assert other.fails(s.RKNPU_SUBMIT, submit_of(good)) == 0 and good.right_result


def test_a_mistake_in_the_scheduler_ends_the_jobs(
    program: Program, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = sums(program)
    with monkeypatch.context() as patch:
        patch.setattr(kernel.scheduler, "_step", lambda *_: 1 // 0)
        assert program.fails(s.RKNPU_SUBMIT, submit_of(work)) == EIO
    assert any("internal error in the device's thread: ZeroDivisionError" in line for line in texts(kernel))
    assert program.fails(s.RKNPU_SUBMIT, submit_of(work)) == 0 and work.right_result


@pytest.mark.parametrize("soft_reset", ["clears", "keeps"])
def test_registers_after_a_soft_reset(soft_reset: str) -> None:
    """OUT_CVT_SCALE and DST_SURF_STRIDE of the DPU, which an addition has written.

    The first one is not 0 after a reset (allbilly/tinygrad @72f4513a9, ops_rockchip.py: without a write a
    division is wrong).
    """
    device = SlowNpu()
    with Kernel(device, soft_reset=soft_reset) as kernel:
        program = Program(kernel)
        work = sums(program, 2)  # both register groups
        program.ioctl(s.RKNPU_SUBMIT, submit_of(work))
        assert program.fails(s.RKNPU_ACTION, s.Action(6)) == 0
        scale, stride = (registers()["DPU"][name].offset for name in ("OUT_CVT_SCALE", "DST_SURF_STRIDE"))
        left = kernel.scheduler.call(lambda: device.read32(0, stride))
        assert kernel.scheduler.call(lambda: device.read32(0, scale)) == (0x10001 if not left else 1)
        assert bool(left) == (soft_reset == "keeps")
        program.ioctl(s.RKNPU_SUBMIT, submit_of(sums(program)))


def test_a_core_that_hangs_is_reset_when_registers_are_kept() -> None:
    with Kernel(SlowNpu(), soft_reset="keeps") as kernel:
        program = Program(kernel)
        assert program.fails(s.RKNPU_SUBMIT, submit_of(hang(program), timeout=7)) == ETIMEDOUT
        good = sums(program)
        assert program.fails(s.RKNPU_SUBMIT, submit_of(good)) == 0 and good.right_result
    with pytest.raises(ValueError, match="a soft reset must be one of clears, keeps, not never"):
        Kernel(SlowNpu(), soft_reset="never")
