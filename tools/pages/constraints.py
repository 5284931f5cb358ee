"""The page of the compiler's constraints, docs/constraints.md."""

from __future__ import annotations

from importlib import import_module

from rkcosim.compiler.constraints import every_constraint
from rkcosim.measure.perf.page import table

_HEAD = """# What the NPU requires of an operator

Written by `python -m tools.pages` from `sw/compiler/constraints`. An operator that does not meet one of these
requirements runs on the host ([where operators run](models.md#where-operators-run)). `run`, `compile`, `info`
and `estimate` print what of the operator does not meet it, with its values, and then the requirement:

```text
Resize ('up'): mode cubic (required: the mode is nearest or linear (bilinear))
```

Operators have ONNX's names; those of TFLite and TNN are the same ones here. "All" are requirements of every
operator. The limits come from the registers ([hardware reference](reference/index.md)) or from the compiler.
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for module, found in every_constraint().items():
        home = import_module(f"rkcosim.compiler.constraints.{module}")
        title = (home.__doc__ or "").strip().splitlines()[0].rstrip(".")
        title = title.partition(" (`")[0]
        rows = [(", ".join(item.operators) or "all", item.text, f"`{item.name}`") for item in found]
        parts.append(f"## {title}\n\n" + "\n".join(table(("operators", "requirement", "name"), rows)) + "\n")
    return "\n".join(parts)
