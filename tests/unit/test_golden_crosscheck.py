"""Comparison of memory, and kicks through the device protocol, with golden devices on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.golden.task import GoldenNpu, Memory
from rkcosim.regcmd import amount_code, register_word
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.conformance.runner import Runner
from rkcosim.verify.crosscheck.compare import compare_images, copy_memory
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.crosscheck.program import Task as Registers
from rkcosim.verify.crosscheck.program import link


def images() -> tuple[Memory, Memory]:
    first = Memory()
    first.map(0x1000, 0x100)
    first.map(0x4000, 0x100)
    first.write(0x1000, np.arange(256, dtype=np.uint8))
    return first, first.copy()


def test_equal_images_have_no_difference() -> None:
    first, second = images()
    assert compare_images(first, second, first.regions()) is None


def test_first_difference_and_count() -> None:
    first, second = images()
    first.write(0x4007, b"\x01\x02")
    second.write(0x1003, b"\xff")
    found = compare_images(first, second, reversed(first.regions()))
    assert (found.address, found.rtl, found.golden, found.count) == (0x1003, 3, 0xFF, 3)


def prepared(case: Case) -> GoldenNpu:
    npu = GoldenNpu(1)
    for address, data in case.regions:
        npu.memory.map(address, data.size)
        npu.memory.write(address, data)
    return npu


@pytest.mark.parametrize("group", ["conv int8", "row tiles", "data reuse", "pool int8"])
def test_a_kick_changes_memory_and_two_runs_are_equal(group: str) -> None:
    case = draw_case(group, 3, 0)
    npu, other = prepared(case), prepared(case)
    before = copy_memory(npu.memory)
    assert run_kick(npu, case.kick).done and run_kick(other, case.kick).done
    assert compare_images(npu.memory, other.memory, npu.memory.regions()) is None
    assert compare_images(before, npu.memory, before.regions()) is not None


def test_a_wrong_device_is_told() -> None:
    told = 0
    for index in range(6):
        npu = GoldenNpu(1, strict=False)
        write = npu.devices[0].cbuf.weights
        npu.devices[0].cbuf.weights = lambda *a, w=write: w(*a) ^ np.uint8(1)  # a bit of every weight
        told += Runner(npu).run(draw_case("conv int8", 4, index)).problem == "memory"
    assert told >= 3, "only where results saturate it makes no difference"


class Stray(GoldenNpu):
    """A device that writes one wrong byte in every kick, far from the addresses that it should write."""

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        raised = super().run_until_irq(core_mask, max_cycles)
        self.memory.view(self.memory.regions()[0][0] + 3, 1)[0] ^= 0x10
        return raised


def test_a_stray_byte_in_a_guard_zone_is_found() -> None:
    case = draw_case("row tiles", 1, 0)
    outcome = Runner(Stray(1, strict=False)).run(case)
    assert outcome.problem == "memory" and "1 bytes differ" in outcome.detail
    assert f"guard zone ({case.arena.base + 3:#010x})" in outcome.detail


def test_a_kick_that_hangs_is_told() -> None:
    case = draw_case("conv int8", 3, 0)
    npu = prepared(case)
    npu.run_until_irq = lambda mask, cycles: 0  # type: ignore[method-assign]
    assert not run_kick(npu, case.kick, max_cycles=10).done


def test_program_words_and_links() -> None:
    first, second = Registers(("PPU", "PPU_RDMA")), Registers(("PPU", "PPU_RDMA"))
    chain = link([first, second], 0x1000)
    (at, words), (then, more) = chain.lists
    pc = registers()["PC"]
    assert at == 0x1000 and then % 64 == 0 and then >= at + 8 * len(words)
    assert words[-4] == register_word(pc["BASE_ADDRESS"], then)
    assert words[-3] == register_word(pc["REGISTER_AMOUNTS"], amount_code(len(more)))
    assert words[-2] == 0x0041_0000_0000_0000 and words[-1] == 0x0081_0000_0060_0008
    assert more[-4] == 0 and chain.amount == len(words) // 2 - 1
    assert [amount_code(n + 4) for n in (108, 104, 26, 13, 12, 17)] == [55, 53, 14, 8, 7, 10]  # [HW 1.6]


def test_registers_of_other_blocks_are_refused() -> None:
    task = Registers(("DPU",))
    task.set("CNA", "CONV_CON1", CONV_MODE=3)
    with pytest.raises(ValueError, match="outside the task's blocks"):
        task.values()
    with pytest.raises(ValueError, match="not aligned"):
        task.address("DPU", "DST_BASE_ADDR", 0x1008)


# -- the device protocol ---------------------------------------------------------------------------


def offset(block: str, register: str) -> int:
    return registers()[block][register].offset


def test_interrupt_line_stays_until_status_is_clear() -> None:
    case = draw_case("pool int8", 3, 0)
    npu = prepared(case)
    assert npu.run_until_irq(1, 100) == 0 and npu.cycle >= 100
    run_kick(npu, case.kick)
    assert npu.irq == 0  # run_kick has cleared it
    npu.write32(0, offset("PC", "INTERRUPT_MASK"), 0)
    npu.write32(0, offset("PC", "BASE_ADDRESS"), case.chain.base)
    npu.write32(0, offset("PC", "REGISTER_AMOUNTS"), case.chain.amount)
    npu.write32(0, offset("PC", "OPERATION_ENABLE"), 1)
    assert npu.irq == 0 and npu.read32(0, offset("PC", "INTERRUPT_RAW_STATUS")) & 0xC00
    assert npu.read32(0, offset("PC", "INTERRUPT_STATUS")) == 0
    npu.write32(0, offset("PC", "INTERRUPT_MASK"), 0xC00)
    npu.write32(0, offset("PC", "OPERATION_ENABLE"), 0)
    assert npu.irq == 0  # an event that was masked when it came raises nothing
    npu.write32(0, offset("PC", "REGISTER_AMOUNTS"), case.chain.amount)
    npu.write32(0, offset("PC", "OPERATION_ENABLE"), 1)
    assert npu.irq == 1 and npu.run_until_irq(1, 5) == 1
    assert npu.read32(0, offset("PC", "TASK_STATUS")) == 3  # TASK_COUNT_CLEAR was not written since
    npu.write32(0, offset("PC", "INTERRUPT_CLEAR"), 0x1FFFF)
    assert npu.irq == 0 and npu.read32(0, offset("PC", "INTERRUPT_RAW_STATUS")) == 0


def test_slave_mode_starts_blocks_one_by_one() -> None:
    case = draw_case("pool int8", 3, 0, {"kick.delta": 0})
    npu, want = prepared(case), prepared(case)
    run_kick(want, case.kick)
    npu.write32(0, offset("PC", "BASE_ADDRESS"), 1)
    npu.write32(0, offset("PC", "TASK_DMA_BASE_ADDR"), case.kick.dma_base)
    words = registers().word
    for word in case.chain.lists[0][1][:-4]:
        fields = words.decode(word)
        if fields["TARGET"]:
            npu.write32(0, fields["OFFSET"], fields["VALUE"])
    npu.write32(0, offset("PPU", "OPERATION_ENABLE"), 1)
    assert npu.irq == 0 and "PPU" in npu.block_state(0)
    assert npu.read32(0, offset("PPU", "S_STATUS")) == 1
    npu.write32(0, offset("PPU_RDMA", "OPERATION_ENABLE"), 1)
    assert npu.irq == 1 and npu.block_state(0) == "idle"
    assert compare_images(npu.memory, want.memory, npu.memory.regions()) is None


def test_a_hang_never_interrupts_and_says_why() -> None:
    case = draw_case("conv int8", 3, 0)
    npu = prepared(case)
    npu.write32(0, offset("PC", "BASE_ADDRESS"), case.chain.base)
    npu.write32(0, offset("PC", "REGISTER_AMOUNTS"), 0)  # ends before the op-enable word
    npu.write32(0, offset("PC", "TASK_CON"), 1)
    npu.write32(0, offset("PC", "OPERATION_ENABLE"), 1)
    assert npu.run_until_irq(1, 1000) == 0
    assert "no op-enable word" in npu.block_state(0)
    npu.reset(1)
    assert npu.block_state(0) == "idle"


def test_number_of_cores_is_checked() -> None:
    with pytest.raises(ValueError, match="cores must be"):
        GoldenNpu(4)
