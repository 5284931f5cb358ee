"""Quantisation of float ONNX models by onnxruntime, with the settings that fit this NPU."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from rkcosim.base import progress
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import import_onnxruntime, missing
from rkcosim.compiler.quantization.ranges import narrowed
from rkcosim.compiler.quantization.sharing import shared_ranges

Method = Literal["minmax", "percentile", "entropy", "mse"]
Sample = Mapping[str, npt.NDArray[Any]]
"""One inference's arrays by the names of the inputs."""

ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "PRelu", "HardSwish", "Sigmoid")
"""Operators that stay in floating point together with the layer in front of them."""


AT_OUTPUTS = (
    "Tanh HardSigmoid HardSwish Elu Selu Celu Erf Gelu Mish Softplus Softsign Exp Abs Neg Floor Ceil "
    "Reciprocal"
).split()
"""Functions of one number that onnxruntime does not quantise.  Results that are outputs of the model are
quantised here, so that the NPU computes them on bytes; between other layers their neighbours' quantisation
does that already."""

NEVER = ("LayerNormalization",)
"""Operators that onnxruntime quantises and the NPU has only in fp16."""

BEFORE_OUTPUT = "_QuantizeLinear_Input"
"""Suffix that onnxruntime gives to the tensor that becomes an output of the model."""


@dataclass(frozen=True)
class Settings:
    """How a model is quantised.

    Members
    -------
    method
        How ranges of activations are found: "minmax" takes the extreme values, "percentile" leaves out the
        outermost values, "entropy" minimises the Kullback-Leibler divergence of the histograms, "mse" the
        mean squared error.
    percentile
        Percentage of the values that "percentile" keeps.
    per_channel
        Whether weights have a scale for each output channel.
    keep
        Names of nodes that stay in floating point.
    share
        Names of Concats whose inputs have the range of the result (`sharing`).
    like
        The bytes of the same model that was quantised for other shapes: activations get its scales and zero
        points, and no ranges are measured. Empty for none.
    """

    method: Method = "minmax"
    percentile: float = 99.99
    per_channel: bool = True
    keep: tuple[str, ...] = ()
    share: tuple[str, ...] = ()
    like: bytes = b""


class _Reader:
    """Samples for onnxruntime's calibration, which are given out one at a time; reports the progress."""

    def __init__(self, samples: Sequence[Sample], shown: progress.Step) -> None:
        self._samples, self._shown = samples, shown
        self.set_range(0, len(samples))

    def __len__(self) -> int:
        return len(self._samples)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give out these samples next."""
        self._left = iter(self._samples[start_index:end_index])

    def get_next(self) -> Sample | None:
        """Return the next sample, None behind the last."""
        sample = next(self._left, None)
        if sample is not None:
            self._shown.advance()
        return sample


def quantize_model(
    proto: onnx.ModelProto, samples: Sequence[Sample], settings: Settings | None = None
) -> bytes:
    """Quantise a model: int8 in QDQ form, biases of int32.

    Weights are symmetric, activations asymmetric.  Channels whose weights are all 0 get the scale of the
    channel with the largest weights instead of 1.0.

    Parameters
    ----------
    proto
        A float model, from `rkcosim.compiler.quantization.prepared`.
    samples
        Calibration data.
    settings
        How to quantise; None for the defaults.

    Returns
    -------
    The bytes of the quantised ONNX model.

    Raises
    ------
    ModelError
        If there are no samples, a node of `keep` or a Concat of `share` does not exist, or onnxruntime fails
        or is not installed.
    """
    settings = settings or Settings()
    if not samples:
        raise ModelError("quantisation needs at least one calibration sample")
    nodes = {node.name for node in proto.graph.node}
    if unknown := [name for name in settings.keep if name not in nodes]:
        raise ModelError(f"no node of the model is named '{unknown[0]}', so it cannot stay in floating point")
    quantisation = _import()
    shared = shared_ranges(proto, settings.share, samples) if settings.share else {}
    method = {
        "minmax": quantisation.CalibrationMethod.MinMax,
        "percentile": quantisation.CalibrationMethod.Percentile,
    }.get(settings.method, quantisation.CalibrationMethod.MinMax)
    given = list(samples)
    extra: dict[str, Any] = {
        "ActivationSymmetric": False,
        "WeightSymmetric": True,
        "CalibStridedMinMax": 1,  # samples one at a time, so that memory does not grow with their number
        "CalibPercentile": settings.percentile,
    }
    source = copy.deepcopy(proto)
    source.metadata_props.add(key="onnx.infer", value="onnxruntime.quant")  # shapes and constants are known
    with (
        tempfile.TemporaryDirectory(prefix="rkcosim-") as folder,
        progress.step("calibrating", len(samples), "samples") as shown,
        _silent(),
    ):
        target = Path(folder, "int8.onnx")
        try:
            if settings.like:
                known = {name for node in proto.graph.node for name in (*node.input, *node.output)}
                extra["TensorQuantOverrides"] = {
                    name: [{"scale": scale, "zero_point": zero, "quant_type": quantisation.QuantType.QInt8}]
                    for name, (scale, zero) in activation_scales(settings.like).items()
                    if name in known
                }
                given = given[:1]
            elif settings.method in ("entropy", "mse"):
                reader = _Reader(samples, shown)
                ranges = narrowed(quantisation, source, reader, Path(folder), settings.method)
                extra["TensorQuantOverrides"] = _overrides({**ranges, **shared})
                given = given[:1]
            elif shared:
                extra["TensorQuantOverrides"] = _overrides(shared)
            quantisation.quantize_static(
                source,
                str(target),
                _Reader(given, shown),
                quant_format=quantisation.QuantFormat.QDQ,
                per_channel=settings.per_channel,
                activation_type=quantisation.QuantType.QInt8,
                weight_type=quantisation.QuantType.QInt8,
                op_types_to_quantize=[*_quantised_types(quantisation), *AT_OUTPUTS],
                nodes_to_exclude=[*with_activations(proto, settings.keep), *_inside(proto)],
                calibrate_method=method,
                extra_options=extra,
            )
        except Exception as error:  # onnxruntime's classes have no public base class
            text = " ".join(str(error).split())[:300]
            raise ModelError(f"onnxruntime cannot quantise the model: {text}") from error
        made = onnx.load(target)
    _revive(made.graph, {item.name: item for item in proto.graph.initializer})
    finished = bytes(made.SerializeToString())
    if settings.like:
        _same_scales(finished, settings.like)
    return finished


def _overrides(ranges: Mapping[str, tuple[float, float]]) -> dict[str, list[dict[str, Any]]]:
    """Return ranges of tensors as onnxruntime's quantiser takes them."""
    return {
        name: [{"rmin": np.float32(low), "rmax": np.float32(high)}] for name, (low, high) in ranges.items()
    }


def _quantised_types(quantisation: Any) -> list[str]:
    """Return the operators that onnxruntime quantises unless it is told others, without `NEVER`."""
    registry = quantisation.registry
    known = {**registry.QLinearOpsRegistry, **registry.QDQRegistry}
    return [name for name in known if name not in NEVER]


def _inside(proto: onnx.ModelProto) -> list[str]:
    """Return the names of nodes with a function of `AT_OUTPUTS` whose result is no output of the model."""
    ends = {item.name for item in proto.graph.output}
    return [
        node.name
        for node in proto.graph.node
        if node.op_type in AT_OUTPUTS and not ends.intersection(node.output)
    ]


def activation_scales(data: bytes) -> dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Return scale and zero point of each activation of a model in QDQ form, by the name of the tensor."""
    graph = onnx.load_model_from_string(data).graph
    tensors = {item.name: item for item in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] not in tensors:
            scale, zero = (numpy_helper.to_array(tensors[name]) for name in node.input[1:3])
            found[node.input[0].removesuffix(BEFORE_OUTPUT)] = (scale, zero)
    return found


def _same_scales(made: bytes, like: bytes) -> None:
    """Raise ModelError if a quantised model has a scale that another one does not have."""
    given = activation_scales(like)
    for name, (scale, zero) in activation_scales(made).items():
        if name not in given or given[name] != (scale, zero):
            raise ModelError(f"the model quantised for other shapes has no scale for the tensor '{name}'")


def with_activations(proto: onnx.ModelProto, names: Sequence[str]) -> list[str]:
    """Return the names of nodes, and of activation functions that are the only reader of one of them."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    ends = {item.name for item in proto.graph.output}
    found = list(names)
    for node in proto.graph.node:  # in topological order
        if node.name in found and node.output[0] not in ends:
            behind = readers.get(node.output[0], [])
            if len(behind) == 1 and behind[0].op_type in ACTIVATIONS and behind[0].name not in found:
                found.append(behind[0].name)
    return found


def between(proto: onnx.ModelProto, first: str, last: str) -> list[str]:
    """Return the names of the nodes between two tensors, in the model's order.

    These are the nodes that depend on the tensor `first` and on which the tensor `last` depends.

    Raises
    ------
    ModelError
        If a tensor does not exist, or `last` does not depend on `first`.
    """
    nodes = list(proto.graph.node)
    known = {name for node in nodes for name in (*node.input, *node.output)}
    for name in (first, last):
        if name not in known:
            raise ModelError(f"the model has no tensor '{name}'")
    reached, needed = {first}, {last}
    for node in nodes:  # in topological order
        if reached.intersection(node.input):
            reached.update(node.output)
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
    found = [
        node.name
        for node in nodes
        if reached.intersection(node.input) and needed.intersection(node.output) and first not in node.output
    ]
    if not found or last not in reached:
        raise ModelError(f"the tensor '{last}' does not depend on '{first}'")
    return found


def _import() -> Any:
    """Return the module onnxruntime.quantization; raises ModelError if it is not installed."""
    try:
        import_onnxruntime()
        import onnxruntime.quantization as quantisation
        import onnxruntime.quantization.registry  # noqa: F401  # a member of the module that is returned
    except ImportError as error:
        raise missing("onnxruntime", "onnx") from error
    return quantisation


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Leave out the messages of onnxruntime's quantiser about its own steps; some of them are printed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _revive(graph: onnx.GraphProto, floats: Mapping[str, onnx.TensorProto]) -> None:
    """Give channels whose weights are all 0 the largest scale of the others, and their biases anew.

    The quantiser gives them the scale 1.0, to which the scales of all other channels would be small.
    """
    makers = {name: node for node in graph.node for name in node.output}
    tensors = {item.name: item for item in graph.initializer}

    def array(name: str) -> npt.NDArray[Any]:
        return np.asarray(numpy_helper.to_array(tensors[name]))

    done: set[str] = set()
    for node in graph.node:
        sources = [makers.get(name) for name in node.input]
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or len(sources) < 2:
            continue
        data, weights = sources[0], sources[1]
        if data is None or weights is None or not {data.op_type, weights.op_type} == {"DequantizeLinear"}:
            continue
        if any(name not in tensors for name in weights.input) or data.input[1] not in tensors:
            continue
        codes, scales = array(weights.input[0]), array(weights.input[1])
        if scales.size < 2 or weights.input[1] in done:
            continue
        axis = next((item.i for item in weights.attribute if item.name == "axis"), 1)
        others = tuple(place for place in range(codes.ndim) if place != axis % codes.ndim)
        dead = ~codes.any(axis=others)
        if not dead.any() or dead.all():
            continue
        done.add(weights.input[1])
        new = np.where(dead, scales[~dead].max(), scales).astype(np.float32)
        tensors[weights.input[1]].CopyFrom(numpy_helper.from_array(new, weights.input[1]))
        bias = sources[2] if len(sources) > 2 else None
        if bias is None or bias.op_type != "DequantizeLinear" or bias.input[0] not in tensors:
            continue
        unit = (array(data.input[1]).reshape(-1)[0] * new).astype(np.float32)
        original = floats.get(bias.input[0].removesuffix("_quantized"))
        values = numpy_helper.to_array(original) if original is not None else None
        if values is None or values.size != unit.size:
            values = array(bias.input[0]) * array(bias.input[1])
        limit = 2**31 - 1
        codes = np.clip(np.rint(values.astype(np.float64).reshape(-1) / unit), -limit, limit).astype(np.int32)
        kept = array(bias.input[0]).reshape(-1)
        codes = np.where(dead, codes, kept)
        shape = tuple(tensors[bias.input[0]].dims)
        assert math.prod(shape) == codes.size
        tensors[bias.input[0]].CopyFrom(numpy_helper.from_array(codes.reshape(shape), bias.input[0]))
        tensors[bias.input[1]].CopyFrom(numpy_helper.from_array(unit, bias.input[1]))
