"""What the groups draw: single tasks, tiles and reuse, chains, slave mode."""

from __future__ import annotations

from itertools import pairwise

from cosim.conformance import noise, values
from cosim.conformance.arena import SIZE, Arena
from cosim.conformance.case import Fact, Plan, slave_writes, twice_writes
from cosim.conformance.choices import Chooser, Refused
from cosim.conformance.conv import Conv, Tile
from cosim.conformance.dpu import Dpu
from cosim.conformance.draw_conv import ConvWish, draw_conv
from cosim.conformance.draw_dpu import DpuWish, draw_dpu
from cosim.conformance.draw_element import lut_tables
from cosim.conformance.draw_pool import draw_pool, feed_pool
from cosim.conformance.noise import Name
from cosim.conformance.types import CONV_TYPES, FP16, INT8, INT16, ElementType
from cosim.crosscheck.program import Task
from rtl.regs import registers

NONE = DpuWish()


class Draw:
    """Draws tasks into one arena.

    Parameters
    ----------
    ch, arena
        source of the choices; where data go.
    index
        of the case: groups with a list of kinds go through it in turn.
    """

    def __init__(self, ch: Chooser, arena: Arena, index: int = 0) -> None:
        self.ch, self.arena, self.index = ch, arena, index
        self.facts: list[Fact] = []

    # -- pieces ---------------------------------------------------------------------------------

    def dpu_of(self, conv: Conv, wish: DpuWish) -> Dpu:
        """Draw the DPU behind a convolution: as many groups of channels as CORE delivers (4.1)."""
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
        kind = (
            "depthwise" if conv.depthwise else "argb" if conv.argb else "deconv" if conv.deconv else "direct"
        )
        self.facts.append(
            (
                f"convolution, {kind}",
                conv.type.name,
                {
                    "channels": conv.argb or conv.channels,
                    "kernels": conv.outputs,
                    "kernel rows": conv.kernel[0],
                    "kernel columns": conv.kernel[1],
                    "stride": max(conv.stride),
                    "dilation": max(conv.dilation),
                    "padding": max(conv.pad),
                    "weight banks": conv.weight_bank,
                }
                | ({"atoms of the last block": (conv.surfaces - 1) % 4 + 1} if conv.depthwise else {}),
            )
        )
        self._dpu_fact(dpu)
        noise.add_noise(self.ch, task)
        return task

    def _dpu_fact(self, d: Dpu) -> None:
        self.facts.append((f"output {d.out.name}", d.source.name, {"channels": d.channels}))
        if d.flying:
            self.facts.append(
                ("flying", d.source.name, {"width": d.width, "height": d.height, "channels": d.channels})
            )
        for note in d.notes:
            if note.startswith("EW") or note in ("matrix out", "CPEND"):
                self.facts.append((f"DPU {note}", d.source.name, {}))

    def tables(self, task: Task) -> None:
        """Load the LUT ahead of a task."""
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

    # -- single tasks ---------------------------------------------------------------------------

    def conv(self, wish: ConvWish, dpu: DpuWish = NONE) -> Plan:
        """One convolution."""
        conv = draw_conv(self.ch, self.arena, wish)
        if wish.missing_groups:
            whole = -(-conv.outputs // conv.group) * conv.group
            conv.core_channels = self.ch.integer("core.channels", whole + 1, whole + 3 * conv.group)
        elif self.ch.chance("core.fewer_channels", 0.06):  # all kernels are delivered all the same (3.8)
            conv.core_channels = self.ch.integer("core.channels", 1, conv.outputs)
        settings = self.dpu_of(conv, dpu)
        task = self.task(conv, settings)
        if dpu.element == "lut":
            self.tables(task)
        if dpu.to_ppu:
            task.description += "; " + feed_pool(self.ch, self.arena, task, settings)
        return Plan([task], self.facts)

    def flying(self, kind: ElementType, dpu: DpuWish = NONE) -> Plan:
        """One task of DPU and DPU_RDMA alone."""
        width, height = self.ch.integer("fly.width", 1, 14), self.ch.integer("fly.height", 1, 10)
        groups = 5 if kind.bits > 8 else 3
        channels = self.ch.integer("fly.channels", 1, groups * kind.flying_group)
        if self.ch.chance("fly.atoms", 0.4):
            channels = kind.surfaces(channels) * kind.per_atom
        spread = 1.0 if kind.is_float else 2.0 ** (kind.bits - 1.5)
        settings = draw_dpu(self.ch, self.arena, (width, height, channels), kind, spread, dpu, flying=True)
        task = Task(("DPU", "DPU_RDMA"))
        settings.emit(task)
        task.description = settings.text()
        self._dpu_fact(settings)
        noise.add_noise(self.ch, task)
        if dpu.element == "lut":
            self.tables(task)
        if dpu.to_ppu:
            task.description += "; " + feed_pool(self.ch, self.arena, task, settings)
        return Plan([task], self.facts)

    def pool(self, kind: ElementType, *, large: bool = False, index: bool = False) -> Plan:
        """One pooling task."""
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
        """One small task of any kind."""
        kind = self.ch.integer("any.kind", 0, 5)
        if kind <= 2:
            depthwise = self.ch.chance("any.depthwise", 0.25)
            t = self.any_type((INT8, INT16, FP16) if depthwise else CONV_TYPES)
            return self.conv(ConvWish(t, depthwise=depthwise, budget=800))
        if kind == 3:
            return self.pool(self.any_type((INT8, INT16, FP16)))
        return self.flying(self.any_type((INT8, INT16, FP16)))

    # -- several tasks --------------------------------------------------------------------------

    def weight_reuse(self) -> Plan:
        """Two or three tasks on different features, those after the first with the weights in CBUF."""
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
        """Two or three tasks with different weights, those after the first on the features in CBUF."""
        kind = self.ch.integer("reuse.kind", 0, 3)
        t = self.any_type((INT8, INT16, FP16) if kind > 1 else CONV_TYPES)
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
        """A layer cut into row tiles that share the weights in CBUF."""
        depthwise = self.ch.chance("tiles.depthwise", 0.3)
        t = self.any_type((INT8, INT16, FP16) if depthwise else CONV_TYPES)
        conv = draw_conv(self.ch, self.arena, ConvWish(t, depthwise=depthwise, resident=True, budget=1500))
        if conv.out[0] < 2:
            raise Refused("too few rows for tiles")
        dpu = self.dpu_of(conv, DpuWish(tiles=True))
        count = self.ch.integer("tiles.cuts", 1, 2)
        cuts = sorted({self.ch.integer("tiles.cut", 1, conv.out[0] - 1) for _ in range(count)})
        reuse = self.ch.chance("tiles.reuse", 0.8)
        return Plan(
            [
                self.task(
                    conv, dpu, Tile(a, b - a, 0, dpu.channels), **({"weight_reuse": 1} if a and reuse else {})
                )
                for a, b in pairwise([0, *cuts, conv.out[0]])
            ],
            self.facts,
        )

    def kernel_tiles(self) -> Plan:
        """A layer cut by kernels; tiles after the first find the features in CBUF."""
        t = self.any_type()
        conv = draw_conv(self.ch, self.arena, ConvWish(t, budget=1500))
        groups = -(-conv.kernels // conv.group)
        if groups < 2:
            raise Refused("too few kernels for tiles")
        dpu = self.dpu_of(conv, DpuWish(tiles=True))
        cut = conv.group * self.ch.integer("tiles.cut", 1, groups - 1)
        reuse = {"data_reuse": 1} if self.ch.chance("tiles.reuse", 0.8) else {}
        return Plan(
            [
                self.task(conv, dpu, Tile(0, conv.out[0], 0, cut)),
                self.task(conv, dpu, Tile(0, conv.out[0], cut, dpu.channels - cut), **reuse),
            ],
            self.facts,
        )

    def chain(self, most: int = 4) -> Plan:
        """Several tasks of any kinds in one kick, with masks, a tail and a base of their own."""
        tasks = [
            task for _ in range(self.ch.integer("chain.length", 2, most)) for task in self.any_task().tasks
        ]
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
        """Ping-pong turned on, off or cleared by the lists themselves (docs/hardware.md 7.1, 7.2, 7.5)."""
        on = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
        clear = {"POINTER_PP_CLEAR": 1, "EXECUTER_PP_CLEAR": 1}
        for block in task.blocks:
            pointer = registers()[block]["S_POINTER"]
            if block in ("CNA", "CORE"):
                if self.ch.chance("chain.every_core", 0.3):
                    index = pointer.fields["CORE_INDEX"].enum
                    task.pointers[block] = pointer.encode(CORE_INDEX=index["EVERY"] if index else 0, **on)
            else:
                task.pointers[block] = pointer.encode(
                    **self.ch.pick("chain.pointer", (on, clear, on | clear))
                )

    def slave(self) -> Plan:
        """One task without the PC, or the same one in both register groups."""
        plan = self.any_task()
        base = 32 * self.ch.word("slave.base", 27) if self.ch.chance("slave.based", 0.3) else 0
        if len(plan.tasks) == 1 and self.ch.chance("slave.twice", 0.35):
            again = self.ch.chance("slave.again", 0.5)
            plan.writes = twice_writes(plan.tasks[0], base, again)
            plan.note, plan.reset = "in both register groups", True
        else:
            plan.writes = slave_writes(self.ch, plan.tasks, base)
        plan.peek = True
        plan.slave, plan.dma_base = True, base
        return plan

    def reserved(self, table: tuple[Name, ...]) -> Plan:
        """A task with reserved or contradictory fields, which are reported and change nothing."""
        first = table[self.index % len(table)]
        if first[0] in ("CNA", "CORE"):
            plan = self.conv(ConvWish(self.any_type(), budget=600))
        elif first[0] == "PPU":
            plan = self.pool(self.any_type((INT8, INT16, FP16)))
        else:
            plan = self.flying(self.any_type((INT8, INT16, FP16)), DpuWish(element="memory"))
        plan.note = noise.add_reserved(self.ch, plan.tasks[0], table, first)
        plan.diagnostics = True
        return plan
