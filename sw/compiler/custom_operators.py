"""Custom operators of TFLite files that no runtime here has: a runtime of `rkcosim.compiler.host_runtimes`.

Their functions are entry points (`rkcosim.base.extensions.CUSTOM_OPERATORS`) with the operators' names, so
that further packages may add some.  Each takes the operator's options (`read_options`) and its inputs
(float32, with the channels last), returns the outputs, and raises ValueError for options and inputs that the
operator does not have.

A program is JSON: the tensors by name, with the scale and zero point of quantised ones, and the operators in
order.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.extensions import CUSTOM_OPERATORS, extensions
from rkcosim.compiler.graph import ModelError

Array = npt.NDArray[Any]
Operator = Callable[[Mapping[str, Any], Sequence[Array]], list[Array]]

MOST = 4096
"""Largest number of options of an operator, and of elements of a list among them."""


def is_known(name: str) -> bool:
    """Return whether an installed package has the custom operator of this name."""
    return name in extensions(CUSTOM_OPERATORS)


def operator_of(name: str) -> Operator:
    """Return the function of a custom operator.

    Raises
    ------
    KeyError
        If no installed package has it.
    """
    function: Operator = extensions(CUSTOM_OPERATORS)[name].load()
    return function


def read_options(data: bytes) -> dict[str, Any]:
    """Return the options of a custom operator, which TFLite files hold as a FlexBuffers map; {} for none.

    Only numbers and lists of integers are read.

    Raises
    ------
    ValueError
        If the bytes are not such a map.
    """
    from flatbuffers import flexbuffers

    if not data:
        return {}
    try:
        root = flexbuffers.GetRoot(data)
        if not root.IsMap:
            raise ValueError("they are not a map")
        found = root.AsMap
        if len(found) > MOST:
            raise ValueError(f"there are {len(found)}")
        return {key.AsKey: _value(value) for key, value in zip(found.Keys, found.Values, strict=True)}
    except Exception as error:  # the reader does not verify: damage gives struct.error, IndexError, ...
        raise ValueError(f"the options are damaged: {error}") from error


def _value(ref: Any) -> Any:
    """Return a number or a list of integers; None for everything else, which could be nested without end."""
    if ref.IsBool:
        return ref.AsBool
    if ref.IsInt:
        return ref.AsInt
    if ref.IsFloat:
        return ref.AsFloat
    if (ref.IsVector and not ref.IsMap) or ref.IsTypedVector:
        items = ref.AsVector if ref.IsVector else ref.AsTypedVector
        if len(items) > MOST:
            raise ValueError(f"a list of the options has {len(items)} elements")
        return [item.AsInt if item.IsInt else None for item in items]
    return None


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
    """The custom operators of the installed packages; see `HostRuntime`."""

    name, extra = "rkcosim's custom operators", "tflite"

    def load(
        self, data: bytes, takes: Sequence[str], gives: Sequence[str]
    ) -> Callable[[Sequence[Array]], list[Array]]:
        """Read a program of `custom_program`; see `HostRuntime.load`."""
        try:
            made = json.loads(data)
            scales = made["scales"]
            steps = [
                (operator_of(one["name"]), read_options(base64.b64decode(one["options"])), one)
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
