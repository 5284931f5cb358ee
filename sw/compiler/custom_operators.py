"""Programs of custom operators, as a runtime of `rkcosim.compiler.host_runtimes`.

A program is JSON: the tensors by name, with the scale and zero point of quantised ones, and the operators in
order.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.custom_operators.options import read_options
from rkcosim.compiler.custom_operators.registry import OPERATORS
from rkcosim.compiler.graph import ModelError

Array = npt.NDArray[Any]

KEY = "custom-operators"
"""Name of the runtime in programs."""


def custom_program(
    operators: Sequence[tuple[str, bytes, Sequence[str], Sequence[str]]], scales: Any
) -> bytes:
    """Return a program.

    Parameters
    ----------
    operators
        Name, options, and the names of inputs and outputs of each operator in order.
    scales
        Scale and zero point of the quantised inputs, by name.
    """
    listed = [
        {"name": name, "options": base64.b64encode(data).decode(), "takes": list(takes), "gives": list(gives)}
        for name, data, takes, gives in operators
    ]
    return json.dumps({"operators": listed, "scales": scales}).encode()


class CustomOperators:
    """The operators of `rkcosim.compiler.custom_operators.registry`; see `HostRuntime`."""

    name, extra = "rkcosim's custom operators", "tflite"

    def load(
        self, data: bytes, takes: Sequence[str], gives: Sequence[str]
    ) -> Callable[[Sequence[Array]], list[Array]]:
        """Read a program of `custom_program`; see `HostRuntime.load`."""
        try:
            made = json.loads(data)
            scales = made["scales"]
            steps = [
                (OPERATORS[one["name"]], read_options(base64.b64decode(one["options"])), one)
                for one in made["operators"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"damaged program of custom operators: {error}") from error

        def run(arrays: Sequence[Array]) -> list[Array]:
            known: dict[str, Array] = {}
            for name, array in zip(takes, arrays, strict=True):
                known[name] = array
                if name in scales:
                    scale, zero = scales[name]
                    known[name] = (array.astype(np.float32) - np.float32(zero)) * np.float32(scale)
            for function, options, one in steps:
                try:
                    results = function(options, [known[name] for name in one["takes"]])
                except ValueError as error:
                    raise ModelError(f"{one['name']}: {error}") from error
                known |= zip(one["gives"], results, strict=True)
            return [known[name] for name in gives]

        return run
