"""The registry of model interpreters: one for each kind of model file, chosen by the contents of a file.

Readers of formats that the compiler makes graphs of register in `rkcosim.compiler.loaders`; files with
command lists of their own register in the room that reads them (`rkcosim.rknn_file.model`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rkcosim.base.files import identify
from rkcosim.compiler.graph import Graph, ModelError

Source = Callable[[Mapping[str, str]], Graph]
"""Makes a new graph of a file; the argument has nodes for the host by name, with the reasons."""


@dataclass(frozen=True)
class ModelInterpreter:
    """What is known of one kind of model file.

    Members
    -------
    kind
        Name of the kind, a key of `rkcosim.base.files.KINDS`.
    source
        Reads the bytes of a file once and returns its `Source`; None for files that have a plan of their own.
    plan
        Returns the model of a file that has a plan of its own: takes the bytes, then `reuse`, `cores` and
        `checked` by name; None for files that the compiler plans.
    structure
        Returns the structure of a file without compiling it: number of operators by name, in file order.
    """

    kind: str
    source: Callable[[bytes], Source] | None = None
    plan: Callable[..., Any] | None = None
    structure: Callable[[bytes], Mapping[str, int]] | None = None


_INTERPRETERS: dict[str, ModelInterpreter] = {}

DEFAULT = "ONNX model"
"""The kind whose interpreter reads files of an unknown kind, and says what is wrong with them."""


def register(interpreter: ModelInterpreter) -> None:
    """Add an interpreter, in the place of an earlier one of the same kind."""
    _INTERPRETERS[interpreter.kind] = interpreter


def kinds() -> tuple[str, ...]:
    """Return the kinds of model files that have an interpreter, in the order of their registration."""
    return tuple(_INTERPRETERS)


def find(data: bytes) -> ModelInterpreter | None:
    """Return the interpreter for a file, None if none is registered for its kind."""
    return _INTERPRETERS.get(identify(data))


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
    found = find(data) or _INTERPRETERS.get(DEFAULT)
    if found is None:
        raise ModelError(f"no interpreter is registered for a {identify(data)}")
    return found
