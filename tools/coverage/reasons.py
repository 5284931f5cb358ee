"""Why lines and signals are not covered: reasons.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tools.coverage.results import Coverage, Toggles, file_of

FILE = Path(__file__).with_name("reasons.toml")


@dataclass(frozen=True)
class LineReason:
    """Why the lines of a file with this text did not run."""

    file: str
    text: str
    reason: str


@dataclass(frozen=True)
class SignalReason:
    """Why bits of signals did not move.

    Members
    -------
    file : pattern of the files that declare them.
    names : patterns of names in the Verilog, "module.signal" without "core_" in front.
    bits : "low:high" of the bits that the reason is about; empty: all.
    """

    file: str
    names: tuple[str, ...]
    reason: str
    bits: str = ""

    def explains(self, toggles: Toggles) -> set[int]:
        """Return the missing bits that this reason explains."""
        if not fnmatchcase(file_of(toggles.signal), self.file):
            return set()
        name = name_of(toggles)
        if not any(fnmatchcase(name, pattern) for pattern in self.names):
            return set()
        low, _, high = self.bits.partition(":")
        wanted = range(int(low), int(high or low) + 1) if self.bits else None
        return {bit for bit in toggles.missing if wanted is None or bit in wanted}


@dataclass(frozen=True)
class Reasons:
    """All reasons."""

    lines: tuple[LineReason, ...]
    signals: tuple[SignalReason, ...]

    def line(self, file: str, text: str) -> str:
        """Return the reason for a line, empty if there is none."""
        return next((r.reason for r in self.lines if (r.file, r.text) == (file, text)), "")

    def unused(self, found: Coverage, root: Path) -> list[str]:
        """Return reasons that are about nothing, as sentences."""
        open_lines = {(line.file, line.text(root)) for line in found.uncovered()}
        out = [
            f"reasons.toml: {reason.file} has no uncovered line {reason.text!r}"
            for reason in self.lines
            if (reason.file, reason.text) not in open_lines
        ]
        open_signals = [toggles for toggles in found.signals if toggles.missing]
        return out + [
            f"reasons.toml: no signal of {reason.file} called {' or '.join(reason.names)} has uncovered bits"
            for reason in self.signals
            if not any(reason.explains(toggles) for toggles in open_signals)
        ]

    def signal(self, toggles: Toggles) -> tuple[list[str], set[int]]:
        """Return the reasons for the missing bits of a signal, and the bits without one."""
        left, texts = set(toggles.missing), []
        for reason in self.signals:
            explained = reason.explains(toggles) & left
            if explained:
                left -= explained
                texts.append(reason.reason)
        return texts, left


def name_of(toggles: Toggles) -> str:
    """Return "module.signal", without the first part that all modules have in common."""
    return f"{toggles.signal.module.removeprefix('core_')}.{toggles.signal.name}"


def read(path: Path = FILE) -> Reasons:
    """Read the reasons."""
    kept: dict[str, Iterable[dict[str, Any]]] = tomllib.loads(path.read_text(encoding="utf-8"))
    lines = tuple(LineReason(**entry) for entry in kept.get("line", ()))
    signals = tuple(
        SignalReason(**{**entry, "names": tuple(entry["names"])}) for entry in kept.get("signal", ())
    )
    return Reasons(lines, signals)
