"""How model files are read: options of all loaders, set for everything that is compiled inside a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.tiling import holding

Floats = Literal["fp16", "host", "refuse"]
OpenDimensions = Literal["choose", "batches", "refuse"]


@dataclass(frozen=True)
class LoadOptions:
    """How model files are read.

    Members
    -------
    fallback
        Whether the host computes operators that the NPU cannot do, in the runtime of the file's format; if
        not, a model with such operators is refused.
    floats
        Where operators in floating point run: "fp16" for the NPU, in fp16; "host" for the runtime, in the
        model's type; or "refuse" to refuse the model.  The NPU has no float32 arithmetic: in fp16 inputs,
        weights and the result of each layer are rounded.
    shapes
        Shapes of inputs by name, for inputs with open dimensions.
    input_shapes
        Shapes of all inputs in their order, which take the place of those in the file; empty if they are not
        given.
    open_dimensions
        What becomes of open dimensions without a given size: "choose" takes batches of 1 and sizes that the
        model accepts, "batches" batches of 1 alone, and "refuse" none.
    outputs
        Names of the values to compute instead of the model's outputs; empty for the model's.
    fold
        Whether constants are folded before operators are matched (ONNX).
    signature
        Signature of a TFLite file whose subgraph is read; None for the file's first subgraph.
    """

    fallback: bool = True
    floats: Floats = "fp16"
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    input_shapes: tuple[tuple[int, ...], ...] = ()
    open_dimensions: OpenDimensions = "choose"
    outputs: tuple[str, ...] = ()
    fold: bool = True
    signature: str | None = None

    def check_floats(self, what: str) -> None:
        """Check that operators in floating point are allowed.

        Parameters
        ----------
        what
            The model or its operators, for the message.

        Raises
        ------
        ModelError
            If they are not.
        """
        if self.floats == "refuse":
            raise ModelError(
                f"{what}: the NPU would compute float32 in fp16, which --float refuse forbids; --float host "
                "computes it on the host"
            )


_OPTIONS: ContextVar[LoadOptions | None] = ContextVar("options", default=None)


def load_options() -> LoadOptions:
    """Return the options of the innermost `using_options`, or the defaults."""
    return _OPTIONS.get() or LoadOptions()


@contextmanager
def using_options(**changes: Any) -> Iterator[LoadOptions]:
    """Read models inside with changed options.

    Parameters
    ----------
    changes
        Members of `LoadOptions`; the others keep their values.
    """
    options = replace(load_options(), **changes)
    with holding(_OPTIONS, options):
        yield options
