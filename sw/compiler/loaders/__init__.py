"""Readers of model files: ONNX and TFLite to the compiler's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rkcosim.compiler.graph import Graph, ModelError
from rkcosim.compiler.loaders.onnx_source import OnnxSource, load_onnx
from rkcosim.compiler.loaders.tflite_file import is_tflite
from rkcosim.compiler.loaders.tflite_graph import TfliteSource, load_tflite

__all__ = ["ModelError", "is_tflite", "load_model", "load_onnx", "load_tflite", "open_source"]

Source = Callable[[Mapping[str, str]], Graph]
"""Makes a new graph of a file; the argument has nodes for the host by name, with the reasons."""


def open_source(data: bytes) -> Source:
    """Read an ONNX or TFLite model once; the format is recognised from the content.

    Raises
    ------
    ModelError
        If the model cannot be read; the message names node and tensor.
    """
    return (TfliteSource if is_tflite(data) else OnnxSource)(data).graph


def load_model(data: bytes) -> Graph:
    """Read an ONNX or TFLite model; the format is recognised from the content.

    Raises
    ------
    ModelError
        If the model cannot be read or run; the message names node and tensor.
    """
    return open_source(data)({})
