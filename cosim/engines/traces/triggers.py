"""Verilator's activity flags replaced by the triggers that set them.

Verilator's code for waveforms sets a flag after each piece of work, in every cycle, whether or not a waveform
is written. All of them are in one function, in blocks that depend on the triggers of the cycle. The default
engine's harness sets these triggers itself (verilator_model.h), so they tell which signals may have changed,
and the flags can go: one library then serves runs with and without waveforms.
"""

from __future__ import annotations

import re
from pathlib import Path

_SET = re.compile(r"^ +vlSelfRef\.__Vm_traceActivity\[(\d+)U\] = 1U;$")
_BEGIN = re.compile(r"^    if \(\((0x[0-9a-f]+|\d+)ULL & vlSelfRef\.__VnbaTriggered\[0U\]\)\) \{$")
_END = "    }"


def take_flags(generated: Path) -> dict[int, int] | None:
    """Remove the statements that set activity flags; return the triggers of each flag, as bits.

    None, and nothing is changed, if a flag is set elsewhere than in a block of `_BEGIN`.
    """
    masks: dict[int, int] = {}
    changed: dict[Path, str] = {}
    for path in sorted(generated.glob("Vcore*.cpp")):
        if path.stem.endswith("__Slow") or path.name.startswith("Vcore__Trace"):
            continue  # code that runs once sets all flags
        text = path.read_text()
        if "__Vm_traceActivity" not in text:
            continue
        kept: list[str] = []
        mask = 0
        for line in text.split("\n"):
            if begin := _BEGIN.match(line):
                mask = int(begin[1], 0)
            elif line == _END:
                mask = 0
            if (found := _SET.match(line)) and mask:
                masks[int(found[1])] = masks.get(int(found[1]), 0) | mask
            elif "__Vm_traceActivity" in line:
                return None
            else:
                kept.append(line)
        changed[path] = "\n".join(kept)
    if any(mask >> 63 for mask in masks.values()):
        return None  # bit 63 has another meaning in the table
    for path, text in changed.items():
        path.write_text(text)
    return masks
