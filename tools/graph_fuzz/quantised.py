"""The QDQ form of a drawn graph, by onnxruntime's quantiser."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from pathlib import Path

import numpy as np
import onnx

from tools.graph_fuzz.draw import Array, Graph, session

OPERATORS = [
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Mul", "Relu", "Clip", "Sigmoid", "MaxPool"),
    *("AveragePool", "GlobalAveragePool", "Concat", "Resize", "Split", "Slice", "Reshape", "Transpose"),
    *("LeakyRelu", "Softmax", "Pad", "Sub", "ReduceMean", "Tanh", "HardSwish", "Squeeze", "Unsqueeze"),
]


class _Reader:
    """The inputs of a graph a few times: as drawn, halved, negated."""

    def __init__(self, feeds: dict[str, Array]) -> None:
        self.items = iter(
            [feeds, *({n: np.multiply(a, s).astype(a.dtype) for n, a in feeds.items()} for s in (0.5, -1))]
        )

    def get_next(self) -> dict[str, Array] | None:
        return next(self.items, None)


def quantised(graph: Graph) -> Graph | None:
    """Return the graph in int8; None if the quantiser or onnxruntime does not take it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(_Reader, CalibrationDataReader):
        pass

    with tempfile.TemporaryDirectory(prefix="quantised-") as name:
        path, to = Path(name) / "float.onnx", Path(name) / "int8.onnx"
        path.write_bytes(graph.model.SerializeToString())
        logging.disable(logging.WARNING)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                quantize_static(
                    path,
                    to,
                    Reader(graph.feeds),
                    quant_format=QuantFormat.QDQ,
                    activation_type=QuantType.QInt8,
                    weight_type=QuantType.QInt8,
                    per_channel=graph.seed % 2 == 0,
                    op_types_to_quantize=OPERATORS,
                )
            model = onnx.load(to)
            results = session(model).run(None, graph.feeds)
        except Exception:  # the quantiser has no class of its own for what it does not take
            return None
        finally:
            logging.disable(logging.NOTSET)
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        return None
    if not all(np.isfinite(array).all() for array in results):
        return None
    return Graph(model, graph.feeds, graph.seed)
