"""What onnxruntime says about a graph, and how far fp16 and bytes may be away from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.graph_fuzz.draw import Array, Graph, session

SHARE = 0.008
"""Share of the largest magnitude of an output by which an element may differ: LUT, sums of fp16."""

LEAST = 0.004
TIMES = 4.0
"""Times by which rounding each tensor to fp16 may move an element further than it does in onnxruntime."""

BYTES = 0.1
"""Share of the range of a quantised output by which an element may differ."""


class Judge:
    """Compares outputs of a graph with those of onnxruntime."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.wanted: list[Array] = session(graph.model).run(None, graph.feeds)
        quantised = any(node.op_type == "QuantizeLinear" for node in graph.model.graph.node)
        self.names = [output.name for output in graph.model.graph.output]
        rounded = self.wanted if quantised else self._rounded()
        self.bounds = []
        for wanted, other in zip(self.wanted, rounded, strict=True):
            largest = float(np.abs(wanted.astype(np.float64)).max(initial=0.0))
            moved = float(np.abs(wanted.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))
            if quantised:
                self.bounds.append(BYTES * largest + LEAST)
            else:
                self.bounds.append(SHARE * largest + LEAST + TIMES * moved)

    def _rounded(self) -> list[Array]:
        """Return the outputs with the floats of every operator rounded to fp16."""
        model = onnx.ModelProto()
        model.CopyFrom(self.graph.model)
        kinds = {item.name: item for item in onnx.shape_inference.infer_shapes(model).graph.value_info}
        outputs = {output.name for output in model.graph.output}
        nodes = []
        for node in model.graph.node:
            new = onnx.NodeProto()
            new.CopyFrom(node)
            later = []
            for place, name in enumerate(node.output):
                kind = kinds.get(name)
                if not name or not (name in outputs or (kind and kind.type.tensor_type.elem_type == 1)):
                    continue
                new.output[place] = f"{name}_exact"
                later.append(
                    helper.make_node("Cast", [f"{name}_exact"], [f"{name}_half"], to=TensorProto.FLOAT16)
                )
                later.append(helper.make_node("Cast", [f"{name}_half"], [name], to=TensorProto.FLOAT))
            nodes += [new, *later]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        return session(model).run(None, self.graph.feeds)

    def fault(self, found: Sequence[Array], shapes: bool = True) -> str | None:
        """Return what is wrong with outputs in the model's order; None if nothing is.

        Parameters
        ----------
        found
            An array for each output.
        shapes
            Whether the shapes are compared too; the C library gives elements only.
        """
        if len(found) != len(self.wanted):
            return f"{len(found)} outputs, not {len(self.wanted)}"
        for name, array, wanted, bound in zip(self.names, found, self.wanted, self.bounds, strict=True):
            if shapes and array.shape != wanted.shape:
                return f"{name} has shape {list(array.shape)}, not {list(wanted.shape)}"
            if array.size != wanted.size:
                return f"{name} has {array.size} elements, not {wanted.size}"
            away = np.abs(array.reshape(wanted.shape).astype(np.float64) - wanted.astype(np.float64))
            worst = float(np.nan_to_num(away, nan=np.inf).max(initial=0.0))
            if worst > bound:
                largest = float(np.abs(wanted.astype(np.float64)).max())
                count = int((np.nan_to_num(away, nan=np.inf) > bound).sum())
                return (
                    f"{name}: {count} of {wanted.size} elements are wrong, by up to {worst:.4g} "
                    f"(the bound is {bound:.3g}, the largest magnitude {largest:.4g})"
                )
        return None
