"""Command lists in the form of real programs, word by word, and their check with the golden model."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import amount_code, pack_word, register_word
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.compare import compare_images, copy_memory
from rkcosim.verify.crosscheck.kick import run_kick

BASE, SIZE = 0x0020_0000, 0x40_0000
"""The one mapped range of `vector_device`."""

COMMANDS = BASE + 0x3F_0000


def vector_device(kind: str, cores: int = 1, options: Iterable[str] | None = None):  # type: ignore[no-untyped-def]
    """Return a device ("golden" or "rtl") whose memory is one mapped range of random bytes."""
    if kind == "golden":
        device = GoldenNpu(cores, options=options)
    else:
        from rkcosim.engines import open_engine

        device = open_engine(cores=cores, options=options)
    device.memory.map(BASE, SIZE)
    device.memory.write(BASE, np.random.default_rng(1).integers(0, 256, SIZE, np.uint8))
    return device


class Program:
    """Words of one task by block, register, and whole value or fields."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.value: dict[str, int] = {}

    def add(self, block: str, register: str, value: int | None = None, **fields: int) -> None:
        """Append a write of a whole value, or of fields."""
        r = registers()[block][register]
        word = r.encode(**fields) if value is None else value
        self.value[r.path] = word
        self.words.append(register_word(r, word))

    def zero(self, block: str, *names: str) -> None:
        """Append writes of zero."""
        for name in names:
            self.add(block, name, 0)

    def finish(self, mask: int, pad_to: int = 0, link: tuple[int, int] | None = None) -> list[int]:
        """Append filler and the four words of the tail [HW 1.6]; `link` is the next address and its words."""
        while (len(self.words) + 4) % 2 or len(self.words) + 4 < pad_to:
            self.words.append(0)
        pc = registers()["PC"]
        self.words += [
            0 if link is None else register_word(pc["BASE_ADDRESS"], link[0]),
            register_word(pc["REGISTER_AMOUNTS"], 0 if link is None else amount_code(link[1])),
            pack_word(0x0041, 0, 0),
            pack_word(0x0081, mask, pc["OPERATION_ENABLE"].offset),
        ]
        return self.words


def run(  # type: ignore[no-untyped-def]
    npu,
    words: list[int],
    interrupt_mask: int,
    at: int = COMMANDS,
    tasks: int = 1,
    first: int | None = None,
    options: Iterable[str] | None = None,
    strict: bool = True,
) -> None:
    """Run the program; afterwards only the golden model's writes may differ from before.

    Without `strict` the golden model continues after a diagnostic.

    `words` may be a chain of `tasks` lists, of which the first has `first` words.
    """
    npu.memory.write(at, np.array(words, "<u8"))
    kick = Kick(at, amount_code(len(words) if first is None else first), tasks, interrupt_mask)
    model = GoldenNpu(1, strict=strict, memory=copy_memory(npu.memory), options=options)
    assert run_kick(model, kick).done
    result = run_kick(npu, kick, max_cycles=3_000_000)
    assert result.done, result.state
    assert result.status & interrupt_mask and not result.status & ~interrupt_mask
    assert compare_images(npu.memory, model.memory, [(BASE, SIZE)]) is None


def conv_common(p: Program) -> None:
    """Return the registers that all captured convolutions write identically [HW 14.4]."""
    p.add("DPU", "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    p.add("DPU_RDMA", "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    assert p.value["DPU.S_POINTER"] == 0x0E
    p.zero("CNA", "DCOMP_CTRL", "DCOMP_REGNUM", *(f"DCOMP_AMOUNT{i}" for i in range(16)))
    p.add("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    assert p.value["CNA.CVT_CON0"] == 0x0B
    for i in range(4):
        p.add("CNA", f"CVT_CON{i + 1}", **{f"CVT_SCALE{i}": 1})
    p.zero("CNA", "CVT_CON5", "FC_CON0", "FC_CON1", "FC_CON2", "PAD_CON0", "PAD_CON1")
    p.add("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    p.add("CORE", "CLIP_TRUNCATE", 0)
    p.add("CORE", "UNDOC_3030", 0)
    p.zero("DPU", "OFFSET_PEND", "BS_ALU_CFG", "BS_RELUX_CMP_VALUE", "BN_ALU_CFG", "BN_MUL_CFG")
    p.zero("DPU", "BN_RELUX_CMP_VALUE", "EW_CVT_OFFSET_VALUE", "EW_RELUX_CMP_VALUE", "UNDOC_40C4")
    p.zero(
        "DPU", *(f"EW_OP_VALUE_{i}" for i in range(8)), "LUT_CFG", "LUT_INFO", "LUT_LE_START", "LUT_LE_END"
    )
    p.add("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
    p.add("DPU", "BN_CFG", 0x53)
    p.add("DPU", "EW_CFG", 0x383)


def float_common(p: Program) -> None:
    """Return the common writes of the vendor's fp16 convolutions: mask 0x0D, all bypassed, fp16 out."""
    p.add("DPU", "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    p.zero("CNA", "DCOMP_CTRL", "DCOMP_REGNUM", *(f"DCOMP_AMOUNT{i}" for i in range(16)))
    for i in range(4):
        p.add("CNA", f"CVT_CON{i + 1}", **{f"CVT_SCALE{i}": 1})
    p.zero("CNA", "FC_CON0", "FC_CON1", "FC_CON2", "PAD_CON0", "PAD_CON1")
    p.add("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    p.add("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    p.add("CORE", "CLIP_TRUNCATE", 0)
    p.add("CORE", "UNDOC_3030", 0)
    p.zero("DPU", "OFFSET_PEND", "BS_ALU_CFG", "BS_MUL_CFG", "BS_RELUX_CMP_VALUE", "BS_OW_OP")
    p.zero("DPU", "BN_ALU_CFG", "BN_MUL_CFG", "BN_RELUX_CMP_VALUE", "EW_CVT_OFFSET_VALUE")
    p.zero("DPU", "EW_RELUX_CMP_VALUE", "OUT_CVT_OFFSET", "OUT_CVT_SHIFT", "UNDOC_40C4")
    p.zero("DPU", *(f"EW_OP_VALUE_{i}" for i in range(8)), "LUT_CFG", "LUT_INFO")
    p.add("DPU", "BS_CFG", 0x53)
    p.add("DPU", "BN_CFG", 0x53)
    p.add("DPU", "EW_CFG", 0x383)
    p.add("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
    p.add("DPU", "DATA_FORMAT", 0x48000002)
    p.add("DPU", "OUT_CVT_SCALE", 0x10001)
