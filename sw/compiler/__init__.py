"""Compiler: quantised network -> plan of tasks -> register commands -> results."""

from __future__ import annotations

from sw.compiler.graph import ModelError
from sw.compiler.layer import compile_conv_layer
from sw.compiler.model import CompiledModel, TensorInfo, compile_model, keeping_tensors, using_cores
from sw.compiler.runtime import LayerReport, LoadedModel, RunReport

__all__ = [
    "CompiledModel",
    "LayerReport",
    "LoadedModel",
    "ModelError",
    "RunReport",
    "TensorInfo",
    "compile_conv_layer",
    "compile_model",
    "keeping_tensors",
    "using_cores",
]
