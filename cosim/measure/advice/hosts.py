"""Operators of the host in forms that the NPU can compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx

from rkcosim.measure.advice.change import Change, NotApplicable, Subject
from rkcosim.measure.advice.net import Net, attribute, edited, set_attribute

Rewrite = Callable[[onnx.NodeProto], bool]
"""Changes a node; returns whether there was anything to change."""


def _linear(node: onnx.NodeProto) -> bool:
    """Have a Resize interpolate linearly between centres of pixels."""
    if attribute(node, "mode") not in (b"cubic", b"linear"):
        return False
    before = [item.SerializeToString() for item in node.attribute]
    set_attribute(node, "mode", "linear")
    set_attribute(node, "coordinate_transformation_mode", "half_pixel")
    set_attribute(node, "antialias", 0)
    set_attribute(node, "exclude_outside", 0)
    _drop(node, "antialias", "exclude_outside", "cubic_coeff_a")
    return before != [item.SerializeToString() for item in node.attribute]


def _nearest(node: onnx.NodeProto) -> bool:
    """Have a Resize repeat pixels."""
    before = [item.SerializeToString() for item in node.attribute]
    set_attribute(node, "mode", "nearest")
    set_attribute(node, "coordinate_transformation_mode", "asymmetric")
    set_attribute(node, "nearest_mode", "floor")
    _drop(node, "antialias", "exclude_outside", "cubic_coeff_a")
    return before != [item.SerializeToString() for item in node.attribute]


def _zeros(node: onnx.NodeProto) -> bool:
    """Have a Pad add zeros in place of copies of the edge."""
    if attribute(node, "mode", b"constant") == b"constant":
        return False
    set_attribute(node, "mode", "constant")
    return True


def _counting(node: onnx.NodeProto) -> bool:
    """Have an average count its padding as zeros."""
    if attribute(node, "count_include_pad", 0) or not any(attribute(node, "pads", [])):
        return False
    set_attribute(node, "count_include_pad", 1)
    return True


def _drop(node: onnx.NodeProto, *names: str) -> None:
    kept = [item for item in node.attribute if item.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


REWRITES: Mapping[str, tuple[tuple[str, str, Rewrite], ...]] = {
    "Resize": (
        ("linear", "linear between centres of pixels (half_pixel)", _linear),
        ("nearest", "nearest, by whole pixels", _nearest),
    ),
    "Pad": (("zeros", "with zeros in place of copies of the edge", _zeros),),
    "AveragePool": (("counting", "counting padding as zeros", _counting),),
}
"""For each operator: slug, words and the change of the node."""


def candidates(net: Net, hosted: Mapping[str, str]) -> Iterator[Change]:
    """Yield rewrites of the operators that the host computes.

    Parameters
    ----------
    net
        The network.
    hosted
        Names of the layers that the host computes, with the reason of each.
    """
    for node in net.graph.node:
        if not any(node.name == name or node.output[0] == name for name in hosted):
            continue
        for slug, words, rewrite in REWRITES.get(node.op_type, ()):
            text = f"{node.op_type} '{node.name}' {words}, on the NPU in place of the host"
            apply = _rewritten(node.name, rewrite)
            yield Change("hosts", f"{slug}:{node.name}", text, "retraining", apply, 0.0, node.name)


def _rewritten(name: str, rewrite: Rewrite) -> Callable[[Subject], Subject]:
    def edit(net: Net) -> None:
        if not rewrite(net.node(name)):
            raise NotApplicable(f"'{name}' has this form already")

    return edited(edit)
