"""Readers of model files to the compiler's graph, by kind: ONNX, TFLite and TNN.

Each has an interpreter (`rkcosim.compiler.interpreters`), which is imported for files of its kind;
`rkcosim.rknn_file` names that of files which have a plan of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy
from rkcosim.compiler.graph import Graph, ModelError
from rkcosim.compiler.interpreters import Source, interpreter_of

if TYPE_CHECKING:
    from rkcosim.compiler.loaders.onnx_source import load_onnx
    from rkcosim.compiler.loaders.tflite_file import is_tflite
    from rkcosim.compiler.loaders.tflite_graph import load_tflite

__all__ = ["ModelError", "is_tflite", "load_model", "load_onnx", "load_tflite", "open_source"]

__getattr__ = lazy(
    __name__,
    {
        "is_tflite": "rkcosim.compiler.loaders.tflite_file",
        "load_onnx": "rkcosim.compiler.loaders.onnx_source",
        "load_tflite": "rkcosim.compiler.loaders.tflite_graph",
    },
)


def open_source(data: bytes) -> Source:
    """Read a model once; the format is recognised from the content.

    Raises
    ------
    ModelError
        If the model cannot be read; the message names node and tensor.
    """
    found = interpreter_of(data)
    if found.source is None:
        raise ModelError(f"a {found.kind} has a plan of its own; it is opened by rkcosim.rknn_file.opening")
    return found.source(data)


def load_model(data: bytes) -> Graph:
    """Read a model; the format is recognised from the content.

    Raises
    ------
    ModelError
        If the model cannot be read or run; the message names node and tensor.
    """
    return open_source(data)({})
