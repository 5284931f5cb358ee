"""Model files to the compiler's graph."""

from __future__ import annotations

from sw.compiler.graph import ModelError
from sw.loaders.onnx_qdq import load_onnx

__all__ = ["ModelError", "load_onnx"]
