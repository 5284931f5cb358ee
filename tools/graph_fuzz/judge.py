"""What onnxruntime says about a graph, and how far fp16 and bytes may be away from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.graph_fuzz.draw import Array, Graph, session

SHARE = 0.008
"""Share of the largest magnitude of an output by which an element may differ: LUT, sums of fp16."""

LEAST = 0.004
TIMES = 4.0
"""Times by which rounding each tensor to fp16 may move an element further than it does in onnxruntime."""

NOISE = 0.75
"""Steps by which a number may be away when it is quantised."""

UNKNOWN = 1.025
"""Factor in place of a changed graph if onnxruntime does not take that one."""


class Judge:
    """Compares outputs of a graph with those of onnxruntime."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.wanted: list[Array] = session(graph.model).run(None, graph.feeds)
        quantised = any(node.op_type == "QuantizeLinear" for node in graph.model.graph.node)
        self.names = [output.name for output in graph.model.graph.output]
        others = [self._disturbed(1), self._disturbed(2)] if quantised else [self._rounded()]
        self.bounds = []
        for wanted, *moved in zip(self.wanted, *others, strict=True):
            exact = wanted.astype(np.float64)
            largest = float(np.abs(exact).max(initial=0.0))
            away = max(float(np.abs(exact - other.astype(np.float64)).max(initial=0.0)) for other in moved)
            self.bounds.append(SHARE * largest + LEAST + TIMES * away)

    def _disturbed(self, seed: int) -> list[Array]:
        """Return the outputs if each number that is quantised is up to `NOISE` steps away."""
        rng = np.random.default_rng(seed)
        model = onnx.ModelProto()
        model.CopyFrom(self.graph.model)
        scales = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
        quantised = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
        names = sorted({node.input[0] for node in quantised})
        everything = onnx.ModelProto()
        everything.CopyFrom(model)
        del everything.graph.output[:]
        everything.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        given = [name for name in names if name not in self.graph.feeds]
        values = (
            dict(zip(given, session(everything).run(given, self.graph.feeds), strict=True)) if given else {}
        )
        nodes = []
        for node in model.graph.node:
            if (
                node.op_type == "QuantizeLinear"
                and node.input[0] in values
                and scales[node.input[1]].size == 1
            ):
                name, array = f"{node.output[0]}_noise", values[node.input[0]]
                noise = NOISE * scales[node.input[1]] * rng.choice((-1.0, 1.0), array.shape)
                model.graph.initializer.append(numpy_helper.from_array(noise.astype(array.dtype), name))
                nodes.append(helper.make_node("Add", [node.input[0], name], [f"{name}d"]))
                node.input[0] = f"{name}d"
            nodes.append(node)
        kept = [_copy(node) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        return self._run(model)

    def _rounded(self) -> list[Array]:
        """Return the outputs with the floats of every operator rounded to fp16."""
        model = onnx.ModelProto()
        model.CopyFrom(self.graph.model)
        kinds = {item.name: item for item in onnx.shape_inference.infer_shapes(model).graph.value_info}
        outputs = {output.name for output in model.graph.output}
        nodes = []
        for node in model.graph.node:
            new = _copy(node)
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
        return self._run(model)

    def _run(self, model: onnx.ModelProto) -> list[Array]:
        """Return the outputs of a changed graph, and a guess if onnxruntime does not take it.

        Its shape inference is wrong for some windows.
        """
        try:
            return session(model).run(None, self.graph.feeds)
        except Exception:  # its classes have no public base
            return [np.multiply(array, UNKNOWN) for array in self.wanted]

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


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    new = onnx.NodeProto()
    new.CopyFrom(node)
    return new
