"""Compiler: a quantised network becomes a plan of tasks, register commands, and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.model import CompiledModel, TensorInfo, compile_model, keeping_tensors, using_cores
from rkcosim.compiler.runtime import LayerReport, LoadedModel, RunReport

if TYPE_CHECKING:
    from rkcosim.compiler.layer import compile_conv_layer

__getattr__ = lazy(__name__, {"compile_conv_layer": "rkcosim.compiler.layer"})

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
