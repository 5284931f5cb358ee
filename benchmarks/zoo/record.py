"""The record of measured networks: one JSON line for each, so that a stopped run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rkcosim.waves.whole_file import whole_file

SCHEMA_VERSION = 1

RECORD = Path(__file__).with_name("record.jsonl")
"""The checked-in record, from which docs/results/zoo.md is written."""

FIRST = Path(__file__).with_name("first.jsonl")
"""Share and cycles of each network when it was first measured, or on 2026-11-28 if that was before."""


class RecordError(ValueError):
    """The record cannot be read; the message names file and line."""


@dataclass(frozen=True)
class Agreement:
    """Results compared with the runtime of the model's format, on the same random inputs.

    Members
    -------
    reference : the runtime and its version.
    elements, differing : elements of all layers that were compared, each layer fed with the reference's
        tensors, and how many of them differ; 0 if the reference keeps only outputs.
    beyond : layers that exceed their bound, of `layers` that were compared.
    worst : largest difference of an output of the whole model, in steps of a quantised output, or relative to
        the largest value of an output of floats; None if it is not finite.
    bound : largest relative difference that `rkcosim compare` accepts for an output of floats; None if the
        layers have bounds instead.
    same_classes : whether the class is the same; None for a network without classes.
    reasons : first sentences about what exceeds a bound.
    """

    reference: str
    elements: int
    differing: int
    layers: int
    beyond: int
    worst: float | None
    unit: str
    bound: float | None
    same_classes: bool | None
    reasons: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether every layer and output is within its bound, and the class is the same."""
        return not self.reasons


@dataclass(frozen=True)
class Measured:
    """A network that was run on the default engine with every tensor compared.

    Members
    -------
    name, model : of the entry, and the digest of its file.
    version : of this program; that of the run if the network was run.
    compared : version of loading and comparing, if it is another one.
    estimated : whether the network was not run: `cycles` are estimated, and `match` says nothing.
    form : int8, fp16 or both.
    match : whether RTL, task golden and graph golden are equal in every tensor, bit for bit.
    layers : number of layers on the NPU.
    first_difference : the first byte that differs; empty if there is none.
    macs : millions of multiply-accumulates on the NPU.
    mac_share, element_share : the NPU's share of all multiply-accumulates and of all elements of results.
    cycles, submits : of one inference.
    milliseconds : at 1 GHz with the memory's default timing, which is fitted to boards, with the driver's.
    host_seconds : processor time of loading, compiling, simulating and checking.
    load_seconds : processor time of reading and compiling alone; 0 in records of earlier versions.
    compare_seconds : processor time of `rkcosim compare`, with the reference's; 0 without a reference.
    agreement : comparison with the reference; None if there is no reference for the format.
    failed : the message, if the network could not be run; all figures are 0 then.
    """

    name: str
    model: str
    version: str
    form: str = ""
    match: bool = False
    layers: int = 0
    first_difference: str = ""
    macs: float = 0.0
    mac_share: float = 0.0
    element_share: float = 0.0
    cycles: int = 0
    submits: int = 0
    milliseconds: float = 0.0
    host_seconds: float = 0.0
    load_seconds: float = 0.0
    compare_seconds: float = 0.0
    agreement: Agreement | None = None
    failed: str = ""
    compared: str = ""
    estimated: bool = False


def read_record(path: Path) -> dict[str, Measured]:
    """Return the measured networks by name; none if the file does not exist.

    Raises
    ------
    RecordError
        For a line that is not one of this program.
    """
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = _entry(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RecordError(f"{path}, line {number}: not a line of the zoo's record: {error}") from error
        found[entry.name] = entry
    return found


def _entry(data: dict[str, Any]) -> Measured:
    if data.pop("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"schema_version must be {SCHEMA_VERSION}; measure again with another --record")
    known = {field.name for field in fields(Measured)}
    if unknown := set(data) - known:
        raise ValueError(f"unknown members {', '.join(sorted(unknown))}")
    compared = data.pop("agreement", None)
    if compared is not None:
        compared = Agreement(**{**compared, "reasons": tuple(compared["reasons"])})
    return Measured(**data, agreement=compared)


def write_record(path: Path, entries: Iterable[Measured]) -> None:
    """Replace the record atomically by these entries."""
    lines = [json.dumps({"schema_version": SCHEMA_VERSION, **asdict(entry)}) for entry in entries]
    with whole_file(path) as part:
        part.write_text("".join(f"{line}\n" for line in lines))
