"""PC of the golden device: malformed lists, ends of kicks, interrupt causes [HW 1]."""

from __future__ import annotations

import pytest

from rkcosim.golden.task import GoldenError, GoldenHang, GoldenNpu
from rkcosim.regcmd import op_enable_word, pack_word, register_word
from rkcosim.spec.regs import registers
from tests.makers.golden_bench import MAIN, OUT, Program, flying

R = registers()
LISTS = 0x1000
OTHER = OUT + 0x1000


def link_words(place: int, count: int) -> list[int]:
    """Words that link to a list of `count` words."""
    pc = R["PC"]
    amount = -(-count // 2) - 1
    return [register_word(pc["BASE_ADDRESS"], place), register_word(pc["REGISTER_AMOUNTS"], amount)]


class Kick:
    """A golden device with two small tasks in memory, one list after the other."""

    def __init__(self) -> None:
        self.npu = GoldenNpu(1, strict=False)
        self.device = self.npu.devices[0]
        memory = self.npu.memory
        memory.map(LISTS, 0x4000)
        memory.map(MAIN, 0x1000)
        memory.map(OUT, 0x2000)
        memory.write(MAIN, bytes(range(16)))
        second = flying((16, 1, 1), 0, 0)
        second.set("DPU", "DST_BASE_ADDR", OTHER >> 4)
        self.lists = [flying((16, 1, 1), 0, 0).words(), second.words()]

    def start(self, number: int = 1, link: bool = True) -> int:
        """Store the lists, start `number` tasks, return the interrupt lines."""
        npu, pc = self.npu, R["PC"]
        if number > 1 and link:
            self.lists[0][:0] = link_words(LISTS + 0x2000, len(self.lists[1]))
        for place, words in zip((LISTS, LISTS + 0x2000), self.lists, strict=True):
            words = [0] * (len(words) % 2) + words
            npu.memory.write(place, b"".join(word.to_bytes(8, "little") for word in words))
        npu.write32(0, pc["BASE_ADDRESS"].offset, LISTS)
        npu.write32(0, pc["REGISTER_AMOUNTS"].offset, -(-len(self.lists[0]) // 2) - 1)
        npu.write32(0, pc["TASK_CON"].offset, pc["TASK_CON"].encode(TASK_NUMBER=number, TASK_COUNT_CLEAR=1))
        npu.write32(0, pc["INTERRUPT_MASK"].offset, 0x300)
        npu.write32(0, pc["OPERATION_ENABLE"].offset, 1)
        return npu.irq

    def told(self) -> list[tuple[str, str, str, int]]:
        """Return the findings so far."""
        return [(f.code, f.block, f.register, f.value) for f in self.npu.diagnostics()]

    def ran(self) -> tuple[bool, bool]:
        """Return which of the two tasks wrote."""
        want = bytes(range(16))
        return self.npu.memory.read(OUT, 16) == want, self.npu.memory.read(OTHER, 16) == want


def test_two_linked_tasks_raise_the_line() -> None:
    kick = Kick()
    assert kick.start(2) == 1
    assert (kick.ran(), kick.told(), kick.device.tasks_done) == ((True, True), [], 2)


def test_a_missing_link_ends_the_kick_without_an_interrupt() -> None:
    kick = Kick()
    assert kick.start(3, link=False) == 0
    assert kick.ran() == (True, False)
    assert kick.told() == [("BAD_COMMAND", "PC", "BASE_ADDRESS", 0)]
    assert kick.device.tasks_done == 1 and kick.npu.hang == [None]
    assert kick.start(1) == 1  # and the next kick runs


def test_reads_of_the_undecoded_window_end_in_an_error() -> None:
    for strict in (True, False):
        npu = GoldenNpu(1, strict=strict)
        assert npu.read32(0, R["CNA"]["CONV_CON1"].offset + 0x8) == 0  # other windows just read 0
        for offset in (0x2000, 0x2FFC):
            with pytest.raises(GoldenError, match=rf"{offset:#06x} = 0x0: .*UNDECODED_ACCESS"):
                npu.read32(0, offset)
        found = [(f.code, f.register) for f in npu.diagnostics()]
        assert found == [("UNDECODED_ACCESS", "0x2000"), ("UNDECODED_ACCESS", "0x2ffc")]


def start_blocks(npu: GoldenNpu, task: Program) -> None:
    """Slave mode: write a task's registers and enable its blocks one by one."""
    npu.write32(0, R["PC"]["BASE_ADDRESS"].offset, R["PC"]["BASE_ADDRESS"].encode(PC_SEL=1))
    for word in task.words()[:-1]:
        fields = R.word.decode(word)
        npu.write32(0, fields["OFFSET"], fields["VALUE"])
    for block in task.blocks:
        npu.write32(0, R[block]["OPERATION_ENABLE"].offset, 1)


@pytest.mark.parametrize(
    ("flying", "text"),
    [(0, "PPU: waits for DPU, not running"), (1, "PPU: waits for PPU_RDMA, not running")],
)
def test_a_ppu_that_nobody_feeds_says_what_it_waits_for(flying: int, text: str) -> None:
    npu = GoldenNpu(1)
    task = Program("PPU")
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=flying)
    start_blocks(npu, task)
    assert npu.block_state(0) == text
    if flying == 0:  # a running PPU_RDMA does not help
        npu.write32(0, R["PPU_RDMA"]["OPERATION_ENABLE"].offset, 1)
        assert npu.block_state(0).startswith(f"{text}; PPU_RDMA: its atoms are not accepted")
        npu.write32(0, R["DPU"]["FEATURE_MODE_CFG"].offset, 0)
        npu.write32(0, R["DPU"]["OPERATION_ENABLE"].offset, 1)
        assert "PPU: waits for atoms of the DPU, which sends none" in npu.block_state(0)
        assert "DPU: waits for CNA and CORE, not running" in npu.block_state(0)


def test_only_the_last_task_raises_the_line() -> None:
    kick = Kick()
    kick.lists[1] = [op_enable_word(0)]
    assert kick.start(2) == 0  # the second task has no event
    assert kick.device.raw == 0x100
    assert kick.told() == [("BAD_COMMAND", "PC", "OPERATION_ENABLE", 0)]


def test_a_list_without_an_op_enable_word_never_ends() -> None:
    kick = Kick()
    kick.lists[0].pop()
    assert kick.start() == 0
    assert isinstance(kick.npu.hang[0], GoldenHang) and "no op-enable word" in kick.npu.block_state(0)
    kick.lists[0].append(op_enable_word(0x18))
    assert kick.start() == 0  # the PC is still in the first kick
    assert [entry[:3] for entry in kick.told()] == [("BAD_COMMAND", "PC", "OPERATION_ENABLE")] * 2
    assert kick.ran() == (False, False)
    kick.npu.reset(1)
    assert kick.start() == 1


def test_kicks_that_cannot_start_are_ignored() -> None:
    kick = Kick()
    assert kick.start(0) == 0
    base = R["PC"]["BASE_ADDRESS"]
    kick.npu.write32(0, base.offset, LISTS | 1)
    kick.npu.write32(0, R["PC"]["OPERATION_ENABLE"].offset, 0)  # does nothing
    kick.npu.write32(0, R["PC"]["OPERATION_ENABLE"].offset, 1)
    assert [entry[:3] for entry in kick.told()] == [("BAD_COMMAND", "PC", "OPERATION_ENABLE")] * 2
    assert kick.ran() == (False, False)


@pytest.mark.parametrize(
    ("word", "place"),
    [
        (pack_word(0x0007, 5, R["DPU"]["BS_CFG"].offset), ("DPU", "BS_CFG")),
        (pack_word(0x4001, 5, R["DPU"]["BS_CFG"].offset), ("DPU", "BS_CFG")),
        (pack_word(0x1001, 5, 0x1FF0), ("PC", "0x1ff0")),
        (pack_word(0x0081, 0x18, 0x0010), ("PC", "BASE_ADDRESS")),
        (pack_word(0x0101, 0x7000_0001, 0x0010), ("PC", "BASE_ADDRESS")),
    ],
)
def test_bad_words_are_dropped(word: int, place: tuple[str, str]) -> None:
    kick = Kick()
    kick.lists[0].insert(0, word)
    assert kick.start() == 1
    assert kick.ran() == (True, False)
    assert [entry[:3] for entry in kick.told()] == [("BAD_COMMAND", *place)]


def test_base_of_a_kick_is_a_multiple_of_32() -> None:
    kick = Kick()
    base = R["PC"]["TASK_DMA_BASE_ADDR"]
    kick.npu.write32(0, base.offset, 0x10)
    assert kick.start() == 1
    assert kick.ran() == (True, False)  # as with a base of 0
    assert kick.told() == [("UNALIGNED_ADDRESS", "PC", "TASK_DMA_BASE_ADDR", 0x10)]


def test_wrong_core_is_told_when_the_block_is_enabled() -> None:
    npu = GoldenNpu(1, strict=False)
    for block in ("CNA", "CORE", "DPU"):
        pointer = R[block]["S_POINTER"]
        if block != "DPU":
            npu.write32(0, pointer.offset, pointer.encode(CORE_INDEX=2))
        npu.write32(0, R[block]["OPERATION_ENABLE"].offset, 1)
    found = [(f.code, f.block, f.register, f.value) for f in npu.diagnostics()]
    assert found == [("WRONG_CORE", "CNA", "S_POINTER", 2), ("WRONG_CORE", "CORE", "S_POINTER", 2)]


def test_reads_give_only_bits_of_fields() -> None:
    npu = GoldenNpu(1)
    register = R["DPU"]["DST_BASE_ADDR"]
    npu.write32(0, register.offset, 0xFFFFFFFF)
    assert npu.read32(0, register.offset) == register.mask
    control = R["PC"]["TASK_CON"]
    npu.write32(0, control.offset, 0xFFFFFFFF)
    assert npu.read32(0, control.offset) == control.mask
