"""The driver against a fake device: buffers, commit sequence, kicks, interrupts, time-out, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from rkcosim.driver import Driver, DriverDmaError, DriverError, DriverTimeout, Job, Task, fold_interrupts
from rkcosim.regcmd import TaskBuilder, build_task_list
from rkcosim.regcmd import job as job_module
from rkcosim.spec.regs import registers
from tests.fake_device import FakeDevice


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def driver(device: FakeDevice):
    with Driver(device, max_cycles=100_000) as opened:
        yield opened


def make_tasks(driver: Driver, number: int, blocks: tuple[str, ...] = ("CNA", "CORE", "DPU")) -> list[Task]:
    """A chain of `number` small tasks in a separate buffer."""
    builders = []
    for index in range(number):
        builder = TaskBuilder(f"layer{index}")
        builder.set(blocks[-1], "S_POINTER", POINTER_PP_EN=1)
        builders.append(builder.enable(*blocks))
    buffer = driver.alloc(64 * (number + 1), "regcmd")
    built = build_task_list(builders, buffer.iova)
    buffer.write(built.data)
    return [Task.of_entry(entry, op_idx) for op_idx, entry in enumerate(built.tasks)]


def test_buffers_are_apart_shared_and_given_back(driver: Driver, device: FakeDevice) -> None:
    buffers = [driver.alloc(size, f"b{size}") for size in (1, 4096, 5000, 16)]
    places = [(b.iova, b.iova + b.mapped_size) for b in buffers]
    for (_, end), (start, _) in pairwise(places):
        assert start - end >= 4096, "no guard page"
    assert all(start % 4096 == 0 for start, _ in places)
    buffers[2].view()[:] = 7
    assert device.memory.read(buffers[2].iova, 3) == b"\7\7\7"
    buffers[2].write(np.array([1, 2], np.int16), offset=4)
    assert buffers[2].read(4, 4) == b"\1\0\2\0"
    hole = buffers[1].iova
    buffers[1].free()
    buffers[1].free()
    assert driver.alloc(100, "again").iova == hole
    with pytest.raises(DriverError, match="'b4096' has been freed"):
        buffers[1].view()
    with pytest.raises(DriverError, match="'b1' has 1 bytes; not 2 from 0"):
        buffers[0].write(b"ab")
    with pytest.raises(DriverError, match="'x': size must be positive"):
        driver.alloc(0, "x")
    with pytest.raises(DriverError, match="no room for 4294967296"):
        driver.alloc(1 << 32, "huge")
    driver.close()
    assert not device.memory.ranges
    with pytest.raises(DriverError, match="closed"):
        driver.alloc(1)


@pytest.mark.parametrize("core", [0, 1, 2])
def test_commit_sequence_is_the_vendors(driver: Driver, device: FakeDevice, core: int) -> None:
    """[HW 10.3], register by register and value by value, for one pooling task."""
    (task,) = make_tasks(driver, 1, ("PPU", "PPU_RDMA"))
    driver.submit(Job([task], core_mask=1 << core))
    assert device.writes == [
        (core, "PC.BASE_ADDRESS", 1),
        (core, "CNA.S_POINTER", 0x0E + 0x10000000 * core),
        (core, "CORE.S_POINTER", 0x0E + 0x10000000 * core),
        (core, "PC.BASE_ADDRESS", task.regcmd_addr),
        (core, "PC.REGISTER_AMOUNTS", (task.regcfg_amount + 4 + 1) // 2 - 1),
        (core, "PC.INTERRUPT_MASK", 0xC00),
        (core, "PC.INTERRUPT_CLEAR", 0xC00),
        (core, "PC.TASK_CON", 0x7 << 12 | 1),
        (core, "PC.TASK_DMA_BASE_ADDR", 0),
        (core, "PC.OPERATION_ENABLE", 1),
        (core, "PC.OPERATION_ENABLE", 0),
        (core, "PC.INTERRUPT_CLEAR", 0x1FFFF),
    ]


def test_pingpong_base_address_and_mask_of_the_last_task(driver: Driver, device: FakeDevice) -> None:
    tasks = make_tasks(driver, 3)
    tasks[2] = replace(tasks[2], int_mask=0xC00)
    driver.submit(Job(tasks, pingpong=False, task_base_addr=0x120))
    written = {path: value for _, path, value in device.writes[:-1]}
    assert written["PC.TASK_CON"] == 0x6 << 12 | 3
    assert written["PC.TASK_DMA_BASE_ADDR"] == 0x120
    assert written["PC.INTERRUPT_MASK"] == 0xC00
    assert written["PC.INTERRUPT_CLEAR"] == 0x300


def test_three_cores_run_their_ranges(driver: Driver, device: FakeDevice) -> None:
    tasks = make_tasks(driver, 10)
    result = driver.submit(Job(tasks, core_mask=7, ranges={0: (0, 2), 1: (2, 5), 2: (7, 3)}))
    assert [core for core, _ in device.kicks] == [0, 1, 2]
    assert [len(addresses) for _, addresses in device.kicks] == [2, 5, 3]
    assert device.kicks[1][1] == [task.regcmd_addr for task in tasks[2:7]]
    assert {core: run.tasks for core, run in result.cores.items()} == {0: 2, 1: 5, 2: 3}
    assert result.cores[1].cycles > result.cores[0].cycles > 2 * 100
    assert result.cycles >= result.cores[1].cycles
    assert all(run.int_status in (0x100, 0x200) for run in result.cores.values())


def test_long_lists_are_split_into_kicks(driver: Driver, device: FakeDevice, monkeypatch) -> None:
    assert job_module.MAX_TASKS_PER_KICK == 4095
    monkeypatch.setattr(job_module, "MAX_TASKS_PER_KICK", 4)
    tasks = make_tasks(driver, 10)
    result = driver.submit(Job(tasks))
    assert [len(addresses) for _, addresses in device.kicks] == [4, 4, 2]
    run = [address for _, addresses in device.kicks for address in addresses]
    assert run == [task.regcmd_addr for task in tasks]
    assert result.cores[0].tasks == 10


def test_kick_limit_fits_the_field() -> None:
    field = registers()["PC"]["TASK_CON"].fields["TASK_NUMBER"]
    assert job_module.MAX_TASKS_PER_KICK == (1 << field.width) - 1
    assert list(job_module.kicks(5, 9000)) == [(5, 4095), (4100, 4095), (8195, 810)]


def test_wrong_interrupt_is_logged_cleared_and_waited_past(
    driver: Driver, device: FakeDevice, caplog
) -> None:
    device.spurious.add(0)
    tasks = make_tasks(driver, 1)
    device.writes.clear()
    # The wrong event is masked out in the status, so it does not equal the mask.
    driver.submit(Job(tasks))
    assert "invalid irq status" in caplog.text
    assert [w for w in device.writes if w[1] == "PC.INTERRUPT_CLEAR"][1:] == [
        (0, "PC.INTERRUPT_CLEAR", 0x1FFFF)
    ] * 2


def test_folding_of_pairs() -> None:
    assert fold_interrupts(0x100) == fold_interrupts(0x200) == fold_interrupts(0x300) == 0x300
    assert fold_interrupts(0x555) == 0xFFF
    assert fold_interrupts(0x1F000) == 0


def test_timeout_says_what_hangs_and_resets(driver: Driver, device: FakeDevice) -> None:
    device.hang = {1: 3}
    tasks = make_tasks(driver, 10)
    before = device.cycle
    with pytest.raises(DriverTimeout) as caught:
        driver.submit(Job(tasks, core_mask=3, ranges={0: (0, 2), 1: (2, 8)}, max_cycles=5000))
    (report,) = caught.value.cores
    assert (report.core, report.task, report.task_name) == (1, 5, "layer5")
    text = str(caught.value)
    assert "within 5000 cycles" in text
    assert "core 1: task 5 (layer5) did not end" in text
    assert "DPU group 1 operating" in text and "CNA idle" in text
    assert "waits for the write response" in text
    assert "INTERRUPT_RAW_STATUS 0x0" in text
    assert device.resets == [3]
    assert device.cycle - before < 5600
    # The device works again afterwards.
    device.hang = {}
    driver.submit(Job(tasks, core_mask=3, ranges={0: (0, 2), 1: (2, 8)}))


def test_dma_error_is_reported_after_the_end(driver: Driver, device: FakeDevice) -> None:
    device.raw_errors[0] = 0x1000
    tasks = make_tasks(driver, 1)
    with pytest.raises(DriverDmaError, match=r"core 0: DMA_READ_ERROR \(WR_RESP_ID 0, RD_RESP_ID 0\)"):
        driver.submit(Job(tasks))


def refused(driver: Driver, device: FakeDevice, job: Job, message: str) -> None:
    device.writes.clear()
    with pytest.raises(DriverError, match=message):
        driver.submit(job)
    assert not device.writes, "registers were written"


def test_bad_jobs_are_refused_before_any_write(driver: Driver, device: FakeDevice) -> None:
    tasks = make_tasks(driver, 4)
    first = tasks[0]

    def one(message: str, **changes) -> None:
        refused(driver, device, Job([replace(first, **changes)]), message)

    refused(driver, device, Job(tasks, core_mask=5), "core mask 0x5: must be one of")
    refused(driver, device, Job(tasks, core_mask=0), "core mask 0x0")
    refused(driver, device, Job([]), "no tasks")
    refused(driver, device, Job(tasks, core_mask=3), "core 0: task range 0..0")
    refused(driver, device, Job(tasks, ranges={0: (2, 3)}), r"core 0: task range 2..5 .* 4 tasks")
    refused(driver, device, Job(tasks, ranges={1: (0, 1)}), "core 1 has a task range but is not in core mask")
    refused(driver, device, Job(tasks, task_base_addr=8), "task base address 0x8")
    refused(driver, device, Job(tasks, max_cycles=0), "max_cycles must be positive")
    one(r"task 0 \(layer0\): regcmd address .* multiple of 16", regcmd_addr=first.regcmd_addr + 8)
    one(r"task 0 \(layer0\): its \d+ bytes of commands at 0x2000 .*regcmd 0x", regcmd_addr=0x2000)
    one("not inside one buffer", regcfg_amount=4000)
    one("regcfg_amount -1", regcfg_amount=-1)
    one(r"int_mask 0x100 \(DPU_0\) must be whole pairs", int_mask=0x100)
    one("int_mask 0x0 ", int_mask=0)
    one("int_mask 0x3000", int_mask=0x3000)
    one("int_clear 0x20000 has bits outside", int_clear=0x20000)
    one("enable_mask 0x2 ", enable_mask=2)
    one("enable_mask 0x0 ", enable_mask=0)
    refused(driver, device, Job([tasks[0], tasks[2]]), r"task 0 \(layer0\): links to 0x.* but task 1 is at")
    refused(driver, device, Job([tasks[3], tasks[0]]), r"task 0 \(layer3\): no link to the next task")
    with Driver(FakeDevice(cores=1)) as single, pytest.raises(DriverError, match="the device has 1 cores"):
        single.submit(Job(tasks, core_mask=2))


def test_version_is_read_by_name(driver: Driver) -> None:
    assert driver.version() == 0x46495245  # what boards log
