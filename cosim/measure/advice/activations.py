"""Activations that take less time: Relu for curves, LeakyRelu for slopes of channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rkcosim.measure.advice.change import Change, NotApplicable
from rkcosim.measure.advice.net import Net, edited

CHEAPER: Mapping[str, tuple[str, ...]] = {
    "SiLU": ("Relu", "HardSwish"),
    "HardSwish": ("Relu",),
    "Gelu": ("Relu",),
    "Mish": ("Relu",),
    "Elu": ("Relu",),
    "Selu": ("Relu",),
    "Celu": ("Relu",),
    "Softplus": ("Relu",),
    "Tanh": ("Clip",),
    "Sigmoid": ("HardSigmoid",),
    "PRelu": ("Relu", "LeakyRelu"),
    "LeakyRelu": ("Relu",),
}
"""What takes the place of each activation.  A Clip is one from -1 to 1."""

SINGLE = 2
"""Activations of each kind that are tried alone, those of the largest layers."""

SLOPE = 0.125


@dataclass(frozen=True)
class Place:
    """An activation in the network: its kind, the names of its nodes, its input and its result."""

    kind: str
    nodes: tuple[str, ...]
    x: str
    y: str


def places(net: Net) -> Iterator[Place]:
    """Yield the activations; a product of a value with its Sigmoid is a SiLU."""
    joined = set[str]()
    for node in net.nodes("Mul"):
        for gate, x in (node.input, tuple(reversed(node.input))):
            maker = net.maker(gate)
            kind = {"Sigmoid": "SiLU", "HardSigmoid": "HardSwish"}.get(maker.op_type) if maker else None
            if (
                maker is not None
                and kind
                and net.real(maker.input[0]) == net.real(x)
                and net.alone(maker.output[0])
            ):
                joined.add(maker.name)
                yield Place(kind, (maker.name, node.name), x, node.output[0])
                break
    for node in net.graph.node:
        if node.op_type in CHEAPER and node.name not in joined:
            yield Place(node.op_type, (node.name,), node.input[0], node.output[0])


def candidates(net: Net, cycles: Mapping[str, int]) -> Iterator[Change]:
    """Yield a cheaper activation for all activations of a kind, and for the largest ones alone."""
    kinds: dict[str, list[Place]] = {}
    for place in places(net):
        kinds.setdefault(place.kind, []).append(place)
    for kind, found in kinds.items():
        found.sort(key=lambda place: -_weight(net, place, cycles))
        weights = [_weight(net, place, cycles) for place in found]
        for new in CHEAPER[kind]:
            said = f"{new} from -1 to 1" if new == "Clip" else new
            slug = f"{kind}-to-{new}".lower()
            every = f"all {len(found)} {kind}" if len(found) > 1 else f"the {kind} '{found[0].nodes[-1]}'"
            yield _change(slug, f"{said} in place of {every}", found, new, sum(weights))
            if len(found) > 1:
                for place, weight in list(zip(found, weights, strict=True))[:SINGLE]:
                    name = place.nodes[-1]
                    text = f"{said} in place of the {kind} '{name}' alone"
                    yield _change(f"{slug}:{name}", text, [place], new, weight)


def _change(name: str, text: str, found: Sequence[Place], new: str, weight: float) -> Change:
    def edit(net: Net) -> None:
        now = {place.nodes: place for place in places(net)}
        left = [now[place.nodes] for place in found if place.nodes in now]
        if not left:
            raise NotApplicable("these activations have been replaced already")
        for place in left:
            _replace(net, place, new)

    return Change("activations", name, text, "retraining", edited(edit), weight)


def _replace(net: Net, place: Place, new: str) -> None:
    nodes = [net.node(name) for name in place.nodes]
    x = net.uncoded(place.x, nodes)
    inputs, attributes = [x], dict[str, Any]()
    if new == "LeakyRelu":
        attributes["alpha"] = SLOPE
    elif new == "Clip":
        low, high = (np.array(value, np.float32) for value in (-1.0, 1.0))
        inputs += [net.constant(low, "low"), net.constant(high, "high")]
    elif new == "HardSwish" and net.proto.opset_import[0].version < 14:
        raise NotApplicable("HardSwish needs operator set 14")
    made = helper.make_node(new, inputs, [place.y], place.nodes[-1], **attributes)
    node = nodes[-1]
    node.CopyFrom(made)


def _weight(net: Net, place: Place, cycles: Mapping[str, int]) -> float:
    """Return the cycles of the activation and of the layer in front of it, which often are one task."""
    maker: onnx.NodeProto | None = net.maker(place.x)
    names = [*place.nodes, *([maker.name] if maker is not None else [])]
    return float(sum(cycles.get(name, 0) for name in dict.fromkeys(names)))
