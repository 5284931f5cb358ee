"""The table of operations on the page of NNAPI's operations, docs/nnapi_operations.md."""

from __future__ import annotations

from rkcosim.apis.nnapi.emit import EMITTERS
from rkcosim.apis.nnapi.operations import LETTERS, TABLE, OperationType, words
from rkcosim.apis.nnapi.runner import CONTROL, MODULES
from rkcosim.apis.nnapi.values import HOST
from rkcosim.measure.perf.page import table as lines_of

NAMES = {
    "f": "float32",
    "h": "float16",
    "i": "int32",
    "u": "quant8",
    "s": "quant8 signed",
    "b": "bool",
    "y": "quant8 symmetric",
    "p": "quant8 per channel",
    "w": "quant16 symmetric",
    "v": "quant16",
}
"""Types of tensors on the page, by the letters of `rkcosim.apis.nnapi.operations`."""


def place_of(kind: OperationType) -> str:
    """Return where an operation runs."""
    assert MODULES and NAMES.keys() == LETTERS.keys()
    if kind.name in EMITTERS:
        return "NPU, host"
    if kind.name in CONTROL:
        return "host (its subgraphs as usual)"
    return "host" if kind in HOST else "refused"


def table() -> str:
    """Return the table as Markdown: code, types of the data, number of inputs and results, place."""
    rows = []
    for kind in OperationType:
        letters, forms, _ = TABLE[kind.name]
        sizes, more = set[int](), ""
        for form in forms:
            parts = form.split("|")
            for count in range(1, len(parts) + 1):
                found = words(" ".join(parts[:count]))
                sizes.add(len(found))
                more = " or more" if any(word.repeats for word in found) else more
        data = ", ".join(NAMES[letter] for letter in letters)
        numbers = ", ".join(map(str, sorted(sizes))) + more
        rows.append((kind.value, kind.name, data, numbers, place_of(kind)))
    return "\n".join(lines_of(("code", "operation", "data", "inputs", "runs on"), rows))
