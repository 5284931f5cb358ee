"""Examples of AOSP's specifications on this implementation: where they ran, and whether they are right.

An example belongs to its first operation that is not one of the ADD operations that the generator puts around
others.  Tolerances are those of AOSP's TestHarness.cpp, and exact for integers and booleans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rkcosim.apis.nnapi.model import OperandType
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.prepared import Unsupported, prepare
from rkcosim.apis.nnapi.specs import Example, examples, load_generator, spec_files
from rkcosim.apis.nnapi.validation import ModelInvalid
from rkcosim.apis.nnapi.values import QUANTISED, Array, ExecutionError
from rkcosim.running.machine import Machine, Mismatch

Place = Literal["npu", "host", "refused", "wrong"]

PLACES: tuple[Place, ...] = ("npu", "host", "refused", "wrong")

MAY_BE_REFUSED = frozenset(
    "RANDOM_MULTINOMIAL LSH_PROJECTION GENERATE_PROPOSALS BOX_WITH_NMS_LIMIT "
    "DETECTION_POSTPROCESSING HEATMAP_MAX_KEYPOINT ROI_ALIGN ROI_POOLING AXIS_ALIGNED_BBOX_TRANSFORM".split()
)
"""Operations that do not exist here; an example of any other one that is refused counts as wrong."""

HALF = 5 * 2.0**-10
SINGLE = (1e-5, 5 * 2.0**-23)
T = OperandType


@dataclass(frozen=True)
class Verdict:
    """The result of an example.

    Members
    -------
    name : the example.
    operation : the operation to which it belongs.
    place : where that ran ("npu" if it ran there at all), or why there is no right result.
    text : what is wrong, or the reason of the host or the refusal.
    cycles : cycles of its jobs, 0 on the golden model.
    rtl : whether its jobs ran on the RTL.
    """

    name: str
    operation: str
    place: Place
    text: str = ""
    cycles: int = 0
    rtl: bool = False


def operation_of(example: Example) -> str:
    """Return the operation that an example is about."""
    return next((name for name in example.operations if name != "ADD"), "ADD")


def fraction(seed: int, name: str, purpose: str = "") -> float:
    """Return a number from 0 to 1 that depends on the seed, the name and the purpose."""
    digest = hashlib.sha256(f"{seed}:{purpose}:{name}".encode()).digest()
    return float(int.from_bytes(digest[:8], "big") / 2.0**64)


def in_halves(example: Example) -> bool:
    """Whether float32 results have the tolerance of fp16: a relaxed model, or one with an fp16 tensor."""
    model = example.model
    operands = [operand for subgraph in (model.main, *model.referenced) for operand in subgraph.operands]
    return model.relax_computation_float32_to_float16 or any(o.type is T.TENSOR_FLOAT16 for o in operands)


def tolerance(kind: OperandType, halves: bool) -> tuple[float, float]:
    """Return the absolute and relative tolerance of a type."""
    if kind is T.TENSOR_FLOAT16 or (kind is T.TENSOR_FLOAT32 and halves):
        return HALF, HALF
    if kind is T.TENSOR_FLOAT32:
        return SINGLE
    return (1.0, 0.0) if kind in QUANTISED else (0.0, 0.0)


def difference(found: Array, expected: Array, kind: OperandType, halves: bool) -> str:
    """Return what is wrong with an output; "" if it is within the tolerance."""
    if found.size != expected.size or (found.shape != expected.shape and expected.ndim > 1):
        return f"shape {found.shape}, not {expected.shape}"
    absolute, relative = tolerance(kind, halves)
    x, y = (array.astype(np.float64).reshape(-1) for array in (found, expected))
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(x - y) <= absolute + relative * np.abs(y)) | (x == y))
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    return f"{wrong.sum()} of {wrong.size} elements, first {first}: {x[first]:.9g}, expected {y[first]:.9g}"


def run_example(example: Example, machine: Machine, rtl: bool) -> Verdict:
    """Prepare and execute an example.

    Parameters
    ----------
    example : the example.
    machine : the device for its operations on the NPU.
    rtl : whether that is the RTL, for the verdict.
    """
    name, operation = example.name, operation_of(example)
    try:
        with prepare(example.model, machine=machine) as prepared:
            outputs = prepared.execute(example.inputs)
            account = prepared.account
    except Unsupported as error:
        allowed = not MAY_BE_REFUSED.isdisjoint(example.operations)
        return Verdict(name, operation, "refused" if allowed else "wrong", str(error))
    except (ModelInvalid, ExecutionError) as error:
        return Verdict(name, operation, "host" if example.fails else "wrong", f"it fails: {error}")
    except Mismatch as error:
        return Verdict(name, operation, "wrong", f"the NPU differs from the golden model: {error}")
    own = [record for record in account.operations if record.kind == operation]
    on_npu = any(record.place == "npu" for record in own)
    somewhere = any(record.place == "npu" for record in account.operations)
    if example.fails:
        return Verdict(name, operation, "wrong", "it must fail, but it does not")
    problem = ""
    kinds = [example.model.main.operands[n].type for n in example.model.main.output_indexes]
    for place, (found, expected) in enumerate(zip(outputs, example.expected, strict=True)):
        if expected is not None and not problem:
            said = difference(found, expected, kinds[place], in_halves(example))
            problem = f"output {place}: {said}" if said else ""
    if problem:
        where = "NPU" if somewhere else "host"
        return Verdict(name, operation, "wrong", f"{where}: {problem}", account.cycles, rtl and somewhere)
    reason = "" if on_npu else own[0].reason if own else ""
    return Verdict(name, operation, "npu" if on_npu else "host", reason, account.cycles, rtl and somewhere)


@dataclass
class Tally:
    """All verdicts.

    Members
    -------
    counts : number of examples by operation and place.
    rtl : number of examples by operation whose jobs ran on the RTL.
    cycles : cycles of all jobs on the RTL.
    wrong : verdicts of the wrong ones.
    reasons : number of examples by operation and reason, of those on the host of operations of the NPU.
    unreadable : specifications that could not be executed, with the reasons.
    """

    counts: dict[str, dict[Place, int]] = field(default_factory=dict)
    rtl: dict[str, int] = field(default_factory=dict)
    cycles: int = 0
    wrong: list[Verdict] = field(default_factory=list)
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Count a verdict."""
        row = self.counts.setdefault(verdict.operation, dict.fromkeys(PLACES, 0))
        row[verdict.place] += 1
        self.rtl[verdict.operation] = self.rtl.get(verdict.operation, 0) + verdict.rtl
        self.cycles += verdict.cycles
        if verdict.place == "wrong":
            self.wrong.append(verdict)
        if verdict.place == "host" and verdict.text:
            found = self.reasons.setdefault(verdict.operation, {})
            found[verdict.text] = found.get(verdict.text, 0) + 1

    def total(self, place: Place | None = None) -> int:
        """Return the number of examples of a place, or of all."""
        return sum(n for row in self.counts.values() for p, n in row.items() if place in (None, p))

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and every specification could be read."""
        return not self.wrong and not self.unreadable

    def rows(self) -> list[tuple[str | int, ...]]:
        """Return operation, npu, host, refused, wrong and rtl for each operation, in the order of codes."""
        names = [kind.name for kind in OperationType if kind.name in self.counts]
        return [(n, *(self.counts[n][place] for place in PLACES), self.rtl[n]) for n in names]

    def as_json(self) -> dict[str, Any]:
        """Return the members of the JSON document."""
        return {
            "examples": self.total(),
            **{place: self.total(place) for place in PLACES},
            "rtl": sum(self.rtl.values()),
            "cycles": self.cycles,
            "operations": [dict(zip(("operation", *PLACES, "rtl"), row, strict=True)) for row in self.rows()],
            "reasons": self.reasons,
            "wrong_examples": [
                {"name": v.name, "operation": v.operation, "text": v.text} for v in self.wrong
            ],
            "unreadable": self.unreadable,
            "match": self.ok,
        }


def all_examples(folder: Path, tally: Tally) -> Iterable[Example]:
    """Return the examples of a checkout; files that cannot be executed are noted in the tally.

    Raises
    ------
    ValueError
        If the folder is no checkout.
    """
    files = spec_files(folder)
    generator = load_generator(folder)
    for path in files:
        try:
            yield from examples(generator, path)
        except ValueError as error:
            tally.unreadable.append(str(error))
