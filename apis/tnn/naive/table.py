"""The table of NAIVE's layers: functions of arrays, registered by layer type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rkcosim.apis.tnn.blob import Array
from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.loader.network import BlobScale

Function = Callable[[Bound, Sequence[Array]], list[Array]]
"""Computes the outputs of a layer from its inputs, float64 arrays."""

Coded = Callable[[Bound, Sequence[Array], Sequence[BlobScale], Sequence[BlobScale]], list[Array]]
"""Computes codes from codes; the scales are those of the inputs and of the outputs."""

FUNCTIONS: dict[str, Function] = {}
"""Layers of real numbers by type."""

CODED: dict[str, Coded] = {}
"""Int8 layers by type that compute with codes; the others compute with real numbers."""


def naive(*types: str) -> Callable[[Function], Function]:
    """Register a function for layer types."""

    def add(function: Function) -> Function:
        FUNCTIONS.update(dict.fromkeys(types, function))
        return function

    return add


def coded(*types: str) -> Callable[[Coded], Coded]:
    """Register a function on codes for layer types."""

    def add(function: Coded) -> Coded:
        CODED.update(dict.fromkeys(types, function))
        return function

    return add
