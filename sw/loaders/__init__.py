"""Model files to the compiler's graph."""

from __future__ import annotations

from sw.compiler.graph import Graph, ModelError
from sw.loaders.onnx_qdq import load_onnx
from sw.loaders.tflite_file import is_tflite
from sw.loaders.tflite_graph import load_tflite

__all__ = ["ModelError", "is_tflite", "load_model", "load_onnx", "load_tflite"]


def load_model(data: bytes) -> Graph:
    """Read an ONNX or TFLite model, told apart by content.

    Raises
    ------
    ModelError
        for a model that cannot be read or run; the message names node and tensor.
    """
    return load_tflite(data) if is_tflite(data) else load_onnx(data)
