"""A float network in int8."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from rkcosim.compiler.quantization import Settings, open_float_model
from rkcosim.measure.advice.change import Change, NotApplicable, Subject
from rkcosim.measure.advice.net import Net, replace

Sample = Mapping[str, npt.NDArray[Any]]


def candidates(
    net: Net, cycles: Mapping[str, int], samples: Sequence[Sample], given: bool
) -> Iterator[Change]:
    """Yield the network in int8, calibrated with samples; `given` says that they are no random ones."""
    if net.quantised or not any(node.op_type in ("Conv", "MatMul", "Gemm") for node in net.graph.node):
        return
    with_what = "the given inputs" if given else "random inputs: quantise with your own data"
    text = f"int8 in place of fp16, calibrated with {with_what}"
    total = float(sum(cycles.values()))
    yield Change("quantisation", "int8", text, "approximate", _int8(samples), total * 0.5)


def _int8(samples: Sequence[Sample]) -> Callable[[Subject], Subject]:
    def apply(subject: Subject) -> Subject:
        model = open_float_model(subject.model)
        takes = {item.name: item for item in model.inputs}
        fitting = [
            {name: array.astype(takes[name].dtype) for name, array in sample.items() if name in takes}
            for sample in samples
            if all(array.shape == takes[name].shape for name, array in sample.items() if name in takes)
        ]
        if not fitting:
            raise NotApplicable("the inputs have other shapes than the network")
        return replace(subject, model=model.quantize(fitting, Settings()))

    return apply
