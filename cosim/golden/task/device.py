"""Functional model of one NPU core: registers and memory, without any notion of cycles.

The PC, its pointers and the order of blocks follow [HW 1].
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.cna import Cbuf, SavedCbuf
from rkcosim.golden.task.co_work import Steps, group_size
from rkcosim.golden.task.context import Context, Finding, FindingLog, TaskReport
from rkcosim.golden.task.core import Observer, convolve, observe
from rkcosim.golden.task.dpu import Dpu
from rkcosim.golden.task.dpu_lut import LutTables
from rkcosim.golden.task.errors import GoldenError, GoldenHang, MemoryFault
from rkcosim.golden.task.memory import Memory
from rkcosim.golden.task.ppu import from_dpu, pool
from rkcosim.golden.task.rdma import RdmaData, fetch
from rkcosim.golden.task.registers import SHADOWED_BLOCKS, RegisterSpace, View
from rkcosim.golden.task.rules import Diagnosis
from rkcosim.golden.task.shapes import DpuCube, RdmaCube
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.options import chosen_options

FETCH_BYTES = 16
"""Bytes of one command fetch, two words [HW 1.6]."""

DMA_BASE_BYTES = 32
"""TASK_DMA_BASE must be a multiple of this number of bytes [HW 1.10.1]."""

EVENT_BITS = {"CNA": (0, 2, 4), "CORE": (6,), "DPU": (8,), "PPU": (10,)}
"""First interrupt bit (group 0) of each event of a block [HW 10]; CNA: feature, weight, CSC."""

_OP_ENABLE, _END, _TARGET_MASK = 0x0080, 0x0040, 0xFFFE


_PLAIN = ("raw", "tasks_done", "last_task", "stuck", "unfinished")
_POSITION = ("_task", "_list", "_link", "_words", "_word", "_started")


class DeviceState:
    """A copy of the state of a `GoldenDevice` between two words of a kick, without the memory.

    Members
    -------
    position : `GoldenDevice.position` at that moment.
    """

    def __init__(self, device: GoldenDevice, before: DeviceState | None = None) -> None:
        self.position = device.position
        self._values = {name: getattr(device, name) for name in _PLAIN + _POSITION}
        self._blocks = {name: state.copied() for name, state in device.space.blocks.items()}
        self._registers = dict(device.space.plain)
        self._tables = device.lut.saved()
        self._buffer: SavedCbuf = device.cbuf.saved(None if before is None else before._buffer)
        self._steps = copy.copy(device.steps)
        self._reports, self._findings = list(device.reports), list(device.findings)
        self._told = {name: list(found) for name, found in device._told.items()}
        self._held = dict(device._held)

    @property
    def buffer(self) -> NDArray[np.uint8]:
        """The copy of CBUF, which states without a convolution between them share."""
        return self._buffer.atoms

    @property
    def size(self) -> int:
        """Bytes of the copied tables."""
        return self._tables.size

    def into(self, device: GoldenDevice) -> None:
        """Copy the state into a device."""
        for name, value in self._values.items():
            setattr(device, name, value)
        device.space.blocks.clear()
        device.space.blocks.update({name: state.copied() for name, state in self._blocks.items()})
        device.space.plain = dict(self._registers)
        device.lut.put_back(self._tables)
        device.cbuf.put_back(self._buffer)
        vars(device.steps).update(vars(self._steps))
        device.reports, device.findings = list(self._reports), FindingLog(self._findings)
        device._told = {name: list(found) for name, found in self._told.items()}
        device._held = dict(self._held)


class GoldenDevice:
    """One core with its memory.

    Parameters
    ----------
    memory
        Shared DRAM; None: a new, empty one.
    core_index
        Index that CNA and CORE expect in S_POINTER.
    strict
        Raise GoldenError for everything for which the hardware raises a diagnostic. Otherwise continue as the
        hardware does and collect `findings`.
    observer
        Called after each convolution with the contents of CBUF and the octets of CORE (see `Observer`).
    options
        Names of interpretations of the hardware (spec/regs/options.py); None: those of the environment.

    Members
    -------
    late
        Addresses of lists whose DPU and PPU read again after they have written: a task that writes where it
        reads then sees its own results, as if each read came after the writes. The model's reads come first
        otherwise; on the hardware the order depends on timing.
    pause
        Where the iterators of `begin_kick` and `resume_kick` stop: "" where cores wait for each other, "task"
        before the first word of each task, "word" before each word. A core with "task" or "word" does not
        wait for others.
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
        self.late: frozenset[int] = frozenset()
        self.pause = ""
        self.reset()

    def reset(self) -> None:
        """Return to the state after a hardware reset; memory and the tables of the LUT are kept."""
        self.lut.reset()
        self.space = RegisterSpace(self._diagnose, self.lut)
        self.cbuf = Cbuf()
        self.reports: list[TaskReport] = []
        """Tasks of the last kick (or of all slave-mode starts since the last kick)."""
        self.findings: list[Finding] = FindingLog()
        self.raw = 0
        """Interrupt events, RAW_STATUS."""
        self.tasks_done = 0
        self.last_task = 0
        """Index of the last task of the kick; only its events may raise the interrupt line."""
        self.stuck = False
        """Whether the PC runs a kick that never ends."""
        self.steps = Steps()
        """Progress of the kick, for the cores that co-work with this one."""
        self.unfinished: GoldenHang | None = None
        """Why the DPU never ends, although the blocks that it works with have ended."""
        self._task = 0
        self._list = -1
        """Address of the running list."""
        self._link = False
        self._words: list[int] = []
        """Words of the running list."""
        self._word = -1
        """Index of the next word; -1: the list has not been fetched."""
        self._started = False
        """Whether the running list has started blocks."""
        self._told: dict[str, list[Finding]] = {}
        """Findings of a set of blocks that has not started, by its first block."""
        self._held: dict[str, GoldenHang] = {}
        """Why the set has not started, by its first block."""

    # -- programs -------------------------------------------------------------------------------

    def run_task(self, words: Iterable[int], dma_base: int = 0) -> TaskReport | None:
        """Run one list of 64-bit command words.

        Parameters
        ----------
        words
            Words of the task; an op-enable word runs the blocks of its mask.
        dma_base
            TASK_DMA_BASE, a multiple of 32.

        Returns
        -------
        The report of the last blocks that ran; None if the list enables none.

        Raises
        ------
        GoldenError
            For everything that the hardware reports; GoldenHang for a task that would never end.
        """
        if not self.space.blocks["CNA"].control:
            self._host_pointers()
        self.space.write(self._map["PC"]["TASK_DMA_BASE_ADDR"].offset, dma_base)
        self.reports, self._task = [], 0
        self._words, self._word, self._started = [int(w) for w in words], 0, False
        for _ in self._run_words():
            pass
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
        """Run a chain of tasks from memory, as the driver starts it [HW 10.3].

        Parameters
        ----------
        base_addr
            Address of the first task's words, a multiple of 16.
        amount_code
            Number of 16-byte fetches of the first task, minus one.
        task_number
            Number of tasks of this kick, 1..4095.
        core_index
            Index that the host writes into S_POINTER; None: that of the device.
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
        """Run the chain that the PC registers describe without other cores (errors as `run_task`)."""
        for _ in self.begin_kick():
            pass
        return self.reports

    def begin_kick(self) -> Iterator[None]:
        """Run the chain that the PC registers describe, with interruptions for co-working cores.

        The iterator yields where a task must not start before the other cores of its group have reached
        `steps`; it is resumed when they have. Errors as `run_task`.
        """
        number = self._map["PC"]["TASK_CON"].decode(self.space.value("PC", "TASK_CON"))["TASK_NUMBER"]
        slave = self._map["PC"]["BASE_ADDRESS"].decode(self.space.value("PC", "BASE_ADDRESS"))["PC_SEL"]
        running = self.stuck or self.steps.runs
        if not running:
            self.reports = []
        if running or slave or not number:
            why = "a kick is running" if running else "slave mode" if slave else "TASK_NUMBER is 0"
            self._diagnose("BAD_COMMAND", "PC", "OPERATION_ENABLE", 1, f"the kick does not start: {why}")
            return
        self.reports, self._task, self._word = [], 0, -1
        self.last_task = number - 1
        self.steps.begin()
        yield from self.resume_kick()

    def resume_kick(self) -> Iterator[None]:
        """Go on with the kick from `position`, after `put_back`; otherwise as `begin_kick`."""
        try:
            yield from self._run_chain(self.last_task + 1)
        except GoldenHang:
            self.stuck = True
            raise
        except GoldenError:
            self.steps.end()
            raise
        self.steps.end()

    def _run_chain(self, number: int) -> Iterator[None]:
        while True:
            if self._word < 0:
                self._words, self._word, self._link, self._started = self._fetch(), 0, False, False
            yield from self._run_words()
            self.tasks_done += 1
            if not self._link and self._task < self.last_task:
                self._diagnose("BAD_COMMAND", "PC", "BASE_ADDRESS", self._task, "no link, but tasks remain")
                break
            if self._task + 1 >= number:
                break
            self._task, self._word = self._task + 1, -1

    def _fetch(self) -> list[int]:
        """Return the words of the list to which the PC registers point."""
        pc = self._map["PC"]
        base = self.space.value("PC", "BASE_ADDRESS") & pc["BASE_ADDRESS"].fields["PC_SOURCE_ADDR"].mask
        self._list = base
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
        words: list[int] = np.frombuffer(data, "<u8").tolist()
        return words

    # -- positions ------------------------------------------------------------------------------

    @property
    def position(self) -> tuple[int, int, int]:
        """The task of the kick, the address of its list, and the index of the word that is executed next."""
        return self._task, self._list, max(self._word, 0)

    @property
    def list_words(self) -> list[int]:
        """Words of the running list, as they were fetched."""
        return list(self._words)

    def saved(self, before: DeviceState | None = None) -> DeviceState:
        """Return a copy of everything that `put_back` needs; the memory is not in it.

        Parameters
        ----------
        before
            An earlier state, whose copy of CBUF is used if no convolution has run since.
        """
        return DeviceState(self, before)

    def put_back(self, state: DeviceState) -> None:
        """Return to a state; its kick goes on with `resume_kick`. Memory keeps its contents."""
        state.into(self)

    def _host_pointers(self, core_index: int | None = None) -> None:
        index = self.core_index if core_index is None else core_index
        for block in ("CNA", "CORE"):
            r = self._map[block]["S_POINTER"]
            flags = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
            self.space.write(r.offset, r.encode(CORE_INDEX=index, **flags))

    def _run_words(self) -> Iterator[None]:
        """Execute the words of the running list from the next one on ([HW 1.4], [HW 1.6]).

        Yields like `begin_kick`.
        """
        while self._word < len(self._words):
            if self.pause and (self.pause == "word" or not self._word):
                yield
            fields = self._map.word.decode(self._words[self._word])
            self._word += 1
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
                self._started = True
                size = self._co_works(value)
                if self.steps.reach(size) and not self.pause:
                    yield
                self.steps.start(size)
                self.enable(value)
                self._finish_all()
                self.steps.finish(size)
        if not self._started:
            message = "the word list has no op-enable word"
            code, register_name = "BAD_COMMAND", "OPERATION_ENABLE"
            self.findings.append(Finding(self._task, code, "PC", register_name, self._task, message))
            raise GoldenHang(message, task=self._task, block="PC", code=code)

    def _co_works(self, mask: int) -> int:
        """Return the size of the group that computes the convolution of an op-enable mask; 0: one core."""
        if not self._map["GLOBAL"]["OPERATION_ENABLE"].decode(mask)["CNA_OP_EN"]:
            return 0
        state = self.space.blocks["CNA"]
        return group_size(View("CNA", state.groups[state.pointer]))

    def _problem(self, target: int, offset: int, value: int) -> str:
        """Return what is wrong with a word, or "" [HW 1.4]."""
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
        """Op-enable the blocks of a mask [HW 1.5] and run those that can start."""
        fields = self._map["GLOBAL"]["OPERATION_ENABLE"].decode(mask)
        self.enable_blocks([name for name in SHADOWED_BLOCKS if fields[f"{name}_OP_EN"]])

    def enable_blocks(self, names: Iterable[str]) -> None:
        """Op-enable blocks by name and run those that can start."""
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
            If a block waits; the message names the block and the reason.
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
                    f"group {1 - state.executer} is enabled, but group {state.executer} runs next",
                    task=self._task,
                    block=name,
                    register="S_POINTER",
                    value=state.read_pointer(),
                )
            raise GoldenHang(self._wait(name), task=self._task, block=name)

    def waits(self) -> list[str]:
        """For each enabled block, return what it waits for."""
        enabled = [name for name, state in self.space.blocks.items() if any(state.enabled)]
        return [f"{name}: {self._wait(name)}" for name in enabled]

    def _wait(self, name: str) -> str:
        """Return what an enabled block waits for."""
        if name in self._held:
            return str(self._held[name])
        if not self.core_fits(name):
            return f"core {self.core_index} waits for its own index"
        if not self.space.blocks[name].ready():
            return "the other group runs next"
        views = {block: self.space.blocks[block].view() for block in ("DPU", "PPU")}
        flying = views["DPU"]("FEATURE_MODE_CFG", "FLYING_MODE")
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
            return f"waits for {' and '.join(gone)}, not running"
        if name == "PPU" and fed:
            return "waits for atoms of the DPU, which sends none (OUTPUT_MODE)"
        if name == "PPU_RDMA" and fed:
            return "its atoms are not accepted: the PPU waits for those of the DPU (FLYING_MODE 0)"
        return "waits for a block that it works with"

    def core_fits(self, name: str) -> bool:
        """Whether a block's S_POINTER selects this core; only CNA and CORE check [HW 1.7]."""
        if name not in ("CNA", "CORE"):
            return True
        index = self.space.blocks[name].core_index()
        every = self._map[name]["S_POINTER"].fields["CORE_INDEX"].enum
        return index == self.core_index or (every is not None and index == every["EVERY"])

    def _ready(self, name: str) -> bool:
        return self.core_fits(name) and self.space.blocks[name].ready()

    def _step(self, final: bool) -> bool:
        """Run one set of blocks that is complete, and return whether there was one.

        Without `final`, a set that would hang remains pending: the host may still enable the missing block.
        """
        for choose in (self._dpu_blocks, self._ppu_blocks):
            names = choose(final)
            if not names:
                continue
            told = self._told.pop(names[0], [])  # from an earlier attempt
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
        """Blocks of the DPU's next task; empty unless all of them are ready."""
        if not self._ready("DPU") or self.unfinished is not None:
            return []
        dpu = self.space.blocks["DPU"].view()
        names = ["DPU"] if dpu("FEATURE_MODE_CFG", "FLYING_MODE") else ["DPU", "CNA", "CORE"]
        if not all(self._ready(name) for name in names):
            return []
        if self._ready("DPU_RDMA"):
            names.append("DPU_RDMA")
        if not DpuCube(dpu, self._copies()).feeds_ppu:
            return names
        if self._ready("PPU") and from_dpu(self.space.blocks["PPU"].view()):
            return [*names, "PPU"]
        if final:
            raise GoldenHang(
                "the PPU does not accept the DPU's data",
                task=self._task,
                block="DPU",
                register="FEATURE_MODE_CFG.OUTPUT_MODE",
                value=dpu("FEATURE_MODE_CFG", "OUTPUT_MODE"),
            )
        return []

    def _copies(self) -> int:
        """Copies of a row that DPU_RDMA's settings require; 0 without unpooling [HW 8.7]."""
        kernel = RdmaCube(self.space.blocks["DPU_RDMA"].view()).unpooled
        return 0 if kernel is None else kernel[0]

    def _ppu_blocks(self, final: bool) -> list[str]:
        """Blocks of a pooling task that reads from memory; empty unless all of them are ready."""
        names = ["PPU", "PPU_RDMA"]
        complete = all(self._ready(name) for name in names)
        return names if complete and not from_dpu(self.space.blocks["PPU"].view()) else []

    def _run(self, names: list[str]) -> None:
        kind = "pool" if "DPU" not in names else "conv" if "CORE" in names else "elementwise"
        report, ctx, views = self._begin(names, kind)
        # Every block reports diagnostics of its settings when it starts, even if the task never ends.
        rdma, ppu = views.get("DPU_RDMA"), views.get("PPU")
        dpu = Dpu(ctx, views["DPU"], self.lut, rdma, self._copies()) if "DPU" in names else None
        check = Diagnosis(ctx, views)
        for block in ("PPU", "PPU_RDMA"):
            if block in names:
                check.ask(block)
        conv, feed = None, None
        if "CORE" in names:
            conv = convolve(ctx, views["CNA"], views["CORE"], self.cbuf)
            report.kind = "depthwise" if conv[0].depthwise else "conv"
        if dpu is not None:
            feed = dpu.run(RdmaData() if rdma is None else fetch(ctx, rdma, views["DPU"]), conv)
            if self._list in self.late and rdma is not None:
                feed = dpu.run(fetch(ctx, rdma, views["DPU"]), conv)
            if self.observer is not None and conv is not None:
                observe(self.observer, self._task, self.cbuf, conv)
        if dpu is not None and dpu.unfinished is not None:
            self.unfinished = self._held["DPU"] = dpu.unfinished
            names = [name for name in names if name in ("CNA", "CORE")]
            report.groups = {name: report.groups[name] for name in names}
        elif ppu is not None:
            pool(ctx, ppu, views.get("PPU_RDMA"), feed)
            if self._list in self.late and feed is None:
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
