"""What is run to cover the RTL: groups of random tasks, models, and tests that use whole cores."""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.verify.conformance.groups import GROUPS

SEED = 2029
"""Seed of the random tasks."""

TASKS = 40
"""Tasks of a group of conformance with share 1."""


@dataclass(frozen=True)
class Piece:
    """A run in a process of its own.

    Members
    -------
    name : its name in the record and on the page.
    words : arguments of `rkcosim`, or with "pytest" in front those of pytest.
    """

    name: str
    words: tuple[str, ...]


def _conformance(group: str) -> Piece:
    tasks = str(max(4, round(TASKS * GROUPS[group].share)))
    words = ("conformance", "--only", group, "--seed", str(SEED), "--tasks", tasks, "--no-shrink")
    return Piece(f"conformance: {group}", words)


def _tests(*names: str) -> Piece:
    return Piece(f"tests: {names[0]}", ("pytest", *(f"tests/system/{name}" for name in names)))


_DIGITS = ("--input", "examples/digits/held_back.npz", "--check")

PIECES: tuple[Piece, ...] = (
    Piece("model: digits", ("run", "examples/digits/digits_int8.onnx", *_DIGITS, "--limit", "1")),
    Piece(
        "model: digits, three cores",
        ("run", "examples/digits/digits_int8.onnx", *_DIGITS, "--limit", "1", "--cores", "3"),
    ),
    *(_conformance(group) for group in GROUPS),
    _tests("test_control.py"),
    _tests("test_errors.py"),
    _tests("test_co_work.py"),
    _tests("test_cores.py"),
    _tests("test_counters.py"),
)
"""All runs. The order is that of the record."""
