"""Readers of model files to the compiler's graph, by kind: ONNX, TFLite and TNN.

Each reader registers an interpreter (`rkcosim.compiler.interpreters`); `rkcosim.rknn_file.model` adds
those of files that have a plan of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rkcosim.compiler.graph import Graph, ModelError
from rkcosim.compiler.interpreters import Divided, ModelInterpreter, Source, interpreter_of, register
from rkcosim.compiler.loaders.onnx_file import read_onnx
from rkcosim.compiler.loaders.onnx_source import OnnxSource, load_onnx
from rkcosim.compiler.loaders.tflite_file import is_tflite, read_tflite
from rkcosim.compiler.loaders.tflite_graph import TfliteSource, load_tflite
from rkcosim.compiler.options import load_options

__all__ = ["ModelError", "is_tflite", "load_model", "load_onnx", "load_tflite", "open_source"]


def _onnx_types(data: bytes) -> Mapping[str, int]:
    return Counter(node.op_type for node in read_onnx(data, load_options()).graph.node)


def _tflite_types(data: bytes) -> Mapping[str, int]:
    return Counter(node.op for node in read_tflite(data, load_options().signature).nodes)


def _onnx(data: bytes) -> Divided:
    return OnnxSource(data).divided()


def _tflite(data: bytes) -> Divided:
    return TfliteSource(data).divided()


def _tnn_types(data: bytes) -> Mapping[str, int]:
    from rkcosim.compiler.loaders.tnn import layer_types

    return layer_types(data)


def _tnn_file(data: bytes) -> OnnxSource:
    from rkcosim.compiler.loaders.tnn import read_network, to_onnx

    return OnnxSource(to_onnx(read_network(data)).SerializeToString())


def _tnn_source(data: bytes) -> Source:
    return _tnn_file(data).graph


def _tnn(data: bytes) -> Divided:
    return _tnn_file(data).divided()


register(ModelInterpreter("ONNX model", lambda data: OnnxSource(data).graph, _onnx, structure=_onnx_types))
register(
    ModelInterpreter("TFLite model", lambda data: TfliteSource(data).graph, _tflite, structure=_tflite_types)
)
register(ModelInterpreter("TNN network", _tnn_source, _tnn, structure=_tnn_types))


def open_source(data: bytes) -> Source:
    """Read a model once; the format is recognised from the content.

    Raises
    ------
    ModelError
        If the model cannot be read; the message names node and tensor.
    """
    found = interpreter_of(data)
    if found.source is None:
        raise ModelError(f"a {found.kind} has a plan of its own; it is opened by rkcosim.rknn_file.model")
    return found.source(data)


def load_model(data: bytes) -> Graph:
    """Read a model; the format is recognised from the content.

    Raises
    ------
    ModelError
        If the model cannot be read or run; the message names node and tensor.
    """
    return open_source(data)({})
