"""Reference tensors, and the first task whose result is not theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.base.files import open_regular
from rkcosim.debug.deviations.patterns import Pattern
from rkcosim.debug.golden.stepped import SteppedKick
from rkcosim.debug.opening import Debugged
from rkcosim.debug.tensors import MemoryImage, TensorError, TensorPlace
from rkcosim.regcmd.lint.rule import Check
from rkcosim.regcmd.lint.traffic import accesses
from rkcosim.regcmd.machine import starts_of
from rkcosim.verify.streams.contents import Region


@dataclass(frozen=True)
class Tolerance:
    """How far an element may be from its reference: `absolute` plus `relative` times the reference.

    Absolute numbers are in units of the element, so of codes for quantised tensors.
    """

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.absolute < np.inf and 0 <= self.relative < np.inf):
            raise ValueError(
                f"a tolerance is a number of at least 0, not {self.absolute} and {self.relative}"
            )

    def wrong(self, got: NDArray[Any], want: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which elements are too far from their reference."""
        if not self.absolute and not self.relative:
            differs: NDArray[np.bool_] = got != want
            if got.dtype.kind == "f":
                differs &= ~(np.isnan(got) & np.isnan(want))
            return differs
        with np.errstate(invalid="ignore", over="ignore"):
            ours, theirs = got.astype(np.float64), want.astype(np.float64)
            near = np.abs(ours - theirs) <= self.absolute + self.relative * np.abs(theirs)
        near |= (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        return ~near


@dataclass(frozen=True)
class Reference:
    """A tensor and what its elements must be.

    Members
    -------
    place, want : the tensor, and its right elements.
    writers : for bytes that are compared as they are after the run: number of the task that writes each last
        (`task_number`), -1 for none; None for a tensor that its tasks make.
    """

    place: TensorPlace
    want: NDArray[Any]
    writers: NDArray[np.int64] | None = None


def task_number(job: int, task: int) -> int:
    """Return one number for a task of a job, in the order of the run."""
    return job << 16 | task


@dataclass
class Deviation:
    """The result of a task that is not the reference's.

    Members
    -------
    job, task : the task.
    reference : the tensor with its right elements.
    got : its elements after the task.
    compared, wrong : which elements the task wrote (or must have written), and which are wrong.
    patterns : how they differ.
    before : the elements before the task.
    """

    job: int
    task: int
    reference: Reference
    got: NDArray[Any]
    compared: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    patterns: list[Pattern] = field(default_factory=list)
    before: NDArray[Any] | None = None

    @property
    def first(self) -> tuple[int, int, int]:
        """Channel, row and column of the first wrong element."""
        channel, row, column = np.argwhere(self.wrong)[0]
        return int(channel), int(row), int(column)

    def __str__(self) -> str:
        channel, row, column = at = self.first
        return (
            f"{self.reference.place.name}: {int(self.wrong.sum())} of {int(self.compared.sum())} elements "
            f"differ, first channel {channel}, row {row}, column {column} "
            f"(0x{int(self.reference.place.addresses[at]):08X}): {self.got[at]}, reference "
            f"{self.reference.want[at]}"
        )


def read_references(path: Path, work: Debugged) -> list[Reference]:
    """Read the arrays of an .npz file as references of tensors.

    Names are those of tensors (of the model's file, or `out3` for the output of task 3), of regions of the
    stream, or addresses as 0x0010A000 for bytes (uint8).

    Raises
    ------
    TensorError
        for a name that nothing has, or an array that does not fit; the message has both.
    InputError, OSError
        if the file cannot be read.
    """
    from rkcosim.measure.models.input_files import load_archive

    with open_regular(path) as file:
        arrays = load_archive(file, str(path))
    return references(arrays, work)


def references(arrays: Mapping[str, NDArray[Any]], work: Debugged) -> list[Reference]:
    """Return arrays by name as references; see `read_references`."""
    if not arrays:
        raise TensorError("the reference has no array")
    found = []
    for name, array in arrays.items():
        place = work.tensors.get(name) or _bytes_of(name, np.asarray(array), work)
        if place is None:
            from difflib import get_close_matches

            near = get_close_matches(name, [*work.tensors, *work.regions], n=3, cutoff=0.4)
            hint = f"; there are {', '.join(near)}" if near else ""
            raise TensorError(f"{work.name} has no tensor or region {name!r}{hint}")
        if name in work.tensors:
            found.append(Reference(place, place.fitted(np.asarray(array))))
        else:
            want, writers = np.asarray(array).reshape(place.cube), _last_writers(place, work)
            found += _kept_outputs(place, want, writers, work)
            found.append(Reference(place, want, writers))
    return found


def _last_writers(place: TensorPlace, work: Debugged) -> NDArray[np.int64]:
    """Return the number of the task that writes each byte last according to the registers, -1 for none."""
    writers = np.full(place.cube, -1, np.int64)
    for number, job in enumerate(work.jobs):
        for index, starts in starts_of(job.program):
            for start in starts:
                for access in accesses(Check(job.program, start)):
                    if access.write:
                        writers[place.inside(access.pieces)] = task_number(number, max(index, 0))
    return writers


def _kept_outputs(
    given: TensorPlace, want: NDArray[Any], writers: NDArray[np.int64], work: Debugged
) -> list[Reference]:
    """Return the results of tasks that lie in some bytes to the end of the run, with their right elements."""
    first, end = given.span
    found = []
    for place in work.tensors.values():
        if place.job is None or place.task is None or place.span[0] < first or place.span[1] > end:
            continue
        last = writers.reshape(-1)[place.addresses - first]
        if (last == task_number(place.job, place.task)).all():
            found.append(Reference(place, place.read(MemoryImage(first, want.reshape(-1)))))
    return found


def outputs_after_tasks(work: Debugged) -> dict[str, NDArray[Any]]:
    """Run everything, and return the tensors as they are when their tasks have ended, by name."""
    found = {}
    for number, job in enumerate(work.jobs):
        kick = SteppedKick(job.stream)
        while not kick.end:
            done = kick.step(whole=True)
            for name, place in work.tensors.items():
                if (place.job, place.task) == (number, done.task) and kick.end not in ("hang", "error"):
                    found[name] = place.read(kick.memory)
    return found


def _bytes_of(name: str, array: NDArray[Any], work: Debugged) -> TensorPlace | None:
    """Return bytes of a region, or from an address on, as a tensor of one channel and row."""
    region: Region | None = work.regions.get(name)
    if region is not None:
        address = region.address
    else:
        try:
            address = int(name, 16) if name.startswith("0x") else -1
        except ValueError:
            return None
    if address < 0:
        return None
    if array.dtype != np.uint8 or (region is not None and array.size != region.data.size):
        size = "" if region is None else f", {region.data.size} of them"
        raise TensorError(
            f"{name}: bytes of a region are uint8{size}, not {array.dtype} of shape {array.shape}"
        )
    addresses = address + np.arange(array.size, dtype=np.int64).reshape(1, 1, -1)
    return TensorPlace(name, np.dtype(np.uint8), addresses)


def deviation(
    memory: Any,
    known: Sequence[Reference],
    job: int,
    task: int,
    ranges: Sequence[tuple[int, int]],
    tolerance: Tolerance,
) -> Deviation | None:
    """Return the deviation of the memory after a task from the references, None if there is none.

    Compared are the elements that the task wrote, all elements of tensors that are complete after it, and the
    bytes of regions that no later task writes.

    Parameters
    ----------
    ranges : (first byte, number of bytes) of what the task wrote.
    """
    for reference in known:
        place, number = reference.place, task_number(job, task)
        if reference.writers is not None:
            compared = place.inside(ranges) & (reference.writers == number)
        elif (place.job, place.task) == (job, task):
            compared = np.ones(place.addresses.shape, bool)
        elif (job, task) in place.makers:
            compared = place.inside(ranges)
        else:
            continue
        if not compared.any():
            continue
        got = place.read(memory)
        wrong = tolerance.wrong(got, reference.want) & compared
        if wrong.any():
            return Deviation(job, task, reference, got, compared, wrong)
    return None
