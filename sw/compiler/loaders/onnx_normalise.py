"""Normalisations of ONNX models in floating point: over the channels of rows, and over the pixels of maps."""

from __future__ import annotations

import math

import numpy as np
import onnx

from rkcosim.compiler.constraints.normalisations import (
    group_count,
    normalised_axis,
    normalised_range,
    normalised_rows,
    pixels_of_a_map,
    worth_a_job,
)
from rkcosim.compiler.constraints.placement import one_result
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.loaders.node import Array, Constant, Pending
from rkcosim.compiler.loaders.onnx_graph import Loader
from rkcosim.compiler.loaders.onnx_node import OnnxNode, Real, node_label
from rkcosim.compiler.loaders.onnx_norms import CENTRED
from rkcosim.compiler.loaders.onnx_norms import OPERATORS as OF_ROWS
from rkcosim.compiler.loaders.views import rows_cube
from rkcosim.compiler.normalisation import Normalise, NormaliseMap

OF_MAPS = ("InstanceNormalization", "GroupNormalization")
NORMALISATIONS = {*OF_ROWS, *OF_MAPS}
"""Operators that the NPU has for numbers in floating point alone."""


class NormalisationLoader(Loader):
    """A visit that makes operations of normalisations in floating point.

    Opsets below 18 have no GroupNormalization: exporters write an InstanceNormalization of a map whose groups
    are reshaped to channels.  `_join_groups` makes one node of them, whose name is in `_joined`.
    """

    _joined: frozenset[str] = frozenset()

    def _host_node(self, node: onnx.NodeProto, reason: str) -> None:
        if node.name not in self._joined:
            super()._host_node(node, reason)
            return
        self.forced[node.name] = reason  # this graph is made again, with the nodes of the file
        for name in node.output:
            self._hosted_value(name)

    def _normalised(self, node: onnx.NodeProto) -> Pending:
        """Return the operation of a normalisation."""
        one_result(node_label(node), tuple(name for name in node.output[1:] if name))
        return self._of_rows(node) if node.op_type in OF_ROWS else self._of_map(node)

    def _of_rows(self, node: onnx.NodeProto) -> Pending:
        """Return a LayerNormalization or RMSNormalization over the channels of rows."""
        source, label = self._get(node, 0), node_label(node)
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if not isinstance(source, Real):
            raise ModelError(f"{label}: '{node.input[0]}' is no tensor of floats")
        axis = int(attributes.get("axis", -1))
        channels, rows, columns = source.cube
        tokens = source.cube == rows_cube(source.shape) and source.shape != (1, *source.cube)
        normalised_axis(label, axis, source.shape, tokens)
        normalised_rows(label, channels, rows * columns)
        worth_a_job(label, rows * channels)
        scale, shift = self._factors(node, channels)
        op = Normalise(
            node.name or node.output[0],
            (source.tensor,),
            "",
            epsilon=float(attributes.get("epsilon", 1e-5)),
            scale=scale,
            shift=shift,
            centred=node.op_type == CENTRED,
        )
        return Pending(op, source.shape, source.cube, clampable=False, real=True)

    def _of_map(self, node: onnx.NodeProto) -> Pending:
        """Return an InstanceNormalization or GroupNormalization of a map or a line."""
        values = [self._get(node, index) if name else None for index, name in enumerate(node.input)]
        reader = OnnxNode(node, values, self.graph, floats=True)
        x = reader.map_input()
        channels, pixels = x.cube[0], x.cube[1] * x.cube[2]
        groups = int(reader.attributes.get("num_groups", 0 if node.op_type == OF_MAPS[1] else channels))
        group_count(reader.label, groups, channels)
        worth_a_job(reader.label, x.elements)
        pixels_of_a_map(reader.label, pixels, channels)
        scale, shift = self._factors(node, channels, groups)
        op = NormaliseMap(
            node.name or node.output[0],
            (x.name,),
            "",
            epsilon=float(reader.attributes.get("epsilon", 1e-5)),
            scale=scale,
            shift=shift,
            groups=groups,
            source=node.op_type,
        )
        return Pending(op, reader.map_shape(x.cube), x.cube, real=True)

    def _factors(self, node: onnx.NodeProto, channels: int, groups: int = 1) -> tuple[Array, Array]:
        """Return scale and shift of each channel; a node may have one for all or one for each group."""
        values = []
        for index, default in ((1, 1.0), (2, 0.0)):
            given = self._array(node, index)
            array = np.full(channels, default) if given is None else np.asarray(given, np.float64)
            if array.size not in (1, groups, channels):
                raise ModelError(
                    f"{node_label(node)}: '{node.input[index]}' {array.shape} for {channels} channels"
                )
            values.append(np.repeat(array.reshape(-1), channels // array.size))
        with np.errstate(over="ignore"):
            finite = all(np.isfinite(value.astype(np.float16)).all() for value in values)
        normalised_range(node_label(node), tuple(node.input[1:]), finite)
        return values[0], values[1]

    def _join_groups(self) -> None:
        """Write each InstanceNormalization between two reshapes as a GroupNormalization."""
        makers = {name: node for node in self.proto.node for name in node.output}
        ends = {item.name for item in self.proto.output}
        for node in list(self.proto.node):
            before = makers.get(node.input[0]) if node.op_type == OF_MAPS[0] else None
            if before is None:
                continue
            users = [user for user in self.proto.node if node.output[0] in user.input]
            if len(users) != 1 or node.output[0] in ends:
                continue
            after = users[0]
            nodes = (before, node, after)
            reshapes = before.op_type == after.op_type == "Reshape" and after.input[0] == node.output[0]
            if not reshapes or any(item.name in self._hosted for item in nodes):
                continue
            groups = self._groups(before, after)
            factors = [self.values.get(name) for name in node.input[1:3]]
            if not groups or not all(isinstance(item, Constant) for item in factors):
                continue
            node.op_type, node.input[0], node.output[0] = OF_MAPS[1], before.input[0], after.output[0]
            node.attribute.append(onnx.helper.make_attribute("num_groups", groups))
            self.proto.node.remove(after)
            if before.output[0] not in ends and not any(
                before.output[0] in other.input for other in self.proto.node
            ):
                self.proto.node.remove(before)
            self._joined |= {node.name}

    def _groups(self, before: onnx.NodeProto, after: onnx.NodeProto) -> int:
        """Return the number of groups of channels that a Reshape makes channels, and another undoes; or 0."""
        known = [self._types.of(name) for name in (before.input[0], before.output[0], after.output[0])]
        whole, split, back = (() if item is None else item.shape or () for item in known)
        if len(whole) < 3 or len(split) < 3 or whole != back or whole[0] != split[0]:
            return 0
        same = math.prod(whole) == math.prod(split) and whole[1] % split[1] == 0
        return split[1] if same else 0
