"""Compiler: a quantised network becomes a plan of tasks, register commands, and results."""

from __future__ import annotations

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.layer import compile_conv_layer
from rkcosim.compiler.model import CompiledModel, TensorInfo, compile_model, keeping_tensors, using_cores
from rkcosim.compiler.runtime import LayerReport, LoadedModel, RunReport

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
