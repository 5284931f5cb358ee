"""Layers of one node of the file have names of their own, so that `--from layer:NAME` means one of them."""

from __future__ import annotations

from rkcosim.compiler.graph import Tensor
from rkcosim.compiler.steps import Step, layer_names


def test_equal_names_are_numbered() -> None:
    tensor = Tensor("t", (1, 1, 1, 1), 1.0, 0, (1, 1, 1))
    steps = [Step(name, "Conv", (tensor,), tensor) for name in ("up", "a", "up", "up.2", "up", "b", "up")]
    names = layer_names(steps)
    assert names == ["up", "a", "up.3", "up.2", "up.4", "b", "up.5"]
    assert layer_names([]) == []
