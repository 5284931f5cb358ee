"""Outputs of a model: which ones are scores of classes, and how far they are from another runtime's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import CompiledModel
from rkcosim.compiler.batch import BatchModel
from rkcosim.compiler.graph import GraphOutput
from rkcosim.compiler.steps import CallStep, HostStep, RescaleStep

Array = npt.NDArray[Any]

LIGHT = ("Rescale", "Rearrange")
"""Kinds of steps that keep the order of scores."""


class Info(Protocol):
    """What is known of an input or output: `rkcosim.compiler.model.TensorInfo` and others."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The model's shape."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the codes, or of the numbers."""
        ...

    @property
    def scale(self) -> float:
        """Scale of the codes; 1 if there are none."""
        ...

    @property
    def zero_point(self) -> int:
        """Zero point of the codes; 0 if there are none."""
        ...


def one_score_each(shape: Sequence[int]) -> bool:
    """Whether a shape has one number for each class: (1, C) or (C,) with C > 1, other dimensions being 1."""
    alone = len(shape) == 1 or (len(shape) > 1 and shape[0] == 1)
    return alone and max(shape) == math.prod(shape) > 1


def class_outputs(model: CompiledModel | BatchModel, labelled: bool = False) -> list[bool]:
    """Return for each output of a model whether its elements are scores of classes.

    They are if the output has one number for each class, that is the shape (1, C) with C > 1 or the same with
    further dimensions of 1, and is the result of a Softmax or LogSoftmax, perhaps requantised.  The largest
    element of any other output means nothing: it may be a box, a landmark, an embedding or a map.  If the
    inputs have labels, there are classes, and the first output counts if it has such a shape.

    Parameters
    ----------
    model
        The compiled model.
    labelled
        Whether the true classes of the inputs are known.
    """
    found = []
    for number, item in enumerate(model.graph.outputs):
        right = one_score_each(model.outputs[number].shape)
        found.append(right and ((labelled and number == 0) or _behind_softmax(model, item)))
    return found


def _behind_softmax(model: CompiledModel | BatchModel, item: GraphOutput) -> bool:
    name, makers = item.value, {op.output: op for op in model.graph.host_ops}
    while item.real and name in makers:
        if makers[name].kind in ("Softmax", "ArgMax"):
            return makers[name].kind == "Softmax"
        name = makers[name].input
    made = {model.graph.root(tensor.name): step for step in model.plan.steps for tensor in step.outputs}
    step = made.get(model.graph.root(name))
    while isinstance(step, RescaleStep | HostStep) and "softmax" not in step.kind.lower():
        before = made.get(model.graph.root(step.inputs[0].name)) if step.inputs else None
        if step.kind not in LIGHT or before is None:
            break
        step = before
    if isinstance(step, CallStep):
        return any("softmax" in operator.kind.lower() for operator in step.program.operators[-2:])
    return step is not None and "softmax" in step.kind.lower()


@dataclass(frozen=True)
class Agreement:
    """How far an output is from that of another runtime.

    Members
    -------
    worst, mean
        Largest and mean difference in `unit`; infinite if an element is infinite or not a number on one side
        only.
    unit
        Steps of the output's quantisation, parts of the reference's largest finite value, or, for whole
        numbers such as indices, whose size means nothing, elements: then `worst` and `mean` are the share of
        those that differ.
    cosine
        Cosine of the angle between both outputs as vectors; None if one of them is zero or not finite.
    place
        Index of the element with the largest difference, in the reference's shape.
    ours, theirs
        This element on both sides.
    """

    worst: float
    mean: float
    unit: Literal["steps", "of the largest value", "elements"]
    cosine: float | None
    place: tuple[int, ...]
    ours: float
    theirs: float

    def text(self) -> str:
        """Return the differences and the cosine in words."""
        if self.unit == "elements":
            return f"{self.mean:.3%} of the whole numbers differ" if self.mean else "equal whole numbers"
        cosine = "" if self.cosine is None else f", cosine {self.cosine:.6f}"
        if self.unit == "steps":
            return f"at most {self.worst:.3g} quantisation steps apart, mean {self.mean:.3g}{cosine}"
        return f"at most {self.worst:.3%} of the largest value apart, mean {self.mean:.3%}{cosine}"


def differences(ours: Array, theirs: Array, unit: float) -> npt.NDArray[np.float64]:
    """Return the size of the difference of each element, flat, in a unit.

    Equal infinities, and NaN on both sides, are no difference; NaN on one side is an infinite one.
    """
    a, b = ours.reshape(-1).astype(np.float64), theirs.reshape(-1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        parts = np.abs(a - b) / unit
    parts[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    parts[np.isnan(parts)] = np.inf
    return np.asarray(parts)


def largest(values: Array) -> float:
    """Return the largest finite magnitude; 1 if there is none but 0."""
    sizes = np.abs(values[np.isfinite(values)].astype(np.float64))
    return float(sizes.max(initial=0.0)) or 1.0


def agreement(ours: Array, theirs: Array, step: float | None, *, whole: bool = False) -> Agreement:
    """Compare an output with that of another runtime.

    Parameters
    ----------
    ours, theirs
        Real values, of the same number of elements.
    step
        Scale of the output's codes; None for any other output.
    whole
        Whether the elements are whole numbers that are no codes.
    """
    parts = differences(ours, theirs, step if step is not None else 1.0 if whole else largest(theirs))
    a, b = ours.reshape(-1).astype(np.float64), theirs.reshape(-1).astype(np.float64)
    at = int(parts.argmax()) if parts.size else 0
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
        cosine = float(a @ b) / sizes if sizes > 0 and math.isfinite(sizes) and not whole else None
    share = float((parts != 0).mean()) if parts.size else 0.0
    return Agreement(
        worst=share if whole else float(parts.max(initial=0.0)),
        mean=share if whole else float(parts.mean()) if parts.size else 0.0,
        unit="elements" if whole else "of the largest value" if step is None else "steps",
        cosine=None if cosine is None else min(1.0, cosine),
        place=tuple(int(n) for n in np.unravel_index(at, theirs.shape)) if parts.size else (),
        ours=float(a[at]) if parts.size else 0.0,
        theirs=float(b[at]) if parts.size else 0.0,
    )


def output_row(name: str, values: Array, classes: bool) -> dict[str, Any]:
    """Describe an output for a document; `top1` is None if its elements are no scores of classes."""
    shape = [int(n) for n in values.shape]
    return {"name": name, "shape": shape, "top1": int(values.argmax()) if classes else None}


def add_agreement(
    rows: Sequence[dict[str, Any]], infos: Sequence[Info], ours: Sequence[Array], theirs: Sequence[Array]
) -> None:
    """Add to the rows of outputs how far one inference is from the reference's.

    Parameters
    ----------
    rows
        A dictionary for each output, changed in place: `reference_worst` and `reference_mean` are the largest
        of all inferences, `reference_cosine` is the smallest, `reference_unit` is `Agreement.unit`.
    infos
        The model's outputs.  Values of the reference outside of the range of an output's codes count as the
        end of the range.
    ours, theirs
        Real values of each output on both sides.  Outputs of different sizes are left out.
    """
    for row, info, mine, other in zip(rows, infos, ours, theirs, strict=True):
        if mine.size != other.size:
            continue
        values, codes = other.reshape(mine.shape).astype(np.float64), info.dtype in (np.int8, np.uint8)
        if codes:
            limits = np.iinfo(info.dtype)
            low, high = ((end - info.zero_point) * info.scale for end in (limits.min, limits.max))
            values = np.clip(values, low, high)
        whole = np.dtype(info.dtype).kind in "iub" and not codes
        found = agreement(mine, values, info.scale if codes else None, whole=whole)
        row["reference_unit"] = found.unit
        row["reference_worst"] = max(found.worst, row.get("reference_worst", 0.0))
        row["reference_mean"] = max(found.mean, row.get("reference_mean", 0.0))
        if found.cosine is not None:
            row["reference_cosine"] = min(found.cosine, row.get("reference_cosine", 1.0))
