"""The page with the results: a table for each family, refusals, and what remains with the runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.public_models.files import Public
from benchmarks.public_models.measure import Record
from benchmarks.public_models.page import plain, table

HEAD = (
    "# Public model files in scripts of LiteRT and onnxruntime\n\n"
    "This page shows how the [public model files](public_models.md) run in a script of their runtime "
    "with one line for the plug-in ([LiteRT and onnxruntime scripts](../delegates.md)), beside `rkcosim "
    "run` on the same inputs. `python -m benchmarks.delegate_models DIR... --page "
    "docs/results/delegates_models.md` measures the files below `DIR` and writes this page; the script is "
    "`benchmarks/delegate_models/script.py`. Inputs are random codes, or normal numbers for inputs in "
    "floating point (seed {seed}).\n\n"
    "*Operators* are those in parts of the NPU, of all that the runtime shows to the plug-in "
    "(onnxruntime after its optimisation). *Result* compares the outputs byte for byte with those of "
    "`rkcosim run`. If they differ, two more comparisons follow. In the first, the script selects the "
    "kernels and the optimisation that `rkcosim run` uses for the host's part: LiteRT without its "
    "default delegate (XNNPACK) and with one thread, onnxruntime with `ORT_DISABLE_ALL`. The second "
    "runs every part (option `parts`) with `rkcosim run` on the inputs that it got in the script: the "
    "part is *equal* if its outputs are the same bytes. A difference of the whole is then due to the "
    "division alone. An operator of which the host computes an input remains on the host in `rkcosim run`, "
    "but can begin a part in a script; and what `rkcosim run` computes on the NPU in fp16 or int8, the "
    "runtime computes in its own kernels, or after an optimisation. Roundings that differ can move an "
    "ARG\\_MAX, and then everything that follows from it. Differences are given in steps of the output's "
    "codes, or relative to its largest value.\n\n"
    "*Cycles* are those of the RTL, or the compiler's formula for the whole file (with ~) where the "
    "task-level golden model ran the script. *Ready* is the time until the model can be run: the "
    "process is started, the graph compiled and loaded. *Beside* is the time of a call that is not "
    "spent in the simulation: tensors, messages, and what the runtime computes itself; it is the median "
    "of up to five calls after the first, or the first of a model that takes more than 10 seconds "
    "(marked *). Many other processes used the machine at the same time: times can be far above those of an "
    "idle one.\n"
)
TITLES = ("file", "operators", "parts", "result", "cycles", "ready", "call", "beside")


def good(record: Record) -> bool:
    """Whether the result is equal, or each part, or the runtime itself refuses the file or the delegate."""
    if "error" in record:
        return bool(record["expected"])
    if "result" not in record:
        return False
    return (
        bool(record["result"]["equal"])
        or bool(record["plain_result"]["equal"])
        or (all(record["parts"]) and len(record["parts"]) == record["plugin"]["parts"])
    )


def state(record: Record) -> str:
    """Return the result in words."""
    if "error" in record:
        return f"refused: {' '.join(record['error'].split())[:100]}"
    if "result" not in record:
        return f"ended at the stage {record['stage']}"
    found = record["plugin"]
    return f"{found['taken']} of {found['operators']} operators, {_result(record)}"


def page(records: Mapping[Public, Record], missing: Sequence[Public], seed: int) -> str:
    """Return the page of the records (Markdown)."""
    parts = [HEAD.format(seed=seed), summary(records, missing), ""]
    for family in dict.fromkeys(item.family for item in records):
        here = {item: r for item, r in records.items() if item.family == family and "result" in r}
        if here:
            parts += [f"## {family}", "", *table(here, TITLES, _cells), ""]
    parts += [*_refused(records), *_left(records)]
    return "\n".join(parts).rstrip() + "\n"


def summary(records: Mapping[Public, Record], missing: Sequence[Public]) -> str:
    """Return the counts in words."""
    ran = [record for record in records.values() if "result" in record]
    equal = [record for record in ran if record["result"]["equal"]]
    whole = [record for record in ran if record["plugin"]["taken"] == record["plugin"]["operators"]]
    same = [record for record in ran if not record["result"]["equal"] and record["plain_result"]["equal"]]
    apart = [record for record in ran if record not in equal and record not in same]
    parts = [record for record in apart if record["parts"] and all(record["parts"])]
    refused = [record for record in records.values() if "error" in record]
    alone = [record for record in refused if record["expected"]]
    text = (
        f"Of {len(records)} files, {len(ran)} run. The NPU takes the whole graph of {len(whole)}. "
        f"{len(equal)} results are equal to `rkcosim run` byte for byte, {len(same)} more with the "
        f"kernels and the optimisation of `rkcosim run`. Of the other {len(apart)}, {len(parts)} have "
        "parts that are each equal to `rkcosim run`, and "
        f"{sum(not r['plugin']['parts'] for r in apart)} have no part for the NPU. {len(alone)} files "
        "are refused by the runtime itself, with and without the plug-in; "
        f"{len(refused) - len(alone)} fail for another reason."
    )
    versions = sorted({record["version"] for record in records.values() if "version" in record})
    if versions:
        text += f" Measured with rkcosim {versions[0]}"
        text += f" and {len(versions) - 1} other states of the sources." if len(versions) > 1 else "."
    if missing:
        text += f" {len(missing)} files of the list were not measured."
    return text


def _cells(item: Public, record: Record) -> list[str]:
    found = record["plugin"]
    cycles = f"~{record['formula_cycles']:,}"
    if found["cycles"] is not None:
        cycles = f"{found['cycles']:,}"
    once = "*" if found["calls"] == 1 else ""
    return [
        item.name.replace("_", "\\_"),
        _taken(found) + (" (option `dynamic`)" if record.get("dynamic") else ""),
        str(found["parts"]),
        _result(record),
        cycles if found["parts"] else "-",
        f"{found['start']:.1f} s",
        _time(found["call"]),
        _time(found["beside"]) + once.replace("*", "\\*"),
    ]


def _taken(found: Mapping[str, Any]) -> str:
    return "all" if found["taken"] == found["operators"] else f"{found['taken']} of {found['operators']}"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:,.3g} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _result(record: Record) -> str:
    if record["result"]["equal"]:
        return "equal"
    text = _difference(record["result"])
    if record["plain_result"]["equal"]:
        return f"equal with the same kernels and optimisation; else {text}"
    if not record["plugin"]["parts"]:
        return f"nothing on the NPU; {text}"
    wrong = record["parts"].count(False)
    return f"{f'**{wrong} parts differ**' if wrong else 'each part equal'}; {text}"


def _difference(result: dict[str, Any]) -> str:
    rows = [row for row in result["outputs"] if not row["equal"]]
    if any("shapes" in row for row in rows):
        return "other shapes"
    elements = sum(row["elements"] for row in result["outputs"])
    count = f"in {sum(row['differing'] for row in rows):,} of {elements:,} elements"
    if all(row.get("whole") for row in rows):
        return f"other numbers {count}"
    if all(row["steps"] for row in rows):
        steps = max(row["steps"] for row in rows)
        return f"at most {steps:.0f} {'step' if round(steps) == 1 else 'steps'} {count}"
    sizes = [row["relative"] for row in rows]
    return f"at most {max(size or float('inf') for size in sizes):.2%} {count}"


def _refused(records: Mapping[Public, Record]) -> Iterator[str]:
    rows = [(item, record) for item, record in records.items() if "result" not in record]
    if not rows:
        return
    yield from ("## Refused", "", "| file | by | message |", "| --- | --- | --- |")
    for item, record in rows:
        text = record.get("error", state(record))
        by = "the runtime, also without the plug-in" if record.get("expected") else "the plug-in"
        yield f"| {item.name.replace('_', chr(92) + '_')} | {by} | {plain(text)} |"
    yield ""


def _left(records: Mapping[Public, Record]) -> Iterator[str]:
    rows = [(item, record["plugin"]["left"]) for item, record in records.items() if "plugin" in record]
    rows = [(item, left) for item, left in rows if left]
    if not rows:
        return
    yield from (
        "## Operators that remain with the runtime",
        "",
        "Of each file the most frequent reasons; the option `json` writes all. An operator whose input is on "
        "the host is one that the NPU would compute alone, between two operators of the runtime.",
        "",
        "| file | operators and reasons |",
        "| --- | --- |",
    )
    for item, left in rows:
        counts = Counter((one["kind"], _reason(one["reason"])) for one in left)
        said = [f"{kind}{f' x {n}' if n > 1 else ''}: {why}" for (kind, why), n in counts.most_common(6)]
        more = len(counts) - len(said)
        text = "; ".join(said) + (f"; {more} more" if more > 0 else "")
        yield f"| {item.name.replace('_', chr(92) + '_')} | {plain(text, 700)} |"
    yield ""


def _reason(text: str) -> str:
    """Return a reason without the names of its operands, which differ from operator to operator."""
    words = " ".join("..." if word.strip(":,;").startswith("'") else word for word in text.split())
    return words if len(words) <= 80 else words[:77] + "..."
