"""The page about whole outputs: a table for each family, and what is further away or does not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from benchmarks.public_models.files import Public
from benchmarks.public_models.measure import Record
from benchmarks.public_models.page import plain, table
from benchmarks.public_models.whole import NEAR, NOISE, right

HEAD = f"""# Public model files and their whole outputs

The files of this page were taken from packages and repositories after the compiler had been built, and
no choice was made by what it supports; faults that they showed were mended since.
`benchmarks/public_models/unseen.py` lists them with versions and commits, and `python -m
benchmarks.public_models DIR... --whole --page docs/results/whole_outputs.md` measures those below `DIR`
and writes this page.

Each file is compiled as it is shipped, at the default shapes, and run on the golden engine with random
inputs (seed {{seed}}): pictures between 0 and 1, normal numbers, codes, or small indices. Its whole
outputs are compared with those of onnxruntime (without optimisation) or LiteRT on the same file.
*Difference* is the largest one of all outputs, as a part of the output's largest magnitude.
*Reference's own* is how far the reference's outputs move if its inputs are rounded to fp16, or if it
computes in another way: onnxruntime with every tensor and weight rounded to fp16, LiteRT without its
delegate's kernels. Networks with random inputs multiply small differences, and a number of int8 goes
over to the next code. The runtimes round the inputs of dynamically quantised products to bytes, the NPU
does not. A file is *right* if no output is further away than {NEAR:.0%} or {NOISE:.0f} times that. *Of
the MACs* and *of the elements* is the part that the NPU computes.
"""
TITLES = ("file", "MACs", "of the MACs", "of the elements", "difference", "reference's own", "load, run")

RIGHT, AWAY = "right", "further away"
REFUSED, NEITHER = "refused, but the reference runs it", "the reference does not run it either"


def class_of(record: Record) -> str:
    """Return the class of a file."""
    if record.get("problem"):
        return NEITHER
    if "error" in record:
        return REFUSED
    return RIGHT if right(record) else AWAY


def page(records: Mapping[Public, Record], seed: int) -> str:
    """Return the page of the records (Markdown)."""
    counts = Counter(map(class_of, records.values()))
    ran = [record for record in records.values() if "outputs" in record]
    whole = sum(record["host_mac_share"] == 0 and record["macs"] > 0 for record in ran)
    with_macs = sum(record["macs"] > 0 for record in ran)
    text = (
        f"Of {len(records)} files, {counts[RIGHT]} are right, {counts[AWAY]} are further away, "
        f"{counts[REFUSED]} are refused or do not end although the reference runs them, and "
        f"{counts[NEITHER]} cannot be run by the reference either. "
        f"Of {with_macs} that run and have multiply-accumulates, {whole} have all of them on the NPU."
    )
    versions = sorted({record["version"] for record in records.values() if "version" in record})
    text += f" Measured with rkcosim {' and '.join(versions)}."
    parts = [HEAD.format(seed=seed), text, ""]
    for family in dict.fromkeys(item.family for item in records):
        here = {
            item: record for item, record in records.items() if item.family == family and "outputs" in record
        }
        parts += [f"## {family}", "", *table(here, TITLES, _cells), ""]
    parts += [
        *_away(records),
        *_refused(records, REFUSED, "## Refused"),
        *_refused(records, NEITHER, "## Neither"),
    ]
    parts += _hosted(records)
    return "\n".join(parts).rstrip() + "\n"


def _cells(item: Public, record: Record) -> list[str]:
    worst, noise = (max(row[key] for row in record["outputs"]) for key in ("worst", "noise"))
    seconds = record["seconds"]
    share = f"{1 - record['host_mac_share']:.2%}" if record["macs"] else "-"
    difference = f"{worst:.3%}" if right(record) else f"**{worst:.3%}**"
    elements = "nothing" if record["alone"] else f"{1 - record['host_share']:.2%}"
    times = f"{seconds['compile']:.1f} s, {seconds['run']:.1f} s"
    name = item.path.replace("_", "\\_")
    return [name, f"{record['macs'] / 1e6:,.4g} M", share, elements, difference, f"{noise:.3%}", times]


def _away(records: Mapping[Public, Record]) -> Iterator[str]:
    rows = [(item, record) for item, record in records.items() if class_of(record) == AWAY]
    if not rows:
        return
    yield from (
        "## Further away",
        "",
        "`rkcosim compare` feeds each layer with the reference's tensors, so that differences do not add up.",
        "",
        "| file | difference | largest magnitude | layers compared | beyond their bound |",
        "| --- | --- | --- | --- | --- |",
    )
    for item, record in rows:
        layers, beyond = record.get("layers", ["not compared", ""])
        name = plain(f"{item.source}: {item.path}")
        output = max(record["outputs"], key=lambda row: row["worst"])
        yield f"| {name} | {output['worst']:.3%} | {output['largest']:.3g} | {layers} | {beyond} |"
    yield ""


def _refused(records: Mapping[Public, Record], kind: str, title: str) -> Iterator[str]:
    rows = [(item, record) for item, record in records.items() if class_of(record) == kind]
    if not rows:
        return
    yield from (f"{title}: {kind}" if kind == REFUSED else f"## {kind[:1].upper()}{kind[1:]}", "")
    yield from ("| file | this project | reference |", "| --- | --- | --- |")
    for item, record in rows:
        said = plain(record.get("error", "compiles"), 240)
        name, other = plain(f"{item.source}: {item.path}"), plain(record.get("problem", ""), 160)
        yield f"| {name} | {said} | {other or 'runs'} |"
    yield ""


def _hosted(records: Mapping[Public, Record]) -> Iterator[str]:
    """Operators of the host by the number of files whose multiply-accumulates they keep from the NPU."""
    found: Counter[str] = Counter()
    for record in records.values():
        if record.get("host_mac_share", 0) > 0.01:
            found.update(kind for kind in record["host"] if kind in _WITH_MACS)
    if found:
        yield from ("## Operators that keep multiply-accumulates on the host", "", "| operator | files |")
        yield "| --- | --- |"
        for kind, count in found.most_common():
            yield f"| {kind} | {count} |"
        yield ""


_WITH_MACS = {
    *("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM", "WHILE", "UNIDIRECTIONAL_SEQUENCE_LSTM", "MatMul", "Gemm"),
    *(
        "Conv",
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "BATCH_MATMUL",
        "ConvTranspose",
        "Attention",
    ),
    *("MatMulInteger", "ConvInteger", "TRANSPOSE_CONV", "CONV_3D", "Einsum"),
}
