"""The page with the results: a table for each family, refusals, and layers beyond their bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.public_models.files import Public
from benchmarks.public_models.measure import Record

HEAD = (
    "# Public model files\n\n"
    "This page shows which public model files load as they are shipped, whether they run bit for bit like "
    "both golden models, and how far their layers are from those of LiteRT or onnxruntime. None of the files "
    "is a part of this project; `benchmarks/public_models/files.py` lists them with the commits of their "
    "repositories and the versions of their packages. `python -m benchmarks.public_models DIR... --page "
    "docs/results/public_models.md` measures the files below `DIR` and writes this page.\n\n"
    "Inputs are random codes, or normal numbers for inputs in floating point (seed {seed}), at the default "
    "shapes. *Bit for bit* compares every tensor of the RTL, or of the task-level golden model alone, with "
    "both golden models. In *layers*, each layer gets the reference's tensors as inputs: int8 layers are "
    "compared in steps of their output, layers of fp16 in places of fp16 of their largest partial sum "
    "([Accuracy](../models.md#accuracy)). *Outputs* are those of the whole network: the largest difference "
    "from the reference's, in steps or relative to the largest value. Errors of layers add up there, and "
    "random inputs are far from what a network was trained for, so a large figure in that column is no fault "
    "if all layers are within their bounds. Seconds and peak memory are of the compilation, in a new "
    "process.\n"
)
TITLES = (
    "file",
    "MACs, share on the NPU",
    "operators on the host",
    "bit for bit",
    "layers",
    "outputs",
    "compiled",
)
MEBI = 1 << 20


def page(records: Mapping[Public, Record], missing: Sequence[Public], seed: int) -> str:
    """Return the page of the records (Markdown)."""
    parts = [HEAD.format(seed=seed), summary(records, missing), ""]
    for family in dict.fromkeys(item.family for item in records if not item.invalid):
        here = {item: record for item, record in records.items() if item.family == family}
        parts += [f"## {family}", "", *table(here, TITLES, _cells), ""]
    parts += [*_refused(records), *_beyond(records), *_largest(records)]
    return "\n".join(parts).rstrip() + "\n"


def loaded(record: Record) -> bool:
    """Whether the file was compiled."""
    return record["stage"] not in ("start", "compile")


def matching(record: Record) -> bool:
    """Whether every tensor was the same, on each engine that ran the file."""
    ran = [record[engine]["match"] for engine in ("golden", "rtl") if engine in record]
    return bool(ran) and all(ran)


def summary(records: Mapping[Public, Record], missing: Sequence[Public]) -> str:
    """Return the counts in words."""
    valid = [record for item, record in records.items() if not item.invalid]
    invalid = [record for item, record in records.items() if item.invalid]
    shipped = [record for record in valid if "refusal" not in record]
    cut = [record for record in valid if "refusal" in record]
    text = (
        f"Of {len(valid)} valid files, {sum(map(loaded, shipped))} load as shipped and "
        f"{sum(map(matching, shipped))} of these match bit for bit, "
        f"{sum(matching(record) and 'rtl' in record for record in shipped)} of them on the RTL."
    )
    if cut:
        text += (
            f" {len(cut)} files have custom operators that no runtime here has and are refused by name; "
            f"with `--outputs` before these operators {sum(map(loaded, cut))} load and "
            f"{sum(map(matching, cut))} match."
        )
    if invalid:
        right = sum(not loaded(record) and record.get("expected", False) for record in invalid)
        text += f" {right} of {len(invalid)} deliberately invalid files is refused with a message."
    layers = [record["compare"] for record in valid if "layers" in record.get("compare", {})]
    steps = sum(found["layers"]["step"] for found in layers)
    far = sum(len(found["above_one"]) for found in layers)
    places = sum(found["layers"]["fp16"] for found in layers)
    wide = sum(row["unit"] == "fp16" for found in layers for row in found["beyond"])
    text += (
        f" Fed with the reference's tensors, {steps - far:,} of {steps:,} int8 layers are within one step "
        f"and {places - wide:,} of {places:,} layers of fp16 within their bound."
    )
    versions = sorted({record["version"] for record in records.values() if "version" in record})
    if versions:
        text += f" Measured with rkcosim {' and '.join(versions)}."
    if missing:
        text += f" {len(missing)} files of the list were not measured."
    return text


def table(
    records: Mapping[Public, Record], titles: Sequence[str], cells: Callable[[Public, Record], Sequence[str]]
) -> Iterator[str]:
    """Yield the lines of a table: a row for each file, and one before the first file of each source."""
    yield f"| {' | '.join(titles)} |"
    yield f"|{' --- |' * len(titles)}"
    source = ""
    for item, record in records.items():
        if item.source != source:
            source = item.source
            yield f"| *{source}* |{' |' * (len(titles) - 1)}"
        yield f"| {' | '.join(cells(item, record))} |"


def _cells(item: Public, record: Record) -> list[str]:
    name = item.name.replace("_", "\\_") + (" (with `--outputs`)" if "refusal" in record else "")
    if not loaded(record):
        return [name, "refused", "", "", "", "", ""]
    share = 1 - record["host_mac_share"]
    count = len(record["host"])
    return [
        name,
        f"{record['macs'] / 1e6:,.4g} M, {share:.4g} of all"
        if share < 1
        else f"{record['macs'] / 1e6:,.4g} M, all",
        f"{count}, {record['host_share']:.2%} of elements" if count else "none",
        _bits(record),
        _layers(record),
        _outputs(record),
        f"{record['seconds']['compile']:.1f} s, {record['peak_bytes']['compile'] / MEBI:,.0f} MiB",
    ]


def _bits(record: Record) -> str:
    if "golden" not in record:
        return f"not run: {plain(record.get('error', ''))}"
    if not matching(record):
        return "**no**"
    return f"RTL, {record['rtl']['cycles']:,} cycles" if "rtl" in record else "golden models"


def _layers(record: Record) -> str:
    found = record.get("compare")
    if found is None:
        return "-"
    if "problem" in found:
        return plain(found["problem"])
    parts = []
    for unit, words in (("step", ("int8", "step", "steps")), ("fp16", ("fp16", "place", "places"))):
        number = found["layers"][unit]
        if number:
            beyond = sum(row["unit"] == unit for row in found["beyond"])
            worst = found["worst"][unit]
            text = f"{number} {words[0]}, at most {worst} {words[1] if worst == 1 else words[2]}"
            parts.append(text + (f" ({beyond} beyond the bound)" if beyond else ""))
    text = "; ".join(parts) or "outputs only"
    return f"{text}, up to the custom operators" if found.get("outputs_cut") else text


def _outputs(record: Record) -> str:
    rows = record.get("compare", {}).get("outputs") or []
    if not rows:
        return "-"
    if rows[0]["agreement"]["unit"] == "steps" and all(row["unit"] is not None for row in rows):
        worst = max(_size(row["worst"]) for row in rows)
        return f"{worst:.3g} steps"
    worst = max(_size(row["worst"]) for row in rows if row["unit"] is None)
    return f"{worst:.3%}"


def _size(value: float | None) -> float:
    return float("inf") if value is None else value


def _refused(records: Mapping[Public, Record]) -> Iterator[str]:
    rows = [(item, record["error"]) for item, record in records.items() if "error" in record]
    rows += [(item, record["refusal"]) for item, record in records.items() if "refusal" in record]
    if not rows:
        return
    yield from ("## Refused, or not finished", "", "| file | message |", "| --- | --- |")
    for item, message in rows:
        name = item.name.replace("_", "\\_") + (" (deliberately invalid)" if item.invalid else "")
        yield f"| {name} | {plain(message)} |"
    yield ""


def _beyond(records: Mapping[Public, Record]) -> Iterator[str]:
    found: list[tuple[Public, dict[str, Any]]] = []
    for item, record in records.items():
        compared = record.get("compare", {})
        rows = compared.get("above_one", []) + [r for r in compared.get("beyond", []) if r["unit"] == "fp16"]
        found += [(item, row) for row in rows]
    if not found:
        return
    yield from (
        "## Layers beyond one step, or beyond their bound in fp16",
        "",
        "The reasons are on the page [Model files](../models.md#accuracy).",
        "",
        "| file | layer | operator | worst | bound | elements that differ |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for item, row in found:
        unit = "steps" if row["unit"] == "step" else "places"
        share = f"{row['differing']:,} of {row['elements']:,}"
        cells = (item.name.replace("_", "\\_"), plain(row["name"], 48), row["op"], f"{row['worst']} {unit}")
        yield f"| {' | '.join(cells)} | {row['bound']} | {share} |"
    yield ""


def _largest(records: Mapping[Public, Record]) -> Iterator[str]:
    rows = [(item, record) for item, record in records.items() if loaded(record)]
    rows.sort(key=lambda pair: -pair[1]["peak_bytes"]["compile"])
    yield from ("## Time and memory of the largest", "", "| file | MACs | compilation | peak memory |")
    yield "| --- | --- | --- | --- |"
    for item, record in rows[:5]:
        name = item.name.replace("_", "\\_")
        size = f"{record['peak_bytes']['compile'] / MEBI:,.0f} MiB"
        yield f"| {name} | {record['macs'] / 1e6:,.4g} M | {record['seconds']['compile']:.1f} s | {size} |"
    yield ""


def plain(text: str, most: int = 400) -> str:
    """Return a text that fits into a cell of a table."""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 3] + "..."
    for sign in "|_*`<":
        line = line.replace(sign, "\\" + sign)
    return line
