"""What is run to cover the RTL: groups of random tasks, models, and tests that use whole cores."""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.verify.conformance.groups import GROUPS

SEED = 2029
"""Seed of the random tasks."""

TASKS = 14
"""Tasks of a group of conformance with share 1."""

CELL_GROUPS = frozenset(
    name for name in GROUPS if name.startswith(("conv ", "depthwise ")) or name in ("data reuse", "matrix")
)
"""Groups that count the array cell."""


AGAIN = {
    "registers": 30,
    "ew floats, memory": 20,
    "ew floats, registers": 20,
    "integers to integers": 20,
    "argb int8": 20,
    "argb 16 bit": 20,
    "compressed weights": 14,
    "pool fp16": 14,
    "pool int16": 14,
    "pool int8": 14,
    "pool index": 14,
}
"""Groups that run once more with the next seed, and the number of tasks."""

CASES = {"field limits": (4, 5, 6, 7, 8, 9, 11), "hangs": (4, 9)}
"""Further cases of groups whose kinds come in turn; of field limits not 10, a chain of 4095 tasks."""


@dataclass(frozen=True)
class Piece:
    """A run in a process of its own.

    Members
    -------
    name : its name in the record and on the page.
    words : arguments of `rkcosim`, or with "pytest" in front those of pytest.
    cell : simulate and count the array cell as RTL, which takes several times as long; else it is the one in
        C++, and only the rest of the core counts.
    """

    name: str
    words: tuple[str, ...]
    cell: bool = False


def _conformance(group: str, seed: int = SEED, tasks: int = 0) -> Piece:
    tasks = tasks or max(4, round(TASKS * GROUPS[group].share))
    words = ("conformance", "--only", group, "--seed", str(seed), "--tasks", str(tasks), "--no-shrink")
    name = f"conformance: {group}" + (f", seed {seed}" if seed != SEED else "")
    return Piece(name, words, cell=group in CELL_GROUPS)


def _case(group: str, case: int) -> Piece:
    words = ("conformance", "--only", group, "--seed", str(SEED), "--case", str(case), "--no-shrink")
    return Piece(f"conformance: {group}, case {case}", words)


def _tests(name: str, only: str = "", cell: bool = False) -> Piece:
    choice = ("-k", only) if only else ()
    return Piece(
        f"tests: {name}" + (f", {only}" if only else ""), ("pytest", f"tests/system/{name}", *choice), cell
    )


_DIGITS = ("--input", "examples/digits/held_back.npz", "--check")

PIECES: tuple[Piece, ...] = (
    Piece("model: digits", ("run", "examples/digits/digits_int8.onnx", *_DIGITS, "--limit", "1"), cell=True),
    Piece(
        "model: digits, three cores",
        ("run", "examples/digits/digits_int8.onnx", *_DIGITS, "--limit", "1", "--cores", "3"),
        cell=True,
    ),
    *(_conformance(group) for group in GROUPS),
    *(_case(group, case) for group, cases in CASES.items() for case in cases),
    *(_conformance(group, SEED + 1, tasks) for group, tasks in AGAIN.items()),
    _tests("test_control.py", "not 4095"),
    *(_tests("test_errors.py", only) for only in ("early or unknown", "outside", "response or cannot")),
    _tests("test_co_work.py", "not however"),  # (that test runs the others' jobs in several ways)
    _tests("test_cores.py"),
    _tests("test_counters.py"),
    *(_tests("test_full_range.py", kind, cell=True) for kind in ("int", "fp16", "bf16", "tf32", "ends")),
    *(_tests("test_full_range.py", which) for which in ("slow", "fast", "wild", "edges")),
)
"""All runs. The order is that of the record."""
