"""LiteRT interpreters with the delegate, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rkcosim.apis.litert.library import delegate_library
from tests.makers.tflite_models import Tf


def delegate(**options: Any) -> Any:
    """Load the delegate on the golden engine."""
    from ai_edge_litert.interpreter import load_delegate

    return load_delegate(str(delegate_library()), {"engine": "golden", **options})


def interpreter(
    data: bytes, delegates: Sequence[Any] = (), shapes: Mapping[int, Sequence[int]] | None = None
) -> Any:
    """Return an interpreter of a model, with input shapes by number; without delegates, LiteRT alone."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    made = Interpreter(
        model_content=data, experimental_delegates=list(delegates), experimental_op_resolver_type=plain
    )
    for number, shape in (shapes or {}).items():
        made.resize_tensor_input(made.get_input_details()[number]["index"], list(shape))
    made.allocate_tensors()
    return made


def inputs_of(made: Any, seed: int) -> list[np.ndarray]:
    """Draw values for each input."""
    rng = np.random.default_rng(seed)
    drawn = []
    for detail in made.get_input_details():
        shape, dtype = detail["shape"], detail["dtype"]
        if dtype == np.float32:
            drawn.append(rng.normal(size=shape).astype(dtype))
        else:
            limits = np.iinfo(dtype)
            drawn.append(rng.integers(limits.min, limits.max + 1, shape).astype(dtype))
    return drawn


def results(made: Any, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run one inference."""
    for detail, array in zip(made.get_input_details(), values, strict=True):
        made.set_tensor(detail["index"], array)
    made.invoke()
    return [made.get_tensor(detail["index"]) for detail in made.get_output_details()]


def operators(made: Any) -> list[str]:
    """Return the names of the operators that an interpreter runs, with DELEGATE for each delegated part."""
    number = made._interpreter.NumNodes()
    names = [made._interpreter.NodeName(n) for n in range(number)]
    return names


def parts(made: Any) -> int:
    """Return the number of delegated parts."""
    return sum(name == "DELEGATE" for name in operators(made))


def small(dtype: str = "int8", form: str = "", size: int = 8) -> bytes:
    """Three convolutions."""
    t = Tf(seed=1, dtype=dtype, form=form)
    x = t.conv(t.input((1, size, size, 8)), 8, FusedActivationFunction=1)
    return t.bytes(t.conv(t.depthwise(x, 3, 2), 4))


def divided() -> bytes:
    """Two convolutions with an operator between them that the NPU does not have, and two outputs."""
    t = Tf(seed=2)
    x = t.conv(t.input((1, 8, 8, 8)), 8)
    y = t.add("REVERSE_V2", [x, t.ints([1])], t.items[x].shape, scale=t.items[x].scale)
    return t.bytes(t.conv(y, 8), x)
