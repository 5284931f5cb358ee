"""The table of operations on the page of NNAPI's operations, between two comments of the page.

`python -m rkcosim.apis.nnapi.table docs/nnapi_operations.md` writes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rkcosim.apis.nnapi.emit import EMITTERS
from rkcosim.apis.nnapi.operations import LETTERS, TABLE, OperationType, words
from rkcosim.apis.nnapi.runner import CONTROL, MODULES
from rkcosim.apis.nnapi.values import HOST

BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"

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
    rows = ["| code | operation | data | inputs | runs on |", "| --- | --- | --- | --- | --- |"]
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
        rows.append(f"| {kind.value} | {kind.name} | {data} | {numbers} | {place_of(kind)} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """Return a page with the table of today.

    Raises
    ------
    ValueError
        if the page has not both comments.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    """Write the table into a page."""
    parser = argparse.ArgumentParser(prog="python -m rkcosim.apis.nnapi.table", description=__doc__)
    parser.add_argument("page", type=Path, help="Markdown page with the comments around the table")
    page: Path = parser.parse_args().page
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
