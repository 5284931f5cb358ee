"""docs/results/zoo.md, written from the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.zoo.boards import BOARDS, BoardTime, sources
from benchmarks.zoo.networks import ENTRIES, Entry
from benchmarks.zoo.record import FIRST, Agreement, Measured, read_record
from benchmarks.zoo.sources import Made
from rkcosim.base import PACKAGE
from rkcosim.measure.perf.page import table
from rkcosim.waves.whole_file import whole_file

PAGE = PACKAGE / "docs" / "results" / "zoo.md"

HEADS = (
    *("network", "weights", "type", "MACs", "on the NPU: MACs", "elements", "verdict", "layers that differ"),
    *("output", "cycles", "ms", "board ms", "load s", "run s", "compare s"),
)

BEGIN = Path(__file__).with_name("introduction.md")
"""Text before the table, with a place for the number of networks."""


def write_page(record: Mapping[str, Measured], path: Path = PAGE) -> None:
    """Replace the page atomically."""
    with whole_file(path) as part:
        part.write_text(page(record))


def page(record: Mapping[str, Measured]) -> str:
    """Return the page of a record; networks that the zoo does not have are left out."""
    there = [(entry, record[entry.name]) for entry in ENTRIES if entry.name in record]
    good = [(entry, found) for entry, found in there if not found.failed]
    lines = [BEGIN.read_text().format(count=len(there)), *_summary(good)]
    lines += table(HEADS, [_cells(entry, found) for entry, found in good])
    for section in (_failed, _changes, _differences, _remarks, _boards):
        lines += section(there)
    return "\n".join(lines) + "\n"


def _summary(good: list[tuple[Entry, Measured]]) -> list[str]:
    if not good:
        return ["No network was measured yet.", ""]
    run = [found for _, found in good if not found.estimated]
    matching = sum(found.match for found in run)
    compared = [found.agreement for _, found in good if found.agreement is not None]
    within = sum(agreement.within for agreement in compared)
    real = sum(not isinstance(entry.source, Made) for entry, _ in good)
    versions = ", ".join(sorted({found.version for _, found in good}))
    later = sum(bool(found.compared) for _, found in good)
    text = (
        f"{matching} of {len(run)} match in every tensor; {within} of {len(compared)} that a "
        f"reference runtime reads are within the bounds of `rkcosim compare`. {real} have the weights of "
        f"their authors, {len(good) - real} random ones. Measured with rkcosim {versions}."
    )
    if later:
        text += f" Of {later}, loading and comparing were measured again later than the run."
    if estimated := len(good) - len(run):
        text += f" {estimated} were not run: their cycles are those of `rkcosim estimate`."
    if untimed := sum(not found.load_seconds for _, found in good):
        text += f" {untimed} were measured before the seconds of loading and comparing were."
    if missing := [f"`{entry.name}`" for entry in ENTRIES if entry.name not in {e.name for e, _ in good}]:
        text += f" Not measured, because they take too long: {', '.join(missing)}."
    return ["## Networks", "", text, ""]


def _cells(entry: Entry, found: Measured) -> list[str]:
    board = BOARDS.get(entry.name)
    return [
        f"{entry.title} (`{entry.name}`)",
        "random" if isinstance(entry.source, Made) else entry.source.origin,
        found.form,
        f"{found.macs:,.1f}",
        _share(found.mac_share) if found.macs or found.mac_share < 1 else "-",
        _share(found.element_share),
        _verdict(found),
        *_agreement(found.agreement),
        f"{found.cycles:,}",
        f"{found.milliseconds:.3f}" if found.milliseconds < 10 else f"{found.milliseconds:.1f}",
        _range(board) if board else "",
        f"{found.load_seconds:.1f}" if found.load_seconds else "",
        f"{found.host_seconds:.1f}" if not found.estimated else "",
        f"{found.compare_seconds:.1f}" if found.compare_seconds else "",
    ]


def _verdict(found: Measured) -> str:
    if found.estimated:
        return "not run, cycles estimated"
    return "match" if found.match else "**MISMATCH**"


def _share(share: float) -> str:
    """Return a share in percent that is 100 only if nothing is missing."""
    text = f"{100 * share:.2f}"
    return f"{'99.99' if text == '100.00' and share < 1 else text.rstrip('0').rstrip('.')} %"


def _agreement(found: Agreement | None) -> tuple[str, str]:
    """Return the cells about the layers and about the outputs of the whole model."""
    if found is None:
        return "no reference", ""
    layers = f"{found.differing / found.elements:.2%}" if found.elements else "outputs only"
    if found.worst is None:
        output = "not finite"
    elif found.unit == "relative":
        output = f"{found.worst:.2%}"
    else:
        figure = f"{found.worst:.3g}"
        word = " step" if figure == "1" else " steps"
        output = figure + (word if found.unit == "steps" else "")
    if found.same_classes is not None:
        output += ", same class" if found.same_classes else ", other class"
    return layers, output if found.within else f"{output}; **beyond the bound**"


def _range(board: BoardTime) -> str:
    low, high = f"{board.low:.3g}", f"{board.high:.3g}"
    return low if low == high else f"{low} to {high}"


def _source(board: BoardTime) -> str:
    """Return the places of the figures: repository, commit and file."""
    return "; ".join(sources()[key] for key in board.source.split())


def _failed(there: list[tuple[Entry, Measured]]) -> list[str]:
    rows = [(f"`{entry.name}`", _one_line(found.failed)) for entry, found in there if found.failed]
    return ["", "## Not run", "", *table(("network", "message"), rows)] if rows else []


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _changes(there: list[tuple[Entry, Measured]]) -> list[str]:
    """Return what changed since networks were first measured, with the same model file."""
    first, rows = read_record(FIRST), []
    for entry, found in there:
        before = first.get(entry.name)
        if before is None or found.failed or before.model != found.model:
            continue
        pairs = (
            (_share(before.mac_share), _share(found.mac_share)),
            (_share(before.element_share), _share(found.element_share)),
            (f"{before.cycles:,}", f"{found.cycles:,}{' (estimated)' if found.estimated else ''}"),
        )
        if any(old != new for old, new in pairs):
            rows.append((f"`{entry.name}`", *(cell for pair in pairs for cell in pair)))
    heads = ("network", "MACs before", "now", "elements before", "now", "cycles before", "now")
    text = (
        "Networks whose share on the NPU or cycles changed since they were first measured, or since "
        "2026-11-28 if that was before; the model file is the same. Cycles are those of the NPU alone, so "
        "operators that moved there from the host add to them."
    )
    return ["", "## Before and now", "", text, "", *table(heads, rows)] if rows else []


def _differences(there: list[tuple[Entry, Measured]]) -> list[str]:
    rows = []
    for entry, found in there:
        if not (found.failed or found.estimated or found.match):
            rows.append((f"`{entry.name}`", f"first difference between the models: {found.first_difference}"))
        if found.agreement is not None:
            rows += [(f"`{entry.name}`", _one_line(reason)) for reason in found.agreement.reasons]
    text = (
        "The first reasons that `rkcosim compare` gives. Where no layer is named, every layer that was "
        "compared is within its bound, and the differences of single layers add up. The inputs are random, "
        "which trained networks were not made for; differences on real data are not measured here."
    )
    shown = [text, "", *table(("network", "reason"), rows)] if rows else ["None."]
    return ["", "## Beyond the bound", "", *shown]


def _remarks(there: list[tuple[Entry, Measured]]) -> list[str]:
    rows = [(f"`{entry.name}`", entry.task, entry.remark) for entry, _ in there if entry.remark]
    return ["", "## Remarks", "", *table(("network", "used for", "remark"), rows)] if rows else []


def _boards(there: list[tuple[Entry, Measured]]) -> list[str]:
    rows = []
    for entry, found in there:
        board = BOARDS.get(entry.name)
        if board is not None and not found.failed:
            ratio = found.milliseconds / ((board.low + board.high) / 2)
            share = f"{ratio:.2f}"
            cells = (
                f"`{entry.name}`",
                _range(board),
                board.quote,
                share,
                board.note,
                _source(board),
            )
            rows.append(cells)
    text = (
        "Times as published; a rate in frames a second is that of one core at the largest frequency. The "
        "ratio is ours to the board's. `rkcosim validate` has the three networks whose tables are known "
        "exactly; for the others the boards' files may differ from ours, and known differences are noted."
    )
    heads = ("network", "board ms", "published", "ours / board", "difference", "source")
    return ["", "## Times of boards", "", text, *(["", *table(heads, rows)] if rows else [])]
