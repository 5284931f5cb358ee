"""The registry of model interpreters: one for each kind of model file, chosen by the contents of a file.

The interpreter of a kind is imported when a file of this kind is read.  Those of ONNX and TFLite are in
`rkcosim.compiler.loaders`; rooms that read further files name their module (`register_home`), interfaces and
other packages by an entry point (`rkcosim.base.extensions.INTERPRETERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from rkcosim.base.extensions import INTERPRETERS, extensions
from rkcosim.base.files import identify
from rkcosim.compiler.graph import Graph, ModelError

Source = Callable[[Mapping[str, str]], Graph]
"""Makes a new graph of a file; the argument has nodes for the host by name, with the reasons."""


@dataclass(frozen=True)
class Divided:
    """A file whose first dimensions may be a batch.

    Members
    -------
    whole
        Makes graphs of the whole file.
    sample
        Makes graphs of one sample; None if the samples are not proven to be independent.
    samples
        Size of the batch; 1 without `sample`.
    axes
        For values of the whole model by name, as far as they are known: the axis along which the samples lie,
        and how many indices each has there.
    reason
        Why a first dimension above 1 is not taken as a batch.
    """

    whole: Source
    sample: Source | None = None
    samples: int = 1
    axes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class ModelInterpreter:
    """What is known of one kind of model file.

    Members
    -------
    kind
        Name of the kind, a key of `rkcosim.base.files.KINDS`.
    source
        Reads the bytes of a file once and returns its `Source`; None for files that have a plan of their own.
    divided
        As `source`, with the model of one sample if the file's first dimensions are proven to be a batch;
        None for files that have none.
    plan
        Returns the model of a file that has a plan of its own: takes the bytes, then `reuse`, `cores` and
        `checked` by name; None for files that the compiler plans.
    structure
        Returns the structure of a file without compiling it: number of operators by name, in file order.
    """

    kind: str
    source: Callable[[bytes], Source] | None = None
    divided: Callable[[bytes], Divided] | None = None
    plan: Callable[..., Any] | None = None
    structure: Callable[[bytes], Mapping[str, int]] | None = None


MOST_SAMPLES = 1024
"""Largest batch that is divided into samples; a larger first dimension is an ordinary dimension."""


def batch_of(shapes: Sequence[tuple[int, ...]]) -> tuple[int, str]:
    """Return the first dimension that may be a batch: the same for all inputs, above 1, and not above
    `MOST_SAMPLES`; or 1 and the reason why there is none.

    There is no reason without a first dimension above 1, and for models that have only vectors and matrices,
    whose rows the NPU computes at once.

    Parameters
    ----------
    shapes
        Shapes of the inputs.
    """
    sizes = sorted({shape[0] if shape else 0 for shape in shapes})
    if max(sizes, default=0) <= 1 or not any(len(shape) > 2 for shape in shapes):
        return 1, ""
    if len(sizes) > 1:
        return 1, f"the inputs have different first dimensions: {', '.join(map(str, sizes))}"
    if sizes[0] > MOST_SAMPLES:
        return 1, f"{sizes[0]} samples are more than {MOST_SAMPLES}"
    return sizes[0], ""


_INTERPRETERS: dict[str, ModelInterpreter] = {}

_HOMES = {
    "ONNX model": "rkcosim.compiler.loaders.onnx_interpreter",
    "TFLite model": "rkcosim.compiler.loaders.tflite_interpreter",
}
"""The module that registers the interpreter of a kind when it is imported."""

DEFAULT = "ONNX model"
"""The kind whose interpreter reads files of an unknown kind, and says what is wrong with them."""


def register(interpreter: ModelInterpreter) -> None:
    """Add an interpreter, in the place of an earlier one of the same kind."""
    _INTERPRETERS[interpreter.kind] = interpreter


def register_home(kind: str, module: str) -> None:
    """Name the module that registers the interpreter of a kind when it is imported."""
    _HOMES[kind] = module


def kinds() -> tuple[str, ...]:
    """Return the kinds of model files that have an interpreter, in the order in which they were named."""
    return tuple(dict.fromkeys([*_HOMES, *_INTERPRETERS, *extensions(INTERPRETERS)]))


def find(data: bytes) -> ModelInterpreter | None:
    """Return the interpreter for a file, None if none is registered for its kind."""
    return _of(identify(data))


def _of(kind: str) -> ModelInterpreter | None:
    if kind not in _INTERPRETERS and kind in _HOMES:
        import_module(_HOMES[kind])
    elif kind not in _INTERPRETERS and kind in extensions(INTERPRETERS):
        extensions(INTERPRETERS)[kind].load()
    return _INTERPRETERS.get(kind)


def interpreter_of(data: bytes) -> ModelInterpreter:
    """Return the interpreter for a file; files of a kind without one are read as `DEFAULT`.

    Parameters
    ----------
    data
        The bytes of the file.

    Raises
    ------
    ModelError
        If no interpreter is registered for either.
    """
    found = find(data) or _of(DEFAULT)
    if found is None:
        raise ModelError(f"no interpreter is registered for a {identify(data)}")
    return found
