"""Start, chaining, counting and reports of tasks, on the compiled core."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.driver import Job, Task, interrupt_bits
from rkcosim.driver.core_port import Kick, arm_kick, start_kick
from rkcosim.engines import BusError
from rkcosim.regcmd import TaskBuilder, blocks_of_mask, decode_word, pack_word, words_to_bytes
from rkcosim.regcmd.tasks import TAIL_WORDS
from rkcosim.regcmd.word import target_code
from rkcosim.spec.regs import registers
from tests.makers.jobs import first_difference, golden_image, records_of_builders
from tests.makers.small_bench import BOUND, HEIGHT, NOWHERE, WIDTH, Bench, bench
from tests.makers.small_tasks import conv_task, pool_task

R = registers()
PC = R["PC"]
ALL = PC["INTERRUPT_MASK"].reset
CONV_EVENTS = ("CNA_FEATURE", "CNA_WEIGHT", "CNA_CSC", "CORE", "DPU")


def events(*names: str, group: int) -> int:
    return interrupt_bits(*(f"{name}_{group}" for name in names))


def commit(b: Bench, task: Task, number: int, *, pp_en: int = 1, mask: int = ALL) -> None:
    """Start a kick of `number` tasks from `task` on, without the driver's checks."""
    kick = Kick(task.regcmd_addr, task.amount, number, mask, pp_en=pp_en, clear=ALL)
    arm_kick(lambda *args: b.driver.write(0, *args), 0, kick)
    start_kick(lambda *args: b.driver.write(0, *args))


def status(b: Bench) -> dict[str, int]:
    return PC["TASK_STATUS"].decode(b.driver.read(0, "PC", "TASK_STATUS"))


def raw(b: Bench) -> int:
    return b.driver.read(0, "PC", "INTERRUPT_RAW_STATUS")


def clear(b: Bench, mask: int = ALL) -> None:
    b.driver.write(0, "PC", "INTERRUPT_CLEAR", mask)


def run_by_registers(b: Bench, task: TaskBuilder, through_global: bool) -> None:
    """Slave mode: the host writes every register and starts the blocks."""
    b.driver.write(0, "PC", "BASE_ADDRESS", PC["BASE_ADDRESS"].encode(PC_SEL="SLAVE_MODE"))
    for number, word in enumerate(task.words()[:-TAIL_WORDS]):
        command = decode_word(word, number)
        if command.register is not None:
            b.engine.write32(0, command.register.offset, command.value)
    if through_global:
        b.driver.write(0, "GLOBAL", "OPERATION_ENABLE", task.mask)
    else:
        for block in blocks_of_mask(task.mask):
            described = R[block]["OPERATION_ENABLE"]
            b.driver.write(0, block, "OPERATION_ENABLE", described.encode(OP_EN=1))


@pytest.mark.parametrize("through_global", [False, True], ids=["by each block", "by GLOBAL"])
def test_slave_mode_gives_the_bytes_of_a_chain(through_global: bool):
    with bench("stop") as b:
        for task, event in ((b.conv(), "DPU"), (b.add(), "DPU"), (b.pool(), "PPU")):
            b.target.view()[:] = 0
            expected = golden_image(b.engine, b.job(task))
            for block in ("CNA", "CORE"):
                pointer = R[block]["S_POINTER"].encode(POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
                b.driver.write(0, block, "S_POINTER", pointer)
            run_by_registers(b, task, through_global)
            assert b.engine.run_until_irq(1, BOUND) == 1
            b.engine.run(2000)  # the line depends only on the block of the event
            assert raw(b) & interrupt_bits(f"{event}_0", f"{event}_1")
            assert first_difference(b.engine, expected) is None, task.name
            clear(b)
            b.engine.run(2)
            assert b.engine.irq == 0


def test_every_event_comes_in_the_pair_of_its_group():
    with bench("go on") as b:
        conv, pool = b.job(b.conv()).tasks[0], b.job(b.pool()).tasks[0]
        for group in (0, 1, 0):
            commit(b, conv, 1)
            assert b.engine.run_until_irq(1, BOUND) == 1
            while b.engine.task_log()[-1].end is None:
                b.engine.run(100)
            assert raw(b) == events(*CONV_EVENTS, group=group)
            clear(b)
        for group in (0, 1, 0):
            commit(b, pool, 1)
            assert b.engine.run_until_irq(1, BOUND) == 1
            assert raw(b) == events("PPU", group=group)
            clear(b)
        lost = b.conv().set("CNA", "FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=NOWHERE)
        lost.set("DPU", "DST_BASE_ADDR", DST_BASE_ADDR=NOWHERE // 16)
        commit(b, b.job(lost).tasks[0], 1, mask=interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR"))
        assert b.engine.run_until_irq(1, BOUND) == 1, "an error is an event like any other"
        b.engine.run(20_000)
        assert raw(b) == events(*CONV_EVENTS, group=1) | interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")
        # The line is a level: partly cleared it stays.
        clear(b, interrupt_bits("DMA_READ_ERROR"))
        b.engine.run(10)
        assert b.engine.irq == 1
        clear(b, interrupt_bits("DMA_WRITE_ERROR"))
        b.engine.run(10)
        assert b.engine.irq == 0
        clear(b)
        b.works()


def test_the_line_belongs_to_the_last_task():
    with bench("stop") as b:
        b.submit(b.conv(), b.pool(), b.conv("last"))
        last = b.engine.task_log()[-1]
        tasks = records_of_builders(b.driver, [b.conv(), b.conv(), b.pool("last")])
        commit(b, tasks[0], 3, mask=events("DPU", group=0) | events("DPU", group=1))
        assert b.engine.run_until_irq(1, 50_000) == 0, "the last task has no such event"
        assert status(b)["TASK_COUNTER"] == 3
        assert raw(b) & (events("DPU", group=0) | events("DPU", group=1))
        assert last.end is not None
        clear(b)
        b.works()


def _gap(b: Bench, prefetch: bool) -> int:
    """Return the cycles from the end of the first of two small chained tasks to the start of the second."""
    job = b.job(b.pool("first"), b.pool("second"))
    b.driver.submit(Job(job.tasks, pingpong=prefetch))
    first, second = b.engine.task_log()[-2:]
    assert first.end is not None
    return second.start - first.end


def test_prefetch_shortens_the_gap_between_two_tasks():
    with bench("stop") as b:
        gaps = {prefetch: _gap(b, prefetch) for prefetch in (False, True)}
    print(f"gap between two tasks: {gaps[False]} cycles with TASK_PP_EN 0, {gaps[True]} with 1")
    assert 0 < gaps[True] < 10
    assert gaps[False] > gaps[True] + 50


def _delta(target: int, number: int) -> TaskBuilder:
    """Return a task that changes only the destination."""
    task = TaskBuilder(f"task {number}").enable("PPU", "PPU_RDMA")
    return task.set("PPU", "DST_BASE_ADDR", DST_BASE_ADDR=target // 16)


def test_a_kick_of_4095_tasks():
    """Delta tasks in both groups; the last one's link points nowhere."""
    number = PC["TASK_CON"].fields["TASK_NUMBER"].width
    count = (1 << number) - 1
    assert count == 4095
    with bench("stop") as b:
        out = b.driver.alloc(16 * count, "results")
        tasks = [pool_task(b.left.iova, out.iova + 16 * n, 2, 2, f"task {n}") for n in range(2)]
        tasks += [_delta(out.iova + 16 * n, n) for n in range(2, count)]
        tasks[-1].link(NOWHERE, 7)
        records = records_of_builders(b.driver, tasks)
        result = b.driver.submit(Job(records, max_cycles=8_000_000))
        atoms = np.frombuffer(b.left.read(0, 64), np.int8).reshape(4, 16)
        got = np.frombuffer(out.read(), np.int8).reshape(count, 16)
        assert (got == atoms.max(axis=0)).all()
        assert status(b)["TASK_COUNTER"] == count
        assert len(b.engine.task_log()) == count and not b.engine.faults()
        print(f"{count} tasks in {result.cycles} cycles")


def test_task_number_alone_ends_a_chain():
    with bench("stop") as b:
        for prefetch in (0, 1):
            tasks = [b.pool(f"task {n}") for n in range(5)]
            records = records_of_builders(b.driver, tasks)
            commit(b, records[0], 3, pp_en=prefetch)
            assert b.engine.run_until_irq(1, BOUND) == 1
            b.engine.run(5000)
            assert status(b)["TASK_COUNTER"] == 3 and sum(status(b).values()) == 3
            clear(b)
        assert len(b.engine.task_log()) == 6


def test_dma_base_moves_data_but_not_commands():
    with bench("stop") as b:
        base = 0x7000_0020
        shifted = conv_task(
            (b.left.iova - base) % (1 << 32),
            (b.weights.iova - base) % (1 << 32),
            (b.target.iova - base) % (1 << 32),
            HEIGHT,
            WIDTH,
        )
        expected = golden_image(b.engine, b.job(b.conv()))
        b.driver.submit(Job(records_of_builders(b.driver, [shifted]), task_base_addr=base))
        size = b.target.size
        assert b.target.read() == expected.view(b.target.iova, size).tobytes() != bytes(size)


def test_the_undecoded_window_answers_with_an_error():
    with bench("go on") as b:
        for offset in (0x2000, 0x2FFC):
            with pytest.raises(BusError, match="SLVERR"):
                b.engine.read32(0, offset)
        b.engine.run(20)
        found = b.engine.diagnostics()
        assert [(d.code, d.offset) for d in found] == [
            ("UNDECODED_ACCESS", 0x2000),
            ("UNDECODED_ACCESS", 0x2FFC),
        ]
        b.engine.write32(0, 0x2000, 1)
        b.engine.run(20)
        assert b.codes()[-1] == "UNKNOWN_WRITE"
        b.works()


def test_a_truncated_list_is_refetched_after_a_reset():
    """The link's amount is too small: the op-enable word is never read."""
    with bench("go on") as b:
        words = b.pool().words()
        commands = b.driver.alloc(8 * len(words), "commands")
        commands.write(words_to_bytes(words))
        whole = Task(commands.iova, len(words) - TAIL_WORDS, ALL, ALL, b.pool().mask, name="whole")
        short = Task(commands.iova, len(words) - TAIL_WORDS - 2, ALL, ALL, b.pool().mask, name="short")
        commit(b, short, 1)
        assert b.engine.run_until_irq(1, 20_000) == 0
        assert b.codes() == ["BAD_COMMAND"]
        b.driver.soft_reset(1)
        commit(b, whole, 1)
        assert b.engine.run_until_irq(1, 20_000) == 1
        clear(b)
        b.works()


def test_odd_starts_are_reported_and_change_nothing():
    """A start without tasks, and one while a kick runs."""
    start = PC["OPERATION_ENABLE"].encode(OP_EN=1)
    with bench("go on") as b:
        b.driver.write(0, "PC", "TASK_CON", 0)
        b.driver.write(0, "PC", "OPERATION_ENABLE", start)
        b.engine.run(20)
        assert b.codes() == ["BAD_COMMAND"]
        expected = golden_image(b.engine, b.job(b.conv()))
        commit(b, b.job(b.conv()).tasks[0], 1)
        b.driver.write(0, "PC", "OPERATION_ENABLE", start)
        assert b.engine.run_until_irq(1, BOUND) == 1
        b.engine.run(2000)
        assert b.codes() == ["BAD_COMMAND"] * 2
        size = b.target.size
        assert b.target.read() == expected.view(b.target.iova, size).tobytes()
        clear(b)
        b.works()


def test_an_odd_list_writes_a_register_of_the_pc():
    with bench("go on") as b:
        mask = ALL & ~events("CORE", group=0)
        words = [pack_word(target_code("PC"), mask, PC["INTERRUPT_MASK"].offset), *b.pool().words()]
        commands = b.driver.alloc(8 * len(words), "commands")
        commands.write(words_to_bytes(words))
        commit(b, Task(commands.iova, len(words) - TAIL_WORDS, ALL, ALL, b.pool().mask, name="odd"), 1)
        assert b.engine.run_until_irq(1, 20_000) == 1
        assert b.driver.read(0, "PC", "INTERRUPT_MASK") == mask and not b.codes()
        clear(b)
        b.works()


def test_odd_writes_outside_of_all_registers_are_reported():
    with bench("go on") as b:
        odd = [R["GLOBAL"].base + 0x20, 0xA000, 0xA004]
        assert all(R.at(offset) is None for offset in odd)
        for offset in odd:
            b.engine.write32(0, offset, 0x1234_5678)
        b.engine.run(20)
        found = [(d.code, d.offset, d.value) for d in b.engine.diagnostics()]
        assert found == [("UNKNOWN_WRITE", offset, 0x1234_5678) for offset in odd]
        b.works()
