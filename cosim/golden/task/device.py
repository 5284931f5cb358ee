"""Functional model of one NPU core: registers and memory in, memory out, no notion of cycles.

The PC, its pointers and the order of blocks follow docs/hardware.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cosim.golden.task.cna import Cbuf
from cosim.golden.task.context import Context, Finding, TaskReport
from cosim.golden.task.core import convolve
from cosim.golden.task.dpu import Dpu, feeds_ppu
from cosim.golden.task.dpu_lut import LutTables
from cosim.golden.task.errors import GoldenError, GoldenHang, MemoryFault
from cosim.golden.task.memory import Memory
from cosim.golden.task.observer import Observer, observe
from cosim.golden.task.ppu import check_ppu, from_dpu, pool
from cosim.golden.task.rdma import RdmaData, check_rdma, fetch, unpooling
from cosim.golden.task.registers import SHADOWED_BLOCKS, RegisterSpace, View
from rtl.regs import registers
from rtl.regs.options import chosen_options

FETCH_BYTES = 16
"""Bytes of one command fetch, two words (H1.6)."""

DMA_BASE_BYTES = 32
"""What TASK_DMA_BASE is a multiple of (docs/hardware.md 7.7)."""

EVENT_BITS = {"CNA": (0, 2, 4), "CORE": (6,), "DPU": (8,), "PPU": (10,)}
"""First interrupt bit (group 0) of each event of a block (H7); CNA: feature, weight, CSC."""

_OP_ENABLE, _END, _TARGET_MASK = 0x0080, 0x0040, 0xFFFE


class GoldenDevice:
    """One core with its memory.

    Parameters
    ----------
    memory
        shared DRAM; a new, empty one by default.
    core_index
        index that CNA and CORE expect in S_POINTER.
    strict
        raise GoldenError on anything the hardware raises a diagnostic for; otherwise go on as the
        hardware does and collect `findings`.
    observer
        is shown CBUF and CORE's octets of every convolution that ends (see `Observer`).
    options
        names of readings of the hardware (rtl/regs/options.py); None: those of the environment.
    """

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        core_index: int = 0,
        strict: bool = True,
        observer: Observer | None = None,
        options: Iterable[str] | None = None,
    ) -> None:
        self.memory = Memory() if memory is None else memory
        self.observer = observer
        self.options = chosen_options(options)
        self.core_index, self.strict = core_index, strict
        self._map = registers()
        self.lut = LutTables(self._diagnose)
        self.reset()

    def reset(self) -> None:
        """Return to the state after a hardware reset; memory and the tables of the LUT stay."""
        self.lut.reset()
        self.space = RegisterSpace(self._diagnose, self.lut)
        self.cbuf = Cbuf()
        self.reports: list[TaskReport] = []
        """Tasks of the last kick (or of all slave-mode starts since the last kick)."""
        self.findings: list[Finding] = []
        self.raw = 0
        """Interrupt events, RAW_STATUS."""
        self.tasks_done = 0
        self.last_task = 0
        """Index of the last task of the kick, whose events alone may raise the line."""
        self.stuck = False
        """Whether the PC is in a kick that never ends."""
        self.unfinished: GoldenHang | None = None
        """Why the DPU never ends, although the blocks that it works with have."""
        self._task = 0
        self._link = False
        self._told: dict[str, list[Finding]] = {}
        """What a set of blocks that waits has told so far, by its first block."""
        self._held: dict[str, GoldenHang] = {}
        """Why it waits."""

    # -- programs -------------------------------------------------------------------------------

    def run_task(self, words: Iterable[int], dma_base: int = 0) -> TaskReport | None:
        """Run one list of 64-bit command words given directly.

        Parameters
        ----------
        words
            the task's words; an op-enable word in it runs the blocks it names.
        dma_base
            TASK_DMA_BASE, a multiple of 32.

        Returns
        -------
        The report of the last blocks that ran; None when the list enables none.

        Raises
        ------
        GoldenError
            for what the hardware reports, GoldenHang for what it would never finish.
        """
        if not self.space.blocks["CNA"].control:
            self._host_pointers()
        self.space.write(self._map["PC"]["TASK_DMA_BASE_ADDR"].offset, dma_base)
        self.reports, self._task = [], 0
        self._run_words([int(w) for w in words])
        return self.reports[-1] if self.reports else None

    def run_kick(
        self,
        base_addr: int,
        amount_code: int,
        task_number: int,
        core_index: int | None = None,
        dma_base: int = 0,
        pp_en: int = 1,
    ) -> list[TaskReport]:
        """Run a chain of tasks from memory, as the driver starts it (H1.9).

        Parameters
        ----------
        base_addr
            address of the first task's words, a multiple of 16.
        amount_code
            16-byte fetches of the first task minus one.
        task_number
            tasks of this kick, 1..4095.
        core_index
            index the host writes into S_POINTER; that of the device by default.
        dma_base
            TASK_DMA_BASE.
        pp_en
            TASK_PP_EN; without effect here.

        Returns
        -------
        One report per group of blocks that ran (errors as `run_task`).
        """
        pc = self._map["PC"]
        self._host_pointers(core_index)
        self.space.write(pc["BASE_ADDRESS"].offset, base_addr)
        self.space.write(pc["REGISTER_AMOUNTS"].offset, amount_code)
        control = pc["TASK_CON"].encode(
            TASK_NUMBER=task_number, TASK_PP_EN=pp_en, TASK_COUNT_CLEAR=1, RESERVED_14=1
        )
        self.space.write(pc["TASK_CON"].offset, control)
        self.space.write(self._map["PC"]["TASK_DMA_BASE_ADDR"].offset, dma_base)
        self.tasks_done = 0
        return self.kick()

    def kick(self) -> list[TaskReport]:
        """Run the chain that the PC registers describe (errors as `run_task`)."""
        self.reports = []
        self._task = 0
        number = self._map["PC"]["TASK_CON"].decode(self.space.value("PC", "TASK_CON"))["TASK_NUMBER"]
        slave = self._map["PC"]["BASE_ADDRESS"].decode(self.space.value("PC", "BASE_ADDRESS"))["PC_SEL"]
        if self.stuck or slave or not number:
            why = "a kick runs" if self.stuck else "slave mode" if slave else "TASK_NUMBER is 0"
            self._diagnose("BAD_COMMAND", "PC", "OPERATION_ENABLE", 1, f"no kick starts: {why}")
            return self.reports
        self.last_task = number - 1
        try:
            self._run_chain(number)
        except GoldenHang:
            self.stuck = True
            raise
        return self.reports

    def _run_chain(self, number: int) -> None:
        pc = self._map["PC"]
        for self._task in range(number):
            self._link = False
            base = self.space.value("PC", "BASE_ADDRESS") & pc["BASE_ADDRESS"].fields["PC_SOURCE_ADDR"].mask
            amount = self.space.value("PC", "REGISTER_AMOUNTS") & pc["REGISTER_AMOUNTS"].mask
            try:
                data = self.memory.read(base, (amount + 1) * FETCH_BYTES)
            except MemoryFault as fault:
                raise GoldenError(
                    f"command fetch: {fault}",
                    task=self._task,
                    block="PC",
                    register="BASE_ADDRESS",
                    value=base,
                    code="READ_ERROR",
                ) from None
            self._run_words(np.frombuffer(data, "<u8").tolist())
            self.tasks_done += 1
            if not self._link and self._task < self.last_task:
                self._diagnose("BAD_COMMAND", "PC", "BASE_ADDRESS", self._task, "no link, but tasks are left")
                break

    def _host_pointers(self, core_index: int | None = None) -> None:
        index = self.core_index if core_index is None else core_index
        for block in ("CNA", "CORE"):
            r = self._map[block]["S_POINTER"]
            flags = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
            self.space.write(r.offset, r.encode(CORE_INDEX=index, **flags))

    def _run_words(self, words: list[int]) -> None:
        """Carry out one task's words in order (H1.4, docs/hardware.md 7.3)."""
        started = False
        for word in words:
            fields = self._map.word.decode(word)
            target, offset, value = fields["TARGET"] & _TARGET_MASK, fields["OFFSET"], fields["VALUE"]
            if target in (0, _END):
                continue
            problem = self._problem(target, offset, value)
            if problem:
                register = self._map.at(offset)
                place = ("PC", f"{offset:#06x}") if register is None else (register.block, register.name)
                self._diagnose("BAD_COMMAND", *place, value, problem)
            if target != _OP_ENABLE:
                if not problem:
                    self._link |= offset == self._map["PC"]["BASE_ADDRESS"].offset
                    self.space.write(offset, value)
            elif offset == self._map["PC"]["OPERATION_ENABLE"].offset:
                started = True
                self.enable(value)
                self._finish_all()
        if not started:
            message = "the word list has no op-enable word"
            code, register_name = "BAD_COMMAND", "OPERATION_ENABLE"
            self.findings.append(Finding(self._task, code, "PC", register_name, self._task, message))
            raise GoldenHang(message, task=self._task, block="PC", code=code)

    def _problem(self, target: int, offset: int, value: int) -> str:
        """Say what is wrong with a word, if something is (docs/hardware.md 7.6)."""
        pc = self._map["PC"]
        if target == _OP_ENABLE:
            if offset != pc["OPERATION_ENABLE"].offset:
                return "op-enable word at another offset"
            blocks = self._map["GLOBAL"]["OPERATION_ENABLE"].decode(value)
            return "" if any(blocks.values()) else "no block is enabled"
        block = self._map.block_at(offset)
        if block is None or block.target & _TARGET_MASK != target:
            return "target and offset name different blocks"
        if offset == pc["BASE_ADDRESS"].offset and pc["BASE_ADDRESS"].decode(value)["PC_SEL"]:
            return "a link cannot change to slave mode"
        return ""

    # -- blocks ---------------------------------------------------------------------------------

    def enable(self, mask: int) -> None:
        """Op-enable the blocks of a mask (H1.5) and run what can run."""
        fields = self._map["GLOBAL"]["OPERATION_ENABLE"].decode(mask)
        self.enable_blocks([name for name in SHADOWED_BLOCKS if fields[f"{name}_OP_EN"]])

    def enable_blocks(self, names: Iterable[str]) -> None:
        """Op-enable blocks by name and run what can run."""
        names = list(names)
        for name in names:
            state = self.space.blocks[name]
            state.enable()
            if state.ready() and not self.core_fits(name):
                message = f"core {self.core_index} waits for its own index"
                index = state.core_index()
                self.findings.append(Finding(self._task, "WRONG_CORE", name, "S_POINTER", index, message))
        while self._step(final=False):
            pass

    def _finish_all(self) -> None:
        """Make sure that no enabled block is left waiting.

        Raises
        ------
        GoldenHang
            naming the block that waits and what for.
        """
        while self._step(final=True):
            pass
        if self.unfinished is not None:
            raise self.unfinished
        for name, state in self.space.blocks.items():
            if not any(state.enabled):
                continue
            if not self.core_fits(name):
                raise GoldenHang(
                    f"core {self.core_index} waits for its own index",
                    task=self._task,
                    block=name,
                    register="S_POINTER.CORE_INDEX",
                    value=state.core_index(),
                    code="WRONG_CORE",
                )
            if not state.ready():
                raise GoldenHang(
                    f"group {1 - state.executer} is enabled but group {state.executer} is in turn",
                    task=self._task,
                    block=name,
                    register="S_POINTER",
                    value=state.read_pointer(),
                )
            raise GoldenHang(self._wait(name), task=self._task, block=name)

    def waits(self) -> list[str]:
        """Say of every enabled block what it waits for."""
        enabled = [name for name, state in self.space.blocks.items() if any(state.enabled)]
        return [f"{name}: {self._wait(name)}" for name in enabled]

    def _wait(self, name: str) -> str:
        """Say what an enabled block waits for."""
        if name in self._held:
            return str(self._held[name])
        if not self.core_fits(name):
            return f"core {self.core_index} waits for its own index"
        if not self.space.blocks[name].ready():
            return "the other group is in turn"
        views = {block: self.space.blocks[block].view() for block in ("DPU", "PPU")}
        flying = views["DPU"].get("FEATURE_MODE_CFG", "FLYING_MODE")
        fed = from_dpu(views["PPU"])
        partners = {
            "CNA": ("CORE", "DPU"),
            "CORE": ("CNA", "DPU"),
            "DPU": () if flying else ("CNA", "CORE"),
            "DPU_RDMA": ("DPU",),
            "PPU": ("DPU",) if fed else ("PPU_RDMA",),
            "PPU_RDMA": ("PPU",),
        }[name]
        gone = [block for block in partners if not self._ready(block)]
        if gone:
            return f"waits for {' and '.join(gone)}, not at work"
        if name == "PPU" and fed:
            return "waits for atoms of the DPU, which feeds it none (OUTPUT_MODE)"
        if name == "PPU_RDMA" and fed:
            return "its atoms are not taken, the PPU waits for those of the DPU (FLYING_MODE 0)"
        return "waits for a block that it works with"

    def core_fits(self, name: str) -> bool:
        """Tell whether a block's S_POINTER names this core; only CNA and CORE look (docs/hardware.md 7.2)."""
        if name not in ("CNA", "CORE"):
            return True
        index = self.space.blocks[name].core_index()
        every = self._map[name]["S_POINTER"].fields["CORE_INDEX"].enum
        return index == self.core_index or (every is not None and index == every["EVERY"])

    def _ready(self, name: str) -> bool:
        return self.core_fits(name) and self.space.blocks[name].ready()

    def _step(self, final: bool) -> bool:
        """Run one set of blocks that is complete; tell whether one was.

        Without `final` a set that would hang stays pending: the host may still enable what it misses.
        """
        for choose in (self._dpu_blocks, self._ppu_blocks):
            names = choose(final)
            if not names:
                continue
            told = self._told.pop(names[0], [])  # by an earlier attempt
            self._held.pop(names[0], None)
            self.findings[:] = [f for f in self.findings if not any(f is old for old in told)]
            mark = len(self.findings)
            try:
                self._run(names)
                return True
            except GoldenHang as hang:
                self._told[names[0]], self._held[names[0]] = self.findings[mark:], hang
                if final:
                    raise
        return False

    def _dpu_blocks(self, final: bool) -> list[str]:
        """Blocks of the DPU's task in turn, empty unless all are there."""
        if not self._ready("DPU") or self.unfinished is not None:
            return []
        dpu = self.space.blocks["DPU"].view()
        names = ["DPU"] if dpu.get("FEATURE_MODE_CFG", "FLYING_MODE") else ["DPU", "CNA", "CORE"]
        if not all(self._ready(name) for name in names):
            return []
        if self._ready("DPU_RDMA"):
            names.append("DPU_RDMA")
        if not feeds_ppu(dpu, self._copies()):
            return names
        if self._ready("PPU") and from_dpu(self.space.blocks["PPU"].view()):
            return [*names, "PPU"]
        if final:
            raise GoldenHang(
                "the PPU does not take what it is fed",
                task=self._task,
                block="DPU",
                register="FEATURE_MODE_CFG.OUTPUT_MODE",
                value=dpu.get("FEATURE_MODE_CFG", "OUTPUT_MODE"),
            )
        return []

    def _copies(self) -> int:
        """Copies of a row that DPU_RDMA's settings ask for; 0 without unpooling (docs/hardware.md 5.7)."""
        kernel = unpooling(self.space.blocks["DPU_RDMA"].view())
        return 0 if kernel is None else kernel[0]

    def _ppu_blocks(self, final: bool) -> list[str]:
        """Blocks of a pooling task that reads from memory, empty unless all are there."""
        names = ["PPU", "PPU_RDMA"]
        complete = all(self._ready(name) for name in names)
        return names if complete and not from_dpu(self.space.blocks["PPU"].view()) else []

    def _run(self, names: list[str]) -> None:
        kind = "pool" if "DPU" not in names else "conv" if "CORE" in names else "elementwise"
        report, ctx, views = self._begin(names, kind)
        # Every block tells about its settings when it starts, whatever keeps the task from ending.
        rdma, ppu = views.get("DPU_RDMA"), views.get("PPU")
        comb_use = 0 if rdma is None else rdma.get("FEATURE_MODE_CFG", "COMB_USE")
        dpu = Dpu(ctx, views["DPU"], self.lut, comb_use, self._copies()) if "DPU" in names else None
        if rdma is not None:
            check_rdma(ctx, rdma)
        if ppu is not None:
            check_ppu(ctx, ppu, views.get("PPU_RDMA"), None if dpu is None else dpu.flying)
        conv, feed = None, None
        if "CORE" in names:
            conv = convolve(ctx, views["CNA"], views["CORE"], self.cbuf)
            report.kind = "depthwise" if conv[0].depthwise else "conv"
        if dpu is not None:
            feed = dpu.run(RdmaData() if rdma is None else fetch(ctx, rdma), conv)
            if self.observer is not None and conv is not None:
                observe(self.observer, self._task, self.cbuf, conv)
        if dpu is not None and dpu.unfinished is not None:
            self.unfinished = self._held["DPU"] = dpu.unfinished
            names = [name for name in names if name in ("CNA", "CORE")]
            report.groups = {name: report.groups[name] for name in names}
        elif ppu is not None:
            pool(ctx, ppu, views.get("PPU_RDMA"), feed)
        self._end(report, names)

    def _begin(self, names: list[str], kind: str) -> tuple[TaskReport, Context, dict[str, View]]:
        views = {name: self.space.blocks[name].view() for name in names}
        report = TaskReport(self._task, kind)
        enables = self._map["GLOBAL"]["OPERATION_ENABLE"]
        report.mask = enables.encode(**{f"{name}_OP_EN": 1 for name in names})
        report.groups = {name: self.space.blocks[name].executer for name in names}
        report.registers = {name: view.text() for name, view in views.items()}
        base = self.space.value("PC", "TASK_DMA_BASE_ADDR") // DMA_BASE_BYTES * DMA_BASE_BYTES
        return report, Context(self.memory, base, report, self.findings, self.strict, self.options), views

    def _end(self, report: TaskReport, names: list[str]) -> None:
        for name in names:
            group = self.space.blocks[name].finish()
            for bit in EVENT_BITS.get(name, ()):
                self.raw |= 1 << (bit + group)
        self.reports.append(report)

    def _diagnose(self, code: str, block: str, register: str, value: int, message: str) -> None:
        self.findings.append(Finding(self._task, code, block, register, value, message))
        if self.strict:
            raise GoldenError(
                message, task=self._task, block=block, register=register, value=value, code=code
            )
