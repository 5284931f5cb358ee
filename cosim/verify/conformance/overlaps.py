"""Outputs whose surfaces, copies, packets or tensors overlap: of two atoms at one place one remains."""

from __future__ import annotations

from collections.abc import Callable

from rkcosim.spec.types import ATOM, BF16, FP16, FP32, INT4, INT8, INT16, INT32, TF32, ElementType
from rkcosim.verify.conformance import draw_writer
from rkcosim.verify.conformance.case import Plan
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.draw_dpu import DpuWish
from rkcosim.verify.conformance.draws import COMMON, Draw, conv_of, fly
from rkcosim.verify.crosscheck.program import Task

_HALF = 1 << 27
"""Distances from here on are negative."""

FARTHEST = 40
"""Largest distance of two surfaces in atoms."""

_MATRIX = DpuWish(matrix=True)


def _column(kind: ElementType) -> Callable[[Draw], Plan]:
    """Return the draw of a flying task, half of them with cubes of one column, that is, rows of a matrix."""

    def draw(d: Draw) -> Plan:
        plan = fly((kind,), "some")(d)
        if d.ch.chance("overlap.column", 0.5):
            for block in ("DPU", "DPU_RDMA"):
                plan.task.set(block, WIDTH=0)
            plan.task.set("DPU", WIDTH_WDMA=0)
        return plan

    return draw


def _fed(d: Draw) -> Plan:
    kind = d.any_type(COMMON)
    wish = DpuWish(out=(kind,), to_ppu=True)
    return d.flying(kind, wish) if d.ch.chance("ppu.flying", 0.5) else conv_of((kind,), wish, budget=600)(d)


def _fed_index(d: Draw) -> Plan:
    """Draw positions of a maximum or minimum of what the DPU sends, in two tensors."""
    plan = _fed(d)
    if not plan.task.get("PPU", "POOLING_METHOD"):
        raise Refused("an average has no positions")
    plan.task.set("PPU", INDEX_EN=1)
    return plan


def _index(d: Draw) -> Plan:
    return d.pool(d.any_type(COMMON), index=True)


KINDS: tuple[Callable[[Draw], Plan], ...] = (
    *(
        conv_of((kind,), _MATRIX, row_major=True, budget=800)
        for kind in (INT8, INT4, INT16, FP16, BF16, TF32)
    ),
    *(conv_of((kind,), budget=800) for kind in (INT8, INT4, FP16)),
    *(conv_of((kind,), depthwise=True, budget=800) for kind in (INT8, INT16, FP16)),
    *(_column(kind) for kind in (INT8, INT16, INT32, INT4, FP16, FP32, BF16)),
    draw_writer.packets,
    draw_writer.products,
    draw_writer.unpooling,
    *(lambda d, kind=kind: d.pool(kind) for kind in COMMON),
    _index,
    _fed,
    _index,
    _fed_index,
    _index,
)
"""Draws of every writer and of every type."""


def draw(d: Draw) -> Plan:
    """Draw a task of each kind in turn, and bring its outputs and its inputs close together."""
    plan = KINDS[d.index % len(KINDS)](d)
    for task in plan.tasks:
        if "DPU" in task.blocks and task.get("DPU", "OUTPUT_MODE") & 2:
            _close_surfaces(d, task)
        if "PPU" in task.blocks:
            _close_tensors(d, task)
        if d.ch.chance("overlap.inputs", 0.4):
            _close_inputs(d, task)
    plan.note = "overlaps"
    return plan


def _distance(d: Draw, name: str) -> int:
    return d.ch.integer(f"overlap.{name}", 0, 9 if d.ch.chance(f"overlap.near_{name}", 0.7) else FARTHEST)


def _close_surfaces(d: Draw, task: Task) -> None:
    """Draw the distances of the DPU's writer."""
    notch = 0 if d.ch.chance("overlap.tight", 0.5) else d.ch.integer("overlap.notch", 1, 9)
    task.set("DPU", NOTCH_ADDR_0=notch, NOTCH_ADDR_1=notch)
    stride = 1 if d.ch.chance("overlap.joined", 0.4) else _distance(d, "stride")
    task.set("DPU", DST_SURF_STRIDE=stride, SURF_ADD=_distance(d, "add"))
    pixels = (task.get("DPU", "WIDTH") + 1 + notch) * (task.get("DPU", "HEIGHT") + 1)
    wide = task.get("DPU", "WIDTH_WDMA") + 1 + notch
    lines = max(pixels, wide * (task.get("DPU", "HEIGHT_WDMA") + 1))
    surfaces = 8 * (task.get("DPU", "CHANNEL") // 4 + 1)
    size = (lines + (surfaces + 8) * FARTHEST) * ATOM
    if size > 1 << 18:
        raise Refused("too large")
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(size, "overlapping output"))


def _close_tensors(d: Draw, task: Task) -> None:
    """Draw the distances of the PPU's writer."""
    notch = d.ch.integer("overlap.pool_notch", 0, 3)
    task.set("PPU", DST_SURF_STRIDE=_distance(d, "pool"), INDEX_ADD=_distance(d, "index"), NOTCH_ADDR=notch)
    line = task.get("PPU", "DATA_CUBE_OUT_WIDTH") + 1 + notch
    lines = line * (task.get("PPU", "DATA_CUBE_OUT_HEIGHT") + 1)
    surfaces = task.get("PPU", "DATA_CUBE_OUT_CHANNEL") // 8 + 1
    size = (lines + (surfaces + 1) * FARTHEST) * ATOM
    task.address("PPU", "DST_BASE_ADDR", d.arena.alloc(size, "overlapping pools"))


def _close_inputs(d: Draw, task: Task) -> None:
    """Let surfaces that are read overlap, which no order depends on; those that ascend stay in their room."""
    if "DPU_RDMA" in task.blocks:
        area = (task.get("DPU_RDMA", "WIDTH") + 1) * (task.get("DPU_RDMA", "HEIGHT") + 1)
        back = (1 << 28) - d.ch.integer("overlap.read", 0, min(area, 9))
        for line, surface in (
            ("LINE_NOTCH_ADDR", "SURF_NOTCH_ADDR"),
            ("EW_LINE_NOTCH_ADDR", "EW_SURF_NOTCH"),
        ):
            if task.get("DPU_RDMA", surface) < _HALF:
                task.set("DPU_RDMA", **{line: 0, surface: back % (1 << 28)})
    if "PPU_RDMA" in task.blocks and 0 <= task.get("PPU_RDMA", "SRC_SURF_STRIDE") < _HALF:
        width = task.get("PPU_RDMA", "CUBE_IN_WIDTH") + 1
        area = width * (task.get("PPU_RDMA", "CUBE_IN_HEIGHT") + 1)
        task.set("PPU_RDMA", SRC_LINE_STRIDE=d.ch.integer("overlap.line", 0, width))
        task.set("PPU_RDMA", SRC_SURF_STRIDE=min(_distance(d, "pool_read"), area))
