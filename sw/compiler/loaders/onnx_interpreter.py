"""The interpreter of ONNX models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rkcosim.compiler.interpreters import Divided, ModelInterpreter, register
from rkcosim.compiler.loaders.onnx_file import read_onnx
from rkcosim.compiler.loaders.onnx_source import OnnxSource
from rkcosim.compiler.options import load_options


def _types(data: bytes) -> Mapping[str, int]:
    return Counter(node.op_type for node in read_onnx(data, load_options()).graph.node)


def _divided(data: bytes) -> Divided:
    return OnnxSource(data).divided()


register(ModelInterpreter("ONNX model", lambda data: OnnxSource(data).graph, _divided, structure=_types))
