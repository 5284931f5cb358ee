"""The draws of the groups: single tasks, tiles and reuse, chains, slave mode."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rkcosim.spec.regs import registers
from rkcosim.spec.types import CONV_TYPES, FP16, INT8, INT16, ElementType
from rkcosim.verify.conformance import noise, values
from rkcosim.verify.conformance.arena import SIZE, Arena
from rkcosim.verify.conformance.case import CLEAR, PING_PONG, Fact, Plan, slave_writes, twice_writes
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.conv import Conv, Tile
from rkcosim.verify.conformance.dpu import Dpu
from rkcosim.verify.conformance.draw_conv import ConvWish, draw_conv
from rkcosim.verify.conformance.draw_dpu import DpuWish, draw_dpu
from rkcosim.verify.conformance.draw_element import lut_tables
from rkcosim.verify.conformance.draw_pool import draw_pool, feed_pool
from rkcosim.verify.conformance.noise import Name
from rkcosim.verify.crosscheck.program import Task

COMMON = (INT8, INT16, FP16)
"""Types that every block supports."""

NONE, PLAIN = DpuWish(), DpuWish(element="none")


class Draw:
    """Draws tasks into one arena.

    Parameters
    ----------
    ch, arena : source of the choices; memory for data.
    index : number of the case; groups with a list of kinds use them in turn.
    """

    def __init__(self, ch: Chooser, arena: Arena, index: int = 0) -> None:
        self.ch, self.arena, self.index, self.turn = ch, arena, index, 0
        self.facts: list[Fact] = []

    # -- pieces ---------------------------------------------------------------------------------

    def dpu_of(self, conv: Conv, wish: DpuWish) -> Dpu:
        """Draw the DPU settings for a convolution: as many groups of channels as CORE delivers (4.1)."""
        lanes = conv.outputs
        low = (conv.delivered_groups - 1) * conv.group
        if lanes <= low or self.ch.chance("dpu.other_channels", 0.25):
            lanes = low + self.ch.integer("dpu.channels", 1, conv.group, max(1, lanes - low))
        size = (conv.out[1], conv.out[0], lanes)
        return draw_dpu(self.ch, self.arena, size, conv.type, conv.spread, wish, depthwise=conv.depthwise)

    def task(self, conv: Conv, dpu: Dpu, tile: Tile | None = None, **reuse: int) -> Task:
        """Build a convolution task, of the whole layer or of a tile."""
        blocks = ("CNA", "CORE", "DPU", "DPU_RDMA") if dpu.rdma else ("CNA", "CORE", "DPU")
        task = Task(blocks)
        dpu.emit(task, tile)
        if tile:
            tile = Tile(tile.row, tile.rows, tile.channel, min(tile.channels, conv.kernels - tile.channel))
            if conv.depthwise:
                tile = Tile(tile.row, tile.rows, 0, conv.channels)
        conv.emit(task, tile, **reuse)
        task.description = f"{conv.text()}; {dpu.text()}" + (f"; {tile}" if tile else "")
        task.description += f"; {', '.join(reuse)}" if reuse else ""
        kinds = {"depthwise": conv.depthwise, "argb": conv.argb, "deconv": conv.deconv, "direct": True}
        limits = {
            "channels": conv.argb or conv.channels,
            "kernels": conv.outputs,
            "kernel rows": conv.kernel[0],
            "kernel columns": conv.kernel[1],
            "stride": max(conv.stride),
            "dilation": max(conv.dilation),
            "padding": max(conv.pad),
            "weight banks": conv.weight_bank,
        }
        if conv.depthwise:
            limits["atoms of the last block"] = (conv.surfaces - 1) % 4 + 1
        kind = next(kind for kind, is_it in kinds.items() if is_it)
        self.facts.append((f"convolution, {kind}", conv.type.name, limits))
        self._dpu_fact(dpu)
        noise.add_noise(self.ch, task)
        return task

    def _dpu_fact(self, d: Dpu) -> None:
        self.facts.append((f"output {d.out.name}", d.source.name, {"channels": d.channels}))
        if d.flying:
            size = {"width": d.width, "height": d.height, "channels": d.channels}
            self.facts.append(("flying", d.source.name, size))
        for note in d.notes:
            if note.startswith("EW") or note in ("matrix out", "CPEND"):
                self.facts.append((f"DPU {note}", d.source.name, {}))

    def tables(self, task: Task) -> None:
        """Load the LUT before a task."""
        for number, table in enumerate(lut_tables(self.ch)):
            cfg = registers()["DPU"]["LUT_ACCESS_CFG"]
            cut = self.ch.corner("lut.cut", 0, 512)
            for first, last in ((cut, 513), (0, cut)):
                task.upload(
                    "DPU",
                    "LUT_ACCESS_CFG",
                    cfg.encode(LUT_ACCESS_TYPE=1, LUT_TABLE_ID=number, LUT_ADDR=first),
                )
                for entry in table[first:last]:
                    task.upload("DPU", "LUT_ACCESS_DATA", int(entry) % 65536)

    def flying_task(
        self, size: tuple[int, int, int], kind: ElementType, spread: float, wish: DpuWish
    ) -> tuple[Task, Dpu]:
        """Draw a task with only DPU and DPU_RDMA for a cube (width, height, channels), and its settings."""
        dpu = draw_dpu(self.ch, self.arena, size, kind, spread, wish, flying=True)
        task = Task(("DPU", "DPU_RDMA"), description=dpu.text())
        dpu.emit(task)
        return task, dpu

    # -- single tasks ---------------------------------------------------------------------------

    def conv(self, wish: ConvWish, dpu: DpuWish = NONE) -> Plan:
        """Draw one convolution."""
        conv = draw_conv(self.ch, self.arena, wish)
        if wish.missing_groups:
            whole = -(-conv.outputs // conv.group) * conv.group
            conv.core_channels = self.ch.integer("core.channels", whole + 1, whole + 3 * conv.group)
        elif self.ch.chance("core.fewer_channels", 0.06):  # all kernels are delivered anyway (3.8)
            conv.core_channels = self.ch.integer("core.channels", 1, conv.outputs)
        settings = self.dpu_of(conv, dpu)
        return self._finished(self.task(conv, settings), settings, dpu)

    def flying(self, kind: ElementType, dpu: DpuWish = NONE) -> Plan:
        """Draw one task with only DPU and DPU_RDMA."""
        width, height = self.ch.integer("fly.width", 1, 14), self.ch.integer("fly.height", 1, 10)
        groups = 5 if kind.bits > 8 else 3
        channels = self.ch.integer("fly.channels", 1, groups * kind.flying_group)
        if self.ch.chance("fly.atoms", 0.4):
            channels = kind.surfaces(channels) * kind.per_atom
        spread = 1.0 if kind.is_float else 2.0 ** (kind.bits - 1.5)
        task, settings = self.flying_task((width, height, channels), kind, spread, dpu)
        self._dpu_fact(settings)
        noise.add_noise(self.ch, task)
        return self._finished(task, settings, dpu)

    def _finished(self, task: Task, settings: Dpu, wish: DpuWish) -> Plan:
        """Return the plan of a task, with the tables of its LUT and with the PPU if requested."""
        if wish.element == "lut":
            self.tables(task)
        if wish.to_ppu:
            task.description += "; " + feed_pool(self.ch, self.arena, task, settings)
        return Plan([task], self.facts)

    def pool(self, kind: ElementType, *, large: bool = False, index: bool = False) -> Plan:
        """Draw one pooling task."""
        task = draw_pool(self.ch, self.arena, kind, large=large, index=index)
        window = task.fields["PPU", "POOLING_KERNEL_CFG"]
        limits = {"kernel": max(window["KERNEL_HEIGHT"], window["KERNEL_WIDTH"]) + 1}
        limits["stride"] = max(window["KERNEL_STRIDE_HEIGHT"], window["KERNEL_STRIDE_WIDTH"]) + 1
        self.facts.append(
            (f"pool {task.description.split()[0]}{' index' if index else ''}", kind.name, limits)
        )
        noise.add_noise(self.ch, task)
        return Plan([task], self.facts)

    def any_type(self, types: tuple[ElementType, ...] = CONV_TYPES) -> ElementType:
        """Draw a type."""
        return self.ch.pick("type", types)

    def any_task(self) -> Plan:
        """Draw one small task of any kind."""
        kind = self.ch.integer("any.kind", 0, 5)
        if kind <= 2:
            depthwise = self.ch.chance("any.depthwise", 0.25)
            t = self.any_type(COMMON if depthwise else CONV_TYPES)
            return self.conv(ConvWish(t, depthwise=depthwise, budget=800))
        if kind == 3:
            return self.pool(self.any_type(COMMON))
        return self.flying(self.any_type(COMMON))

    # -- several tasks --------------------------------------------------------------------------

    def weight_reuse(self) -> Plan:
        """Draw two or three tasks on different features; those after the first reuse the weights in CBUF."""
        depthwise = self.ch.chance("reuse.depthwise", 0.3)
        t = self.any_type((INT8, INT16, FP16, INT8) if depthwise else CONV_TYPES)
        conv = draw_conv(self.ch, self.arena, ConvWish(t, depthwise=depthwise, resident=True, budget=800))
        tasks = [self.task(conv, self.dpu_of(conv, NONE))]
        span = abs(conv.surface) * conv.surfaces + conv.line * conv.height + conv.width
        if 32 * span > SIZE:
            raise Refused(f"features of {span} atoms do not fit twice")
        for n in range(self.ch.integer("reuse.more", 1, 2)):
            raw = values.elements(self.ch, f"features {n + 2}", t, 2 * span * t.per_atom)
            conv.data = self.arena.place(raw, f"features {n + 2}") + 16 * span
            tasks.append(self.task(conv, self.dpu_of(conv, NONE), weight_reuse=1))
        return Plan(tasks, self.facts)

    def data_reuse(self) -> Plan:
        """Draw two or three tasks with different weights.

        Those after the first reuse the features in CBUF.
        """
        kind = self.ch.integer("reuse.kind", 0, 3)
        t = self.any_type(COMMON if kind > 1 else CONV_TYPES)
        wish = ConvWish(t, depthwise=kind == 2, argb=kind == 3, budget=800)
        conv = draw_conv(self.ch, self.arena, wish)
        tasks = [self.task(conv, self.dpu_of(conv, NONE))]
        size = -(-conv.weight_bytes(conv.kernels) // 16) * 16
        for n in range(self.ch.integer("reuse.more", 1, 2)):
            raw = values.elements(self.ch, f"weights {n + 2}", t, size * 8 // t.bits)
            conv.weights = self.arena.place(raw, f"weights {n + 2}")
            tasks.append(self.task(conv, self.dpu_of(conv, NONE), data_reuse=1))
        return Plan(tasks, self.facts)

    def row_tiles(self) -> Plan:
        """Draw a layer divided into row tiles that share the weights in CBUF."""
        depthwise = self.ch.chance("tiles.depthwise", 0.3)
        t = self.any_type(COMMON if depthwise else CONV_TYPES)
        conv = draw_conv(self.ch, self.arena, ConvWish(t, depthwise=depthwise, resident=True, budget=1500))
        if conv.out[0] < 2:
            raise Refused("too few rows for tiles")
        dpu = self.dpu_of(conv, DpuWish(tiles=True))
        count = self.ch.integer("tiles.cuts", 1, 2)
        cuts = sorted({self.ch.integer("tiles.cut", 1, conv.out[0] - 1) for _ in range(count)})
        tiles = [Tile(a, b - a, 0, dpu.channels) for a, b in pairwise([0, *cuts, conv.out[0]])]
        return self._tiled(conv, dpu, tiles, "weight_reuse")

    def _tiled(self, conv: Conv, dpu: Dpu, tiles: list[Tile], reuse: str) -> Plan:
        """Return a task per tile, usually with `reuse` in those after the first."""
        later = {reuse: 1} if self.ch.chance("tiles.reuse", 0.8) else {}
        tasks = [self.task(conv, dpu, tile, **(later if n else {})) for n, tile in enumerate(tiles)]
        return Plan(tasks, self.facts)

    def kernel_tiles(self) -> Plan:
        """Draw a layer divided by kernels; tiles after the first reuse the features in CBUF."""
        t = self.any_type()
        conv = draw_conv(self.ch, self.arena, ConvWish(t, budget=1500))
        groups = -(-conv.kernels // conv.group)
        if groups < 2:
            raise Refused("too few kernels for tiles")
        dpu = self.dpu_of(conv, DpuWish(tiles=True))
        cut = conv.group * self.ch.integer("tiles.cut", 1, groups - 1)
        tiles = [Tile(0, conv.out[0], 0, cut), Tile(0, conv.out[0], cut, dpu.channels - cut)]
        return self._tiled(conv, dpu, tiles, "data_reuse")

    def chain(self, most: int = 4) -> Plan:
        """Draw several tasks of any kinds in one kick, with drawn masks, tail and base."""
        length = self.ch.integer("chain.length", 2, most)
        tasks = [task for _ in range(length) for task in self.any_task().tasks]
        plan = Plan(tasks, self.facts, peek=self.ch.chance("chain.peek", 0.3))
        if self.ch.chance("chain.pointers", 0.25):
            for task in tasks:
                self._pointers(task)
        if self.ch.chance("chain.mask", 0.5):
            plan.mask = tasks[-1].interrupt_mask() | self.ch.word("chain.mask_bits", 17)
        if self.ch.chance("chain.dangling", 0.3):
            plan.tail = (16 * self.ch.word("chain.link", 28), self.ch.word("chain.amount", 16))
        return plan

    def _pointers(self, task: Task) -> None:
        """Enable, disable or clear ping-pong in the lists [HW 1.7]."""
        for block in task.blocks:
            pointer = registers()[block]["S_POINTER"]
            if block in ("CNA", "CORE"):
                if self.ch.chance("chain.every_core", 0.3):
                    task.pointers[block] = pointer.encode(CORE_INDEX="EVERY", **PING_PONG)
            else:
                flags = self.ch.pick("chain.pointer", (PING_PONG, CLEAR, PING_PONG | CLEAR))
                task.pointers[block] = pointer.encode(**flags)

    def slave(self) -> Plan:
        """Draw one task without the PC, or the same one in both register groups."""
        plan = self.any_task()
        base = 32 * self.ch.word("slave.base", 27) if self.ch.chance("slave.based", 0.3) else 0
        if len(plan.tasks) == 1 and self.ch.chance("slave.twice", 0.35):
            again = self.ch.chance("slave.again", 0.5)
            plan.writes = twice_writes(plan.tasks[0], base, again)
            plan.note, plan.reset = "in both register groups", True
        else:
            plan.writes = slave_writes(self.ch, plan.tasks, base)
        plan.peek, plan.slave, plan.dma_base = True, True, base
        return plan

    def reserved(self, table: tuple[Name, ...]) -> Plan:
        """Draw a task with reserved or contradictory fields, which are reported and have no effect."""
        first = table[self.index % len(table)]
        if first[0] in ("CNA", "CORE"):
            plan = self.conv(ConvWish(self.any_type(), budget=600))
        elif first[0] == "PPU":
            plan = self.pool(self.any_type(COMMON))
        else:
            plan = self.flying(self.any_type(COMMON), DpuWish(element="memory"))
        plan.note = noise.add_reserved(self.ch, plan.tasks[0], table, first)
        plan.diagnostics = True
        return plan


Maker = Callable[[Draw], Plan]
Change = Callable[[Draw, Plan], None]


def conv_of(types: tuple[ElementType, ...] = CONV_TYPES, dpu: DpuWish = NONE, **wish: Any) -> Maker:
    """Return the draw of a convolution of one of the types; `wish` has members of `ConvWish`."""
    return lambda d: d.conv(ConvWish(d.any_type(types), **wish), dpu)


def fly(types: tuple[ElementType, ...], element: str = "none") -> Maker:
    """Return the draw of a task with only DPU and DPU_RDMA of one of the types."""
    return lambda d: d.flying(d.any_type(types), DpuWish(element=element))


def small_conv(d: Draw, dpu: DpuWish = PLAIN) -> Plan:
    """Draw a small convolution."""
    return conv_of((INT8, FP16, INT16), dpu, budget=400)(d)


class Kinds:
    """The draw of a group that uses several kinds of tasks in turn, in the order of their addition.

    Parameters
    ----------
    prefix : prefix of notes; a kind without a note gets the name of its function.
    marks : members that are set in every plan.
    """

    def __init__(self, prefix: str = "", **marks: bool) -> None:
        self._prefix, self._marks = prefix, marks
        self._kinds: list[tuple[str, Maker]] = []

    def __call__(self, d: Draw) -> Plan:
        """Draw a task of the next kind."""
        d.turn, kind = divmod(d.index, len(self._kinds))
        name, make = self._kinds[kind]
        plan = make(d)
        plan.facts, plan.note = [], self._prefix + (plan.note or name)
        for mark, value in self._marks.items():
            setattr(plan, mark, value)
        return plan

    def draws(self, make: Maker) -> Maker:
        """Add a function that draws the whole plan."""
        self._kinds.append((make.__name__.strip("_"), make))
        return make

    def add(self, base: Maker = small_conv, note: str = "") -> Callable[[Change], Change]:
        """Return a decorator that adds a function which changes the plan drawn by `base`."""

        def register(change: Change) -> Change:
            def make(d: Draw) -> Plan:
                plan = base(d)
                plan.note = note
                change(d, plan)
                return plan

            self._kinds.append((change.__name__.strip("_"), make))
            return change

        return register

    def sets(self, note: str, base: Maker, block: str, **values: int | Callable[[Chooser], int]) -> None:
        """Add a kind that sets fields of a block to values, or to what a function draws."""

        def change(d: Draw, plan: Plan) -> None:
            drawn = {name: v if isinstance(v, int) else v(d.ch) for name, v in values.items()}
            plan.task.set(block, **drawn)

        self.add(base, note)(change)


def endless() -> Kinds:
    """Return an empty list of kinds of tasks that never end."""
    return Kinds(hang=True, diagnostics=True, reset=True)
