"""Byte-for-byte comparison of two memory images, and the verdict in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task import TaskReport


class Image(Protocol):
    """Anything with bytes at addresses: an engine's memory or the golden model's."""

    def view(self, iova: int, size: int, /) -> NDArray[np.uint8]:
        """The bytes of one mapped range, uint8 [size]."""
        ...


@dataclass(frozen=True)
class Difference:
    """Result of a comparison: the first difference and how many bytes differ."""

    address: int
    rtl: int
    golden: int
    count: int


def compare_images(rtl: Image, golden: Image, ranges: Iterable[tuple[int, int]]) -> Difference | None:
    """Compare two images over (address, size) ranges.

    Returns
    -------
    None when equal, else the first difference in address order with the count of differing bytes.
    """
    first: tuple[int, int, int] | None = None
    count = 0
    for address, size in sorted(ranges):
        left, right = rtl.view(address, size), golden.view(address, size)
        if np.array_equal(left, right):
            continue
        where = np.flatnonzero(left != right)
        count += where.size
        if first is None:
            at = int(where[0])
            first = (address + at, int(left[at]), int(right[at]))
    return None if first is None else Difference(*first, count)


@dataclass(frozen=True)
class TensorMap:
    """Where a tensor lies, to say a coordinate for an address (NC1HWC2, H3.2).

    Parameters
    ----------
    name
        of the tensor.
    address
        first byte.
    shape
        (channels, rows, columns).
    line, surface
        pitches in atoms of 16 bytes.
    element
        bytes of an element.
    """

    name: str
    address: int
    shape: tuple[int, int, int]
    line: int
    surface: int
    element: int = 1

    def find(self, address: int) -> str | None:
        """Return ``name[channel, row, column]`` of an address, or None when it is not in the tensor."""
        atom, byte = divmod(address - self.address, 16)
        if address < self.address:
            return None
        block, rest = divmod(atom, self.surface)
        row, column = divmod(rest, self.line)
        per_atom = 16 // self.element
        channel = block * per_atom + byte // self.element
        if (
            channel >= -(-self.shape[0] // per_atom) * per_atom
            or row >= self.shape[1]
            or column >= self.shape[2]
        ):
            return None
        return f"{self.name}[{channel}, {row}, {column}]"


@dataclass(frozen=True)
class Verdict:
    """Whether RTL and golden model agree, and if not, where they part."""

    match: bool
    ranges: Sequence[tuple[int, int]]
    difference: Difference | None = None
    task: int | None = None
    """Task (of the golden run) that wrote the differing address last, None when none did."""
    tensor: str | None = None
    registers: dict[str, dict[str, int]] = field(default_factory=dict)
    """Block -> register -> value in force in that task."""
    notes: tuple[str, ...] = ()
    """Anything else that went wrong: time-outs, errors of one side."""

    @property
    def bytes_compared(self) -> int:
        """Size of all compared ranges."""
        return sum(size for _, size in self.ranges)

    def text(self) -> str:
        """Several lines for people."""
        if self.match:
            return f"match: {self.bytes_compared} bytes in {len(self.ranges)} ranges"
        lines = [f"MISMATCH{': ' if self.notes else ''}{'; '.join(self.notes)}"]
        if self.difference:
            d = self.difference
            place = f" ({self.tensor})" if self.tensor else ""
            writer = (
                "written by no task of the golden run"
                if self.task is None
                else f"written by task {self.task}"
            )
            lines.append(
                f"first difference at {d.address:#010x}{place}: rtl {d.rtl:#04x}, golden {d.golden:#04x}; "
                f"{d.count} bytes differ; {writer}"
            )
        for block, values in self.registers.items():
            lines.append(
                f"  {block}: " + " ".join(f"{name}={value:#x}" for name, value in values.items() if value)
            )
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """Plain values for a JSON report."""
        out: dict[str, object] = {"match": self.match, "bytes_compared": self.bytes_compared}
        if self.difference:
            out["first_difference"] = {
                "address": self.difference.address,
                "rtl": self.difference.rtl,
                "golden": self.difference.golden,
                "bytes": self.difference.count,
                "task": self.task,
                "tensor": self.tensor,
            }
        if self.notes:
            out["notes"] = list(self.notes)
        return out


def judge(
    rtl: Image,
    golden: Image,
    ranges: Sequence[tuple[int, int]],
    reports: Sequence[TaskReport],
    tensors: Iterable[TensorMap] = (),
    notes: Sequence[str] = (),
) -> Verdict:
    """Compare two images and name task, tensor coordinate and registers of the first difference.

    Parameters
    ----------
    rtl, golden
        the images.
    ranges
        everything to compare; give all mapped memory, guard zones included.
    reports
        what the golden run's tasks did.
    tensors
        where tensors lie.
    notes
        other failures; any of them makes the verdict a mismatch.
    """
    difference = compare_images(rtl, golden, ranges)
    if difference is None:
        return Verdict(not notes, tuple(ranges), notes=tuple(notes))
    address = difference.address
    writer = None
    for report in reports:
        for traffic in report.writes:
            if any(start <= address < start + size for start, size in traffic.ranges):
                writer = report
    tensor = next((name for t in tensors if (name := t.find(address))), None)
    return Verdict(
        False,
        tuple(ranges),
        difference,
        None if writer is None else writer.index,
        tensor,
        {} if writer is None else writer.registers,
        tuple(notes),
    )
