"""Random tasks: legal draws of every mode.  `cosim.crosscheck.sweep` runs and compares them.

``python -m cosim.crosscheck.random_tasks --count 300 --seed 1 --engine verilator``
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cosim.crosscheck.arena import Arena, Refused
from cosim.crosscheck.draw_conv import BANK_BYTES, ConvDraw, ConvDrawer
from cosim.crosscheck.draw_dpu import DpuDraw, DpuDrawer, Tile
from cosim.crosscheck.draw_pool import draw_pool
from cosim.crosscheck.kick import Kick
from cosim.crosscheck.program import Chain, Task, link
from cosim.golden.task import Memory

ARENA_BASE = 0x0010_0000
ARENA_BYTES = 1 << 20
COMMAND_BYTES = 1 << 14


@dataclass
class RandomTask:
    """One kick: a chain of tasks with its memory."""

    kinds: tuple[str, ...]
    chain: Chain
    words: tuple[tuple[int, ...], ...]
    """Command words of each task."""
    regions: list[tuple[int, np.ndarray]]
    """(address, uint8 bytes): everything that is mapped."""
    description: tuple[str, ...]
    """One line per task."""
    mask: int
    """Interrupt mask of the kick."""
    dma_base: int
    arena: Arena
    refused: int = 0
    """Draws that broke a rule before this one."""

    def kick(self) -> Kick:
        """Return what the host writes to start it."""
        return Kick(self.chain.base, self.chain.amount, self.chain.tasks, self.mask, self.dma_base)

    def memory(self) -> Memory:
        """Return a golden memory holding the regions."""
        memory = Memory()
        for address, data in self.regions:
            memory.map(address, data.size)[:] = data
        return memory


class _Draw:
    """Draws the tasks of one kick into one arena."""

    def __init__(self, rng: np.random.Generator, arena: Arena, budget: int) -> None:
        self.rng, self.arena = rng, arena
        self.budget = budget
        self.convs, self.dpus = ConvDrawer(rng, arena, budget), DpuDrawer(rng, arena)

    def task(self, conv: ConvDraw, dpu: DpuDraw, tile: Tile | None = None, **reuse: int) -> Task:
        """Build a convolution task, of the whole layer or of a tile."""
        task = Task(("CNA", "CORE", "DPU", "DPU_RDMA") if dpu.rdma else ("CNA", "CORE", "DPU"))
        whole = Tile(0, conv.out[0], 0, dpu.channels)
        dpu.emit(task, tile or whole)
        part = tile or whole
        kernels = Tile(part.row, part.rows, part.channel, min(part.channels, conv.kernels - part.channel))
        conv.emit(task, kernels if tile else None, **reuse)
        kind = "depthwise" if conv.depthwise else f"argb{conv.argb}" if conv.argb else "conv"
        size = f"{conv.argb or conv.channels}x{conv.height}x{conv.width}"
        task.description = (
            f"{kind} {size} -> {dpu.channels}x{conv.out[0]}x{conv.out[1]} kernels {conv.kernels} of "
            f"{conv.kernel} stride {conv.stride} dilation {conv.dilation} pad {conv.pad} out {dpu.out} "
            f"banks {conv.data_bank}/{conv.weight_bank}; {', '.join(dpu.notes)}"
            + (f"; tile {tile}" if tile else "")
            + (f"; {', '.join(reuse)}" if reuse else "")
        )
        return task

    def _dpu(self, conv: ConvDraw, out: int | None = None, element: bool | None = None) -> DpuDraw:
        return self.dpus.draw(
            conv.out[1],
            conv.out[0],
            self.convs.lanes(conv),
            self.convs.spread(conv),
            depthwise=conv.depthwise,
            out=out,
            element=element,
        )

    def conv(self, kind: str = "conv", out: int | None = None, element: bool | None = None) -> list[Task]:
        """One convolution."""
        conv = self.convs.draw(kind)
        return [self.task(conv, self._dpu(conv, out, element))]

    def wide(self) -> list[Task]:
        """A large map that fills its data banks to the last row."""
        self.convs.largest, self.convs.budget = 80, 25000
        conv = self.convs.draw("depthwise" if self.rng.random() < 0.3 else "conv")
        self.convs.largest, self.convs.budget = 24, self.budget
        conv.data_bank = -(-conv.row_entries * conv.height * 64 // BANK_BYTES)
        return [self.task(conv, self._dpu(conv))]

    def pool(self) -> list[Task]:
        """One pooling task."""
        return [draw_pool(self.rng, self.arena)]

    def flying(self, element: bool) -> list[Task]:
        """One task of DPU and DPU_RDMA alone: two operands, or a requantisation of one."""
        main = int(self.rng.choice([0, 0, 1, 4]))
        width, height = (int(self.rng.integers(1, 25)) for _ in range(2))
        channels = int(self.rng.integers(1, 97))
        spread = {0: 70.0, 1: 20000.0, 4: 2.0**24}[main]
        dpu = self.dpus.draw(width, height, channels, spread, main=main, element=element)
        task = Task(("DPU", "DPU_RDMA"))
        dpu.emit(task)
        task.description = (
            f"flying type {main} {channels}x{height}x{width} out {dpu.out}; {', '.join(dpu.notes)}"
        )
        return [task]

    def weight_reuse(self) -> list[Task]:
        """Two tasks on different features, the second with the weights left in CBUF."""
        conv = self.convs.draw("depthwise" if self.rng.random() < 0.3 else "conv")
        first = self.task(conv, self._dpu(conv))
        conv.data = self.arena.alloc(
            conv.surface * conv.padded_channels + conv.line * conv.height * 16, "features 2"
        )
        second = self.task(conv, self._dpu(conv), weight_reuse=1)
        return [first, second]

    def data_reuse(self) -> list[Task]:
        """Two tasks with different weights, the second on the features left in CBUF."""
        conv = self.convs.draw(str(self.rng.choice(["conv", "depthwise", "argb"])))
        first = self.task(conv, self._dpu(conv))
        size = -(-conv.weight_bytes(conv.kernels) // 16) * 16
        conv.weights = self.arena.place(self.rng.integers(-128, 128, size).astype(np.int8), "weights 2")
        second = self.task(conv, self._dpu(conv), data_reuse=1)
        return [first, second]

    def row_tiles(self) -> list[Task]:
        """A layer cut into row tiles that share the weights in CBUF."""
        conv = self.convs.draw("depthwise" if self.rng.random() < 0.4 else "conv")
        if conv.out[0] < 2:
            raise Refused("too few rows for tiles")
        dpu = self._dpu(conv, element=bool(self.rng.random() < 0.3))
        cuts = np.unique(self.rng.integers(1, conv.out[0], int(self.rng.integers(1, 3)), endpoint=False))
        edges = [0, *cuts.tolist(), conv.out[0]]
        reuse = bool(self.rng.random() < 0.8)
        return [
            self.task(
                conv, dpu, Tile(a, b - a, 0, dpu.channels), **({"weight_reuse": 1} if a and reuse else {})
            )
            for a, b in pairwise(edges)
        ]

    def kernel_tiles(self) -> list[Task]:
        """A layer cut by kernels; tiles after the first find the features in CBUF."""
        conv = self.convs.draw("conv")
        if conv.kernels <= 32:
            raise Refused("too few kernels for tiles")
        dpu = self._dpu(conv, element=bool(self.rng.random() < 0.3))
        cut = 32 * int(self.rng.integers(1, -(-conv.kernels // 32)))
        reuse = {"data_reuse": 1} if self.rng.random() < 0.8 else {}
        return [
            self.task(conv, dpu, Tile(0, conv.out[0], 0, cut)),
            self.task(conv, dpu, Tile(0, conv.out[0], cut, dpu.channels - cut), **reuse),
        ]


KINDS: dict[str, Callable[[_Draw], list[Task]]] = {
    "conv": lambda d: d.conv(),
    "conv_int32": lambda d: d.conv(out=4),
    "depthwise": lambda d: d.conv("depthwise"),
    "argb": lambda d: d.conv("argb"),
    "deep": lambda d: d.conv("deep"),
    "wide": lambda d: d.wide(),
    "pool": lambda d: d.pool(),
    "add": lambda d: d.flying(True),
    "rescale": lambda d: d.flying(False),
    "residual": lambda d: d.conv("depthwise" if d.rng.random() < 0.3 else "conv", element=True),
    "weight_reuse": lambda d: d.weight_reuse(),
    "data_reuse": lambda d: d.data_reuse(),
    "row_tiles": lambda d: d.row_tiles(),
    "kernel_tiles": lambda d: d.kernel_tiles(),
}


def random_task(
    rng: np.random.Generator, kind: str | None = None, *, chain: int = 1, budget: int = 12000
) -> RandomTask:
    """Draw one legal kick.

    Parameters
    ----------
    rng
        source of every choice.
    kind
        one of `KINDS`; None draws one.
    chain
        draws joined in one kick (a draw of reuse or tiles has several tasks).
    budget
        formula cycles of one layer at most.

    Raises
    ------
    ValueError
        for an unknown kind.
    RuntimeError
        when 1000 draws in a row break a rule.
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
    refused = 0
    while refused < 1000:
        arena = Arena(rng, ARENA_BASE, ARENA_BYTES)
        try:
            draw = _Draw(rng, arena, budget)
            names = [kind or str(rng.choice(list(KINDS))) for _ in range(chain)]
            tasks = [task for name in names for task in KINDS[name](draw)]
            return _finish(rng, names, tasks, arena, refused)
        except Refused:
            refused += 1
    raise RuntimeError(f"1000 draws of {kind} in a row broke a rule")


def _finish(
    rng: np.random.Generator, names: list[str], tasks: list[Task], arena: Arena, refused: int
) -> RandomTask:
    dma_base = 32 * int(rng.integers(0, 1 << 15)) if rng.random() < 0.3 else 0
    commands = ARENA_BASE + ARENA_BYTES + 0x1000
    chain = link(tasks, commands + 64 * int(rng.integers(0, 4)), delta=rng.random() < 0.3, dma_base=dma_base)
    image = np.zeros(COMMAND_BYTES, np.uint8)
    for address, words in chain.lists:
        raw = np.array(words, "<u8").view(np.uint8)
        at = address - commands
        if at + raw.size > image.size:
            raise Refused("the command lists are too long")
        image[at : at + raw.size] = raw
    regions = [(ARENA_BASE, arena.data), (commands, image)]
    return RandomTask(
        tuple(names),
        chain,
        tuple(words for _, words in chain.lists),
        regions,
        tuple(task.description for task in tasks),
        chain.interrupt_mask,
        dma_base,
        arena,
        refused,
    )


if __name__ == "__main__":
    from cosim.crosscheck.sweep import main

    raise SystemExit(main())
