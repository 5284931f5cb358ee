"""The registry of timing constants as lines and as the section `constants` of docs/performance.md."""

from __future__ import annotations

from cosim.perf.constants.kinds import Constant, effects
from cosim.perf.constants.registry import CONSTANTS

WORKLOADS = {"layers": "the 12 layers", "worst": "worst of them", "mobilenet_v1": "MobileNetV1"}


def lines() -> list[str]:
    """One line each."""
    found = [f"{'constant':28} {'value':>10} {'unit':22} kind       from"]
    for constant in CONSTANTS:
        value = f"{constant.value():g}"
        found.append(f"{constant.id:28} {value:>10} {constant.unit:22} {constant.kind:10} {_from(constant)}")
    return found


def _from(constant: Constant) -> str:
    if constant.source is not None:
        mark = f" {constant.source.mark}" if constant.source.mark.startswith("[") else ""
        return f"HARDWARE {constant.source.section}{mark}"
    return constant.place


def section() -> str:
    """Published, fitted and derived constants with their sources; assumed ones with their effects."""
    text = [
        "| constant | value | what | kind | source |",
        "| --- | --- | --- | --- | --- |",
    ]
    for constant in CONSTANTS:
        if constant.kind != "assumed":
            text.append(
                f"| {constant.id} | {constant.value():g} {constant.unit} | {constant.why} | "
                f"{constant.kind} | {_quoted(constant)} |"
            )
    text += [
        "",
        "Assumed, and what they do to the totals. Parameters were changed and the 12 layers and MobileNetV1 "
        "run again (`python -m cosim.perf.constants.effects`); of what is built in, it is said how far it "
        "can reach.",
        "",
        "| constant | value | what | effect |",
        "| --- | --- | --- | --- |",
    ]
    for constant in CONSTANTS:
        if constant.kind == "assumed":
            effect = "; ".join(_effects(constant)) or constant.bound
            text.append(
                f"| {constant.id} | {constant.value():g} {constant.unit} | {constant.why} | {effect} |"
            )
    tried = [f"{c.id} {effect}" for c in CONSTANTS if c.kind != "assumed" for effect in _effects(c)]
    if tried:
        text += ["", "For comparison, published ones changed: " + "; ".join(tried) + "."]
    return "\n".join(text)


def _quoted(constant: Constant) -> str:
    if constant.source is None:
        return constant.place
    source = constant.source
    mark = f" {source.mark}" if source.mark.startswith("[") else ""
    return f"HARDWARE {source.section}{mark}: {source.quote}".replace("|", "/")


def _effects(constant: Constant) -> list[str]:
    """Of each value tried: the changes by workload."""
    found = []
    for words, effect in effects().get(constant.id, {}).items():
        parts = [f"{WORKLOADS[name]} {value:+.1%}" for name, value in effect.items()]
        found.append(f"at {words}: " + ", ".join(parts))
    return found
