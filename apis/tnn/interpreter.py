"""The interpreter of TNN's networks, which become ONNX models."""

from __future__ import annotations

from rkcosim.apis.tnn.loader import layer_types, read_network, to_onnx
from rkcosim.compiler.interpreters import Divided, ModelInterpreter, Source, register
from rkcosim.compiler.loaders.onnx_source import OnnxSource


def _file(data: bytes) -> OnnxSource:
    return OnnxSource(to_onnx(read_network(data)).SerializeToString())


def _source(data: bytes) -> Source:
    return _file(data).graph


def _divided(data: bytes) -> Divided:
    return _file(data).divided()


register(ModelInterpreter("TNN network", _source, _divided, structure=layer_types))
