"""The interpreter of TFLite models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rkcosim.compiler.interpreters import Divided, ModelInterpreter, register
from rkcosim.compiler.loaders.tflite_file import read_tflite
from rkcosim.compiler.loaders.tflite_graph import TfliteSource
from rkcosim.compiler.options import load_options


def _types(data: bytes) -> Mapping[str, int]:
    return Counter(node.op for node in read_tflite(data, load_options().signature).nodes)


def _divided(data: bytes) -> Divided:
    return TfliteSource(data).divided()


register(ModelInterpreter("TFLite model", lambda data: TfliteSource(data).graph, _divided, structure=_types))
