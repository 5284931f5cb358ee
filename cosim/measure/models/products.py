"""Rows about the matrix products that programs ran, one for each type, shape, layout and core."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rkcosim.base.tables import table
from rkcosim.compiler.matmul import Matmul
from rkcosim.compiler.runtime import LayerReport
from rkcosim.measure.models.rows import layer_row
from rkcosim.measure.perf import formula
from rkcosim.measure.perf.boards.expected import (
    INT4_ROWS,
    INT4_ROWS_GOPS,
    PRODUCT_RUN,
    PRODUCT_RUN_US,
)
from rkcosim.rknn_api.matmul_state import MatmulContext, ShapeRuns
from rkcosim.rknn_api.matmul_support import value_name


@dataclass
class ProductRow:
    """A matrix product and its runs.

    Members
    -------
    kind : types of A, B and C, as "int8 x int8 -> int32".
    m, k, n : rows of A, columns of A, columns of B.
    b_layout, ac_layout : names of the layouts of B, and of A and C.
    core : core that ran it.
    runs, tasks : calls of rknn_matmul_run, and tasks of each.
    cycles : cycles of all runs; None if the engine counts none.  Figures below are of the last run.
    macs : multiply-accumulates.
    utilisation : their share of those that the core's array could have done in these cycles.
    bytes_read, bytes_written : bytes of the NPU without commands; None if the engine measures no tasks.
    bound : what limits it, as in `LayerRow.bound`.
    conversions, converted_bytes : how often B was converted to the layout that the NPU reads, and the bytes
        that were read and written for it in all.
    """

    kind: str
    m: int
    k: int
    n: int
    b_layout: str
    ac_layout: str
    core: int
    runs: int
    tasks: int
    cycles: int | None
    macs: int
    utilisation: float | None
    bytes_read: int | None
    bytes_written: int | None
    bound: str | None
    conversions: int
    converted_bytes: int

    @property
    def key(self) -> tuple[Any, ...]:
        """What products have in common that share a row."""
        return self.kind, self.m, self.k, self.n, self.b_layout, self.ac_layout, self.core

    @property
    def converted_share(self) -> float | None:
        """Share of the conversion of B in all bytes that processor and NPU moved; None if not measured."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        moved = self.converted_bytes + self.runs * (self.bytes_read + self.bytes_written)
        return self.converted_bytes / moved if moved else 0.0

    @property
    def rows_ms(self) -> float | None:
        """Milliseconds of a run with librknnrt 2.3.2, if it converts rows of int4 (`INT4_ROWS_GOPS`)."""
        if not self.kind.startswith("int4") or self.ac_layout != "NORM" or self.m == 1:
            return None
        return 2 * self.macs / INT4_ROWS_GOPS / 1e6

    def as_json(self) -> dict[str, Any]:
        """Return all members, the share of the conversion and the time with converted rows."""
        return {**asdict(self), "converted_share": self.converted_share, "rows_ms": self.rows_ms}


def product_rows(context: MatmulContext, device: Any) -> list[ProductRow]:
    """Return a row for each shape of a product that ran, or for which B was converted, on each core."""
    return [
        _row(context, shape, core, runs, device) for (shape, core), runs in context.runs.items() if runs.runs
    ]


def _row(
    context: MatmulContext, shape: tuple[int, int, int], core: int, runs: ShapeRuns, device: Any
) -> ProductRow:
    m, k, n = shape
    product: Matmul = context.product_of(shape)
    seen = runs.measures
    busy = [measure.mac_busy for measure in seen if measure.mac_busy is not None]
    code = product.kind.code
    npu = sum(formula.conv_npu(t.rows, t.columns, t.depth, 1, precision=code) for t in product.tiles)
    last = runs.last_cycles if device.has_cycles else None
    layer = layer_row(
        LayerReport(
            product.kind.name,
            "MatMul",
            "npu",
            len(product.tiles),
            last,
            m * k * n,
            sum(measure.bytes_read for measure in seen),
            sum(measure.bytes_written for measure in seen),
            npu,
            (m, k),
            (m, n),
            sum(busy) if busy else None,
            measures=seen,
        ),
        device.dram,
    )
    kernels, channels = formula.GROUPS[code]
    return ProductRow(
        kind=product.kind.name,
        m=m,
        k=k,
        n=n,
        b_layout=_layout("B_layout", context.info.B_layout),
        ac_layout=_layout("AC_layout", context.info.AC_layout),
        core=core,
        runs=runs.runs,
        tasks=len(product.tiles),
        cycles=runs.cycles if device.has_cycles else None,
        macs=m * k * n,
        utilisation=round(m * k * n / (last * kernels * channels), 4) if last else None,
        bytes_read=layer.bytes_read if seen else None,
        bytes_written=layer.bytes_written if seen else None,
        bound=layer.bound if seen else None,
        conversions=runs.conversions,
        converted_bytes=runs.converted_bytes,
    )


def _layout(field: str, value: int) -> str:
    return value_name(field, value).removeprefix("RKNN_MM_LAYOUT_")


def merged(rows: Iterable[ProductRow]) -> list[ProductRow]:
    """Return the rows with those of equal products on the same core added, in the order of the first."""
    found: dict[tuple[Any, ...], ProductRow] = {}
    for row in rows:
        before = found.get(row.key)
        if before is None:
            found[row.key] = ProductRow(**asdict(row))
            continue
        before.runs += row.runs
        before.conversions += row.conversions
        before.converted_bytes += row.converted_bytes
        if before.cycles is not None and row.cycles is not None:
            before.cycles += row.cycles
    return list(found.values())


def products_table(rows: Iterable[ProductRow]) -> Any:
    """Return the rows as a `rich.table.Table`."""
    heads = ("product", "M x K x N", "B", "A, C", "core|", "runs|,", "tasks|,", "cycles each|,.0f")
    shares = ("MAC use|.1%", "KB read|,.1f", "KB written|,.1f", "bound by", "B converted|,", "share|.1%")
    cells = []
    for row in rows:
        each = None if row.cycles is None else row.cycles / row.runs
        moved = [None if count is None else count / 1024 for count in (row.bytes_read, row.bytes_written)]
        name, size = row.kind, f"{row.m} x {row.k} x {row.n}"
        what = (name, size, row.b_layout, row.ac_layout, row.core, row.runs, row.tasks, each)
        cells.append((*what, row.utilisation, *moved, row.bound, row.conversions, row.converted_share))
    return table("matrix products, each on one core", heads + shares, cells)


def product_lines(rows: Iterable[ProductRow], cores: int, clock_mhz: float = 1000.0) -> list[str]:
    """Return lines about all products: their share of the cores, and what a board needs in addition.

    Parameters
    ----------
    rows : the products.
    cores : number of cores of the device.
    clock_mhz : clock of the NPU.
    """
    rows = list(rows)
    runs = sum(row.runs for row in rows)
    lines = []
    timed = [(row, row.cycles) for row in rows if row.cycles]
    if timed:
        cycles = sum(count for _, count in timed)
        used = sum((row.utilisation or 0.0) * count for row, count in timed) / cycles / cores
        npu, driver = cycles / clock_mhz / 1000, runs * PRODUCT_RUN_US / 1000
        lines.append(
            f"{runs} runs of products: {npu:.3f} ms of the NPU at {clock_mhz / 1000:g} GHz, one after the "
            f"other; MAC use {used:.1%} of {cores} core{'s' * (cores != 1)}"
        )
        more = ""
        if len({row.core for row in rows}) > 1:
            more = "; a product that is divided among cores needs a run on each"
            if driver > npu:
                more += ", which costs more here than the NPU's work"
        lines.append(
            f"on a board each run takes {PRODUCT_RUN_US:g} us more, {driver:.3f} ms in all{more} "
            f"[{PRODUCT_RUN}]"
        )
    converted = [row for row in rows if row.rows_ms is not None]
    if converted:
        worst = max(converted, key=lambda row: row.rows_ms or 0.0)
        lines.append(
            f"int4 with A and C in rows: librknnrt 2.3.2 converts them in each run at about "
            f"{INT4_ROWS_GOPS:g} GOPS, {worst.rows_ms:.3g} ms for {worst.m} x {worst.k} x {worst.n}; "
            f"the native layout avoids it [{INT4_ROWS}]"
        )
    return lines
