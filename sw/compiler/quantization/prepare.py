"""Float ONNX models made ready for quantisation: folded, in a recent operator set, with the normalisation."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import exact_options, import_onnxruntime, missing
from rkcosim.compiler.loaders.onnx_file import inferred, input_shape, read_onnx
from rkcosim.compiler.loaders.onnx_fold import KEPT
from rkcosim.compiler.options import load_options

OPSET = 13
"""First operator set of ONNX whose QuantizeLinear and DequantizeLinear have a scale for each channel."""

QUANTISERS, CONSTANT = ("_scale", "_zero_point"), "@constant"
"""Endings that onnxruntime's quantiser gives to names of values, and the one that sets constants apart."""

NORMALISATION_OPSET = 17
"""First operator set of ONNX with LayerNormalization."""

ON_CODES = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
"""Operators of quantised models."""


@dataclass(frozen=True)
class Normalisation:
    """What precedes the first layer: (value - mean) / std for each channel.

    Members
    -------
    mean, std
        One number, or one for each channel (the second dimension of the input).
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises
        ------
        ModelError
            If a number is not finite, or a standard deviation is 0.
        """
        if not np.isfinite([*self.mean, *self.std]).all():
            raise ModelError("the mean and the standard deviation must be finite numbers")
        if 0.0 in self.std:
            raise ModelError("a standard deviation of 0 is not possible: values are divided by it")

    def concerns(self, shape: Sequence[int]) -> bool:
        """Return whether an input of this shape has four dimensions, or this number of channels."""
        channels = shape[1] if len(shape) > 1 else 1
        return len(shape) == 4 or all(len(values) in (1, channels) for values in (self.mean, self.std))

    def constants(self, name: str, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation as float32 arrays that are broadcast to an input.

        Parameters
        ----------
        name, shape
            Name and shape of the input.

        Raises
        ------
        ModelError
            If the input has another number of channels.
        """
        made = []
        for what, values in (("means", self.mean), ("standard deviations", self.std)):
            channels = shape[1] if len(shape) > 1 else 1
            if len(values) not in (1, channels):
                raise ModelError(
                    f"input '{name}' of shape {list(shape)} has {channels} channels, but there are "
                    f"{len(values)} {what}"
                )
            rest = [1] * max(len(shape) - 2, 0)
            made.append(
                np.array(values, np.float32).reshape([1, len(values), *rest] if len(shape) > 1 else [-1])
            )
        return made[0], made[1]

    def apply(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return the normalised values of an input as float32; raises ModelError like `constants`."""
        mean, std = self.constants(name, values.shape)
        normalised: np.ndarray = ((values.astype(np.float32) - mean) / std).astype(np.float32)
        return normalised


def for_inputs(
    several: Sequence[Normalisation], inputs: Mapping[str, Sequence[int]]
) -> dict[str, Normalisation]:
    """Return the normalisation of each input that has one, by its name.

    Parameters
    ----------
    several
        One for each input; or one for all, which applies to those of four dimensions and to those with its
        number of channels; empty for none.
    inputs
        Shapes of the inputs by name, in the model's order.

    Raises
    ------
    ModelError
        If there is another number of normalisations, or one does not fit its input.
    """
    if len(several) not in (0, 1, len(inputs)):
        raise ModelError(f"{len(several)} normalisations are given, the model has {len(inputs)} inputs")
    if len(several) > 1:
        chosen = dict(zip(inputs, several, strict=True))
    else:
        chosen = {name: one for one in several for name, shape in inputs.items() if one.concerns(shape)}
        if several and not chosen:
            chosen = {next(iter(inputs)): several[0]}
    for name, one in chosen.items():
        one.constants(name, inputs[name])
    return chosen


def prepared(data: bytes, normalisations: Sequence[Normalisation] = ()) -> onnx.ModelProto:
    """Read a float model and make it ready for quantisation.

    The model is read with the options of `rkcosim.compiler.options`; a BatchNormalization behind a
    convolution becomes part of it, and nodes without a name get that of their result.

    Parameters
    ----------
    data
        The bytes of an ONNX file.
    normalisations
        Computed by the model itself, one for each input; empty for none.

    Raises
    ------
    ModelError
        If the model is damaged, is already quantised, or onnxruntime refuses it or is not installed.
    """
    proto = read_onnx(data, load_options(), say=True)
    if any(
        node.op_type in ON_CODES or node.op_type.startswith(("QLinear", "QGemm")) for node in proto.graph.node
    ):
        raise ModelError(
            "the model is already quantised; `rkcosim accuracy` compares it with its float original"
        )
    proto = _with_normalisations(_recent(proto))
    if normalisations:
        _normalise(proto, normalisations)
    return inferred(_apart(_named(_optimised(proto))))


def _named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Give nodes without a name that of their first result, by which they can be kept in floating point."""
    taken = {node.name for node in proto.graph.node}
    for node in proto.graph.node:
        if not node.name and node.output and node.output[0] not in taken:
            node.name = node.output[0]
            taken.add(node.name)
    return proto


def _apart(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Rename constants that have the name that onnxruntime's quantiser gives to a scale or zero point.

    Models with subgraphs, which may read the constants, stay as they are.
    """
    if any(attribute.HasField("g") for node in proto.graph.node for attribute in node.attribute):
        return proto
    values = {name for node in proto.graph.node for name in node.output}
    values.update(item.name for item in proto.graph.input)
    made = {name + suffix for name in values for suffix in QUANTISERS}
    for item in proto.graph.initializer:
        if item.name in made:
            for node in proto.graph.node:
                for place, name in enumerate(node.input):
                    if name == item.name:
                        node.input[place] = name + CONSTANT
            item.name += CONSTANT
    return proto


def _recent(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model in an operator set of at least `OPSET`."""
    version = next((item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")), OPSET)
    if version >= OPSET:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, OPSET)
    except Exception as error:  # onnx' converter raises RuntimeError and classes of its C++ part
        text = " ".join(str(error).split())[:300]
        raise ModelError(
            f"the model has operator set {version}, quantisation needs {OPSET}, and onnx cannot convert it: "
            f"{text}"
        ) from error


def _with_normalisations(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Declare the operator set of LayerNormalization, which reading makes of one that is written out."""
    if any(node.op_type == "LayerNormalization" for node in proto.graph.node):
        for item in proto.opset_import:
            if item.domain in ("", "ai.onnx"):
                item.version = max(item.version, NORMALISATION_OPSET)
    return proto


def _normalise(proto: onnx.ModelProto, normalisations: Sequence[Normalisation]) -> None:
    """Put the normalisation in front of the inputs' readers."""
    graph = proto.graph
    shapes = {
        item.name: [size for size in input_shape(item) if isinstance(size, int)] for item in graph.input
    }
    types = {item.name: item.type.tensor_type.elem_type for item in graph.input}
    made = []
    for name, normalisation in for_inputs(normalisations, shapes).items():
        shape = shapes[name]
        if types[name] != onnx.TensorProto.FLOAT:
            continue
        mean, std = normalisation.constants(name, shape)
        factor, offset = (1 / std).astype(np.float32), (-mean / std).astype(np.float32)
        for node in graph.node:
            for place, read in enumerate(node.input):
                if read == name:
                    node.input[place] = f"{name}@normalised"
        made += _affine(graph, name, shape, factor, offset)
    nodes = [*made, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _affine(
    graph: onnx.GraphProto, name: str, shape: Sequence[int], factor: np.ndarray, offset: np.ndarray
) -> list[onnx.NodeProto]:
    """Return nodes that compute input * factor + offset: a depthwise convolution of one tap for maps.

    Its weights have a scale for each channel, so that quantisation does not change the factors.
    """
    target = f"{name}@normalised"
    names = [f"{target}_factor", f"{target}_offset"]
    if len(shape) != 4:
        graph.initializer.append(numpy_helper.from_array(factor, names[0]))
        graph.initializer.append(numpy_helper.from_array(offset, names[1]))
        scaled = f"{name}@scaled"
        return [
            helper.make_node("Mul", [name, names[0]], [scaled], scaled),
            helper.make_node("Add", [scaled, names[1]], [target], target),
        ]
    channels = shape[1]
    weights = np.broadcast_to(factor, (1, channels, 1, 1)).reshape(channels, 1, 1, 1)
    bias = np.broadcast_to(offset, (1, channels, 1, 1)).reshape(channels)
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(weights), names[0]))
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(bias), names[1]))
    return [helper.make_node("Conv", [name, *names], [target], target, kernel_shape=[1, 1], group=channels)]


def _optimised(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with constants folded and batch normalisations joined to convolutions."""
    try:
        onnxruntime = import_onnxruntime()
    except ImportError as error:
        raise missing("onnxruntime", "onnx") from error
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
        options = exact_options(onnxruntime)
        options.optimized_model_filepath = str(Path(folder, "model.onnx"))
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 4
        unused = [name for name in KEPT if name != "ConvBNFusion"]
        try:
            onnxruntime.InferenceSession(
                proto.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=unused,
            )
        except Exception as error:  # its exception classes have no public base class
            text = " ".join(str(error).split())[:300]
            raise ModelError(f"onnxruntime refuses the model: {text}") from error
        made = onnx.load(Path(folder, "model.onnx"))
    used = {node.domain for node in made.graph.node}
    kept = [item for item in made.opset_import if item.domain in ("", "ai.onnx") or item.domain in used]
    del made.opset_import[:]
    made.opset_import.extend(kept)
    _name_parts(made.graph)
    return made


_PART = "_inlfunc_"
"""How onnxruntime begins the names of tensors inside of an operator that it replaces by its definition."""


def _name_parts(graph: onnx.GraphProto) -> None:
    """Name the parts of such an operator after its output: `y@HS_X` instead of `_inlfunc_HardSwish_HS_X`."""
    readers: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        readers |= {name: node for name in node.input if name not in readers}
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    names: dict[str, str] = {}
    for part in sorted(name for name in taken if name.startswith(_PART)):
        end = part
        while end.startswith(_PART) and end in readers:
            end = readers[end].output[0]
        if not end.startswith(_PART):
            new = f"{end}@{part.removeprefix(_PART).partition('_')[2] or 'part'}"
            while new in taken:
                new += "_"
            names[part] = new
            taken.add(new)
    for node in graph.node:
        for own in (node.input, node.output):
            for place, name in enumerate(own):
                own[place] = names.get(name, name)
        node.name = names.get(node.name, node.name)
    for item in (*graph.initializer, *graph.value_info):
        item.name = names.get(item.name, item.name)
