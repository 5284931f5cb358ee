"""The page of proofs, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.proofs.plan import Proof

INTRODUCTION = Path(__file__).with_name("introduction.md")


def page(proofs: Sequence[Proof], known: Mapping[str, Any]) -> str:
    """Return the page for proofs that hold.

    Parameters
    ----------
    proofs : the proofs, in their order.
    known : what was found, by the name of the proof.
    """
    claims = [claim for proof in proofs for claim in known[proof.name]["claims"]]
    always = sum(claim["cycles"] is None for claim in claims)
    faults = sum(len(proof.faults) for proof in proofs)
    names = ",".join(proof.block.partition(": ")[2] for proof in proofs)
    blocks = {name.strip() for name in names.split(",")}
    summary = (
        f"{len(proofs)} proofs of {len(blocks)} blocks and functions: {len(claims)} claims, {always} of them "
        f"in all cycles, {len(claims) - always} in a bounded number. All {faults} planted faults are found."
    )
    lines = [
        INTRODUCTION.read_text(),
        summary,
        "",
        "| proof | block | what holds | holds | reduced | registers, gates | seconds |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for proof in proofs:
        found = known[proof.name]
        text = str(found["text"]).strip().splitlines()[0]
        size = f"{found['registers']}, {found['gates']:,}" if found["gates"] else "constant"
        seconds = "below 1" if found["seconds"] < 1 else f"{found['seconds']:.0f}"
        row = (
            f"`{proof.name}`",
            f"`{proof.block}`",
            text,
            _holds(found["claims"]),
            proof.reduced,
            size,
            seconds,
        )
        lines.append(f"| {' | '.join(row)} |")
    lines += [
        "",
        "## Claims",
        "",
        "| proof | claim | holds |",
        "| --- | --- | --- |",
    ]
    for proof in proofs:
        for claim in known[proof.name]["claims"]:
            lines.append(f"| `{proof.name}` | {claim['name']} | {_cycles(claim)} |")
    lines += [
        "",
        "## Faults",
        "",
        "| proof | change | what is wrong then | claims that fail |",
        "| --- | --- | --- | --- |",
    ]
    for proof in proofs:
        for fault, result in zip(proof.faults, known[proof.name]["faults"], strict=True):
            change = f"becomes `{_code(fault.new)}`" if fault.new else "is left out"
            failed = _shortened(result["text"])
            lines.append(f"| `{proof.name}` | `{_code(fault.old)}` {change} | {fault.meaning} | {failed} |")
    return "\n".join(lines) + "\n"


def _cycles(claim: Mapping[str, Any]) -> str:
    return "in all cycles" if claim["cycles"] is None else f"in the first {claim['cycles']} cycles"


def _holds(claims: Sequence[Mapping[str, Any]]) -> str:
    bounded = [claim for claim in claims if claim["cycles"] is not None]
    if not bounded:
        return "in all cycles"
    if len(bounded) == len(claims):
        return _cycles(bounded[0])
    return f"in all cycles; {len(bounded)} of {len(claims)} claims {_cycles(bounded[0])}"


def _code(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _shortened(text: str) -> str:
    claims, _, rest = text.rpartition(" (")
    names = claims.split("; ")
    more = f", and {len(names) - 3} others" if len(names) > 3 else ""
    return f"{'; '.join(names[:3])}{more} ({rest}"
