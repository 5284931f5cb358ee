"""Explanation of lines of a driver, runtime, compiler or run, of codes, registers and words.

Interrupt events and registers come from the register description, job flags from the kernel
interface, codes from the header and the system's table of errors; each module names the source of its lines.
"""

from __future__ import annotations

import re

from rkcosim.rknn_api.explain import codes, compiler, driver, runtime, simulator, words
from rkcosim.rknn_api.explain.codes import MEANINGS
from rkcosim.rknn_api.explain.explanation import Explanation, Rules, events

__all__ = ["MEANINGS", "RULES", "Explanation", "events", "explain"]

RULES: Rules = {
    **simulator.RULES,
    **driver.RULES,
    **runtime.RULES,
    **compiler.RULES,
    **words.RULES,
    **codes.RULES,
}
"""All patterns in the order in which they are tried on a line, and functions that explain a match."""


def explain(text: str) -> list[Explanation]:
    """Explain every line of a text that is about an NPU.

    Returns
    -------
    One explanation for each recognised piece of text, in order; empty if nothing was recognised.
    """
    found = []
    for line in text.splitlines():
        line = line.strip()
        for pattern, build in RULES.items() if line else ():
            match = re.search(pattern, line)
            made = build(match) if match else None
            if made is not None:
                found.append(made)
                break
    return found
