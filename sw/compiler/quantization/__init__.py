"""Float ONNX models become int8 models in QDQ form for the NPU, and are compared with their originals."""

from __future__ import annotations

from rkcosim.compiler.quantization.accuracy import Accuracy, Layer, measure
from rkcosim.compiler.quantization.figures import Figures, worst_of
from rkcosim.compiler.quantization.mixed import keep_most_important
from rkcosim.compiler.quantization.prepare import Normalisation, for_inputs, prepared
from rkcosim.compiler.quantization.quantizer import Method, Settings, between, quantize_model

__all__ = [
    "Accuracy",
    "Figures",
    "Layer",
    "Method",
    "Normalisation",
    "Settings",
    "between",
    "for_inputs",
    "keep_most_important",
    "measure",
    "prepared",
    "quantize_model",
    "worst_of",
]
