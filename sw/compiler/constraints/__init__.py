"""Conditions under which the NPU computes an operator, and the reasons of operators on the host.

A constraint is a function whose docstring is the requirement.  The function returns what of an operator does
not meet it, with the values, and "" if it is met.  Both together are the reason in reports and errors; the
docstrings of all constraints are the page docs/constraints.md (`python -m tools.pages constraints`).

    @constraint("Conv", limit=CONV_PAD)
    def conv_padding(pads: tuple[int, ...]) -> str:
        \"\"\"The padding above and on the left is at most {limit}.\"\"\"
        return f"padding {pads}" if max(pads[:2]) > CONV_PAD else ""

    conv_padding("Conv 'stem'", window.pads)  # UnmetError: Conv 'stem': padding (16, 0, 0, 0) (required: ...)

Errors of damaged or contradictory files are no constraints; they are raised where the file is read.
"""

from __future__ import annotations

from importlib import import_module

from rkcosim.compiler.constraints.constraint import (
    CONSTRAINTS,
    Constraint,
    UnmetError,
    constraint,
    requirement,
)

MODULES = (
    "placement",
    "tensors",
    "convolutions",
    "elements",
    "pools",
    "movements",
    "normalisations",
    "functions",
)
"""Modules of this package with constraints, in the order of the page."""


def every_constraint() -> dict[str, list[Constraint[...]]]:
    """Return all constraints by module, in the order in which they are written."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
    found: dict[str, list[Constraint[...]]] = {name: [] for name in MODULES}
    for item in CONSTRAINTS.values():
        found[item.rule.__module__.rpartition(".")[2]].append(item)
    return found


__all__ = ["CONSTRAINTS", "Constraint", "UnmetError", "constraint", "every_constraint", "requirement"]
