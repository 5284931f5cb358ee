"""Float models become int8 models for the NPU, and are compared with their originals."""

from __future__ import annotations

from rkcosim.compiler.quantization.accuracy import Accuracy, Layer, measure
from rkcosim.compiler.quantization.advice import advise, divided
from rkcosim.compiler.quantization.figures import Figures, worst_of
from rkcosim.compiler.quantization.forms import (
    FloatModel,
    ModelInput,
    OnnxModel,
    TfliteModel,
    open_float_model,
)
from rkcosim.compiler.quantization.mixed import keep_most_important
from rkcosim.compiler.quantization.prepare import Normalisation, for_inputs, prepared
from rkcosim.compiler.quantization.quantizer import Method, Settings, between, quantize_model
from rkcosim.compiler.quantization.scores import Score
from rkcosim.compiler.quantization.selection import Selection, method_text, range_options, select_ranges
from rkcosim.compiler.quantization.trials import Advice, Cost, Trial

__all__ = [
    "Accuracy",
    "Advice",
    "Cost",
    "Figures",
    "FloatModel",
    "Layer",
    "Method",
    "ModelInput",
    "Normalisation",
    "OnnxModel",
    "Score",
    "Selection",
    "Settings",
    "TfliteModel",
    "Trial",
    "advise",
    "between",
    "divided",
    "for_inputs",
    "keep_most_important",
    "measure",
    "method_text",
    "open_float_model",
    "prepared",
    "quantize_model",
    "range_options",
    "select_ranges",
    "worst_of",
]
