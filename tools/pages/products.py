"""The table of matrix products on the page of rknn_api, docs/rknn_api.md."""

from __future__ import annotations

from rkcosim.measure.perf.page import table
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.matmul_support import REFUSES, ROWS, SOURCES, UNKNOWN, VERSION, Behaviour, value_name


def markdown() -> str:
    """Return the table for docs/rknn_api.md, followed by the addresses of its links."""
    heads = ("member", "value", "types", VERSION, "here", "source")
    cells = []
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for row in ROWS:
        rest = "others" if (row.field, row.values) in seen else "all"
        seen.add((row.field, row.values))
        types = ", ".join(map(str, sorted(row.types))) or rest
        cells.append((row.field, _values(row), types, _board(row), _here(row), _sources(row)))
    links = [f"[{label}]: {address}" for label, address in SOURCES.values() if address]
    return "\n".join([*table(heads, cells), "", *links])


def _values(row: Behaviour) -> str:
    if not row.values:
        return "others"
    if row.field == "iommu_domain_id":
        return f"{row.values[0]} to {row.values[-1]}"
    prefixes = ("RKNN_MM_LAYOUT_", "RKNN_QUANT_TYPE_", "RKNN_")
    names = []
    for value in row.values:
        name = value_name(row.field, value)
        short = next(name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix))
        names.append(f"{value} {short}")
    return ", ".join(names)


def _board(row: Behaviour) -> str:
    text = row.board.value
    if row.board is REFUSES:
        text += f": `{row.line.format(field=row.field, type='TYPE', value='VALUE')}`"
    return f"{text}; {row.note}" if row.note else text


def _here(row: Behaviour) -> str:
    text = "taken"
    if row.code:
        text = "RKNN_ERR_FAIL" if row.code == t.RKNN_ERR_FAIL else "RKNN_ERR_PARAM_INVALID"
        text += f" of `{row.call}`"
    return f"{text}, assumed" if row.board is UNKNOWN else text


def _sources(row: Behaviour) -> str:
    found = []
    for key in row.sources:
        label, address = SOURCES[key]
        found.append(f"[{label}]" if address else label)
    return ", ".join(found) or "-"
