"""GroupNormalization of opsets 18 to 20, which onnx' checker refuses since opset 21 has another one."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper


def write_groups(proto: onnx.ModelProto, domains: Collection[str]) -> None:
    """Write each GroupNormalization of opset 18 as an InstanceNormalization of reshaped groups, in place.

    It has one scale and one bias for each group (onnx, docs/Changelog.md, GroupNormalization-18), as an
    InstanceNormalization of a tensor whose groups are channels.  onnxruntime computes both alike.  Nodes
    without three inputs, an output and a number of groups stay as they are.  `domains` are the names of
    ONNX' own domain.
    """
    opsets = [item.version for item in proto.opset_import if item.domain in domains]
    if not opsets or not 18 <= max(opsets) <= 20:
        return
    for place, node in reversed(list(enumerate(proto.graph.node))):
        groups = next((a.i for a in node.attribute if a.name == "num_groups"), 0)
        ends = (len(node.input), len(node.output))
        if node.op_type != "GroupNormalization" or node.domain not in domains:
            continue
        if ends != (3, 1) or groups < 1:
            continue
        x, y = node.input[0], node.output[0]
        split, shape, size, normal = (f"{y}_{part}" for part in ("groups", "split", "shape", "normal"))
        kept = [a for a in node.attribute if a.name == "epsilon"]
        made = helper.make_node(
            "InstanceNormalization", [split, *node.input[1:]], [normal], node.name or f"{y}_normal"
        )
        made.attribute.extend(kept)
        proto.graph.initializer.append(numpy_helper.from_array(np.array([0, groups, -1]), shape))
        del proto.graph.node[place]
        nodes = [
            helper.make_node("Reshape", [x, shape], [split], split),
            made,
            helper.make_node("Shape", [x], [size], size),
            helper.make_node("Reshape", [normal, size], [y], f"{y}_whole"),
        ]
        for new in reversed(nodes):
            proto.graph.node.insert(place, new)
