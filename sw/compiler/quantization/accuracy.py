"""Comparison of a quantised ONNX model with its float original, layer by layer, in onnxruntime.

Both models run on the same samples.  "Accumulated" figures compare the tensors of these two runs.  For the
figures of a layer alone, each layer of the quantised model gets the tensors of the float model, rounded to
the codes of its inputs: the quantised model is cut at every tensor that the float model has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import onnx

from rkcosim.base import progress
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.quantization.channels import CODES, CONCATS, FEW, Codes, CodeSums, sentence
from rkcosim.compiler.quantization.figures import Figures, Sums, order
from rkcosim.compiler.quantization.gains import output_gains
from rkcosim.compiler.quantization.session import Sample, Session
from rkcosim.compiler.quantization.trials import Advice

SCHEMA_VERSION = 1

PAIR = ("QuantizeLinear", "DequantizeLinear")

MOVEMENTS = frozenset(
    "Concat DepthToSpace Expand Flatten Gather Identity MaxPool Pad Reshape Resize Slice SpaceToDepth Split "
    "Squeeze Tile Transpose Unsqueeze Upsample".split()
)
"""Operators without arithmetic, which `Accuracy.worst` does not propose for floating point."""

SHOWN = 6
"""Inner tensors that a finding names."""

TRIED_SAMPLES = 4
"""Most samples on which layers are tried in floating point."""

_ALONE, _CODES, _REAL = "@alone", "@alone_codes", "@alone_real"
_SUFFIX = "_QuantizeLinear_Input"
"""Ending that onnxruntime's quantiser gives to a tensor in front of the quantisation of an output."""


@dataclass
class Layer:
    """A layer of the quantised model.

    Members
    -------
    name, op
        Name and operator of its node.
    tensor
        Name of its result in the float model.
    scale
        A step of the result's quantisation; None if it is in floating point.
    alone
        Figures when the layer's inputs are those of the float model.
    accumulated
        Figures when all layers in front of it are quantised, too.
    output
        Figures of the model's worst output when this layer alone is in floating point; None if it was not
        tried.
    codes
        Range, step and the codes that are in use, on the same samples as `accumulated`; None if the result is
        in floating point.
    """

    name: str
    op: str
    tensor: str
    scale: float | None
    alone: Figures
    accumulated: Figures
    output: Figures | None = None
    codes: Codes | None = None


@dataclass
class Accuracy:
    """Result of `measure`.

    Members
    -------
    samples
        Number of samples.
    layers
        In the model's order.
    outputs
        Accumulated figures of the model's outputs by name.
    kept
        Names of the layers with weights that are in floating point.
    skipped
        Names of nodes of the quantised model whose result the float model does not have.
    runtime
        Name of the runtime that computed both models.
    npu
        Figures of the outputs when the NPU's arithmetic computes them; empty if it was not asked for.
    advice
        Changes that were tried, with the errors of the outputs that they leave; None if it was not asked for.
    remarks
        What is said of the method of the ranges.
    """

    samples: int
    layers: list[Layer]
    outputs: dict[str, Figures]
    kept: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    npu: dict[str, Figures] = field(default_factory=dict)
    runtime: str = "onnxruntime"
    advice: Advice | None = None
    remarks: list[str] = field(default_factory=list)

    def float_outputs(self) -> list[Layer]:
        """Return the layers that compute outputs, are not kept in floating point and are not quantised."""
        return [
            layer
            for layer in self.layers
            if layer.tensor in self.outputs and not layer.scale and layer.name not in self.kept
        ]

    def ranked(self) -> list[Layer]:
        """Return the quantised layers, those that matter most first.

        Layers that were tried in floating point are sorted by the SQNR of the worst output with them, the
        largest first.  The others follow, the one with the largest error alone first.
        """

        def key(layer: Layer) -> tuple[float, float]:
            return (-order(layer.output) if layer.output else np.inf), order(layer.alone)

        return sorted((layer for layer in self.layers if layer.scale), key=key)

    def worst(self, count: int) -> list[Layer]:
        """Return the first `count` layers of `ranked` with arithmetic."""
        return [layer for layer in self.ranked() if layer.op not in MOVEMENTS][:count]

    def findings(self) -> list[str]:
        """Return what is wrong with the codes of tensors in words: outputs and Concats, then a count."""
        said, others = [], []
        for layer in reversed(self.layers):
            if layer.codes is None:
                continue
            words = sentence(layer.tensor, layer.op, layer.name, layer.codes)
            if words is None:
                continue
            if layer.tensor in self.outputs or layer.op in CONCATS:
                said.append(words)
            else:
                others.append(layer.tensor)
        if others:
            others.reverse()
            shown = ", ".join(others[:SHOWN]) + (" and others" if len(others) > SHOWN else "")
            said.append(
                f"{len(others)} of {len(self.layers)} inner tensors have channels that use fewer than {FEW} "
                f"of {CODES} codes: {shown}"
            )
        return said

    def as_json(self) -> dict[str, Any]:
        """Return everything in a form for `json.dump`."""
        proposed = [layer.name for layer in self.worst(len(self.layers))]
        document = {"schema_version": SCHEMA_VERSION, **asdict(self), "float_first": proposed}
        return document | {"findings": self.findings()}


NOTHING = (
    "no operator of the float model computes numbers in floating point, so there is nothing to quantise; "
    "build it without quantisation"
)
"""What is said of a model without operators, or with operators on integers only."""


@dataclass
class _Place:
    """Where the result of a node of the quantised model is.

    `base` is the tensor's name in the float model, `pair` its QuantizeLinear and DequantizeLinear, `zero` the
    code of 0 (None without codes of 8 bits), `signed` whether codes are signed, `takes` the node's inputs in
    front of their quantisation.
    """

    node: onnx.NodeProto
    tensor: str
    base: str
    pair: tuple[onnx.NodeProto, onnx.NodeProto] | None
    scale: float | None
    zero: int | None = 0
    signed: bool = True
    takes: tuple[str, ...] = ()

    @property
    def real(self) -> str:
        """Name of the result behind its quantisation."""
        return self.pair[1].output[0] if self.pair else self.tensor


def measure(
    original: onnx.ModelProto,
    quantised: onnx.ModelProto,
    samples: Sequence[Sample],
    *,
    gains: bool = False,
) -> Accuracy:
    """Compare a quantised model with its float original.

    Parameters
    ----------
    original, quantised
        The models; the quantised one has QuantizeLinear and DequantizeLinear.  Tensors are matched by name.
    samples
        Arrays for the inputs of both, by name.
    gains
        Whether each layer with arithmetic is tried in floating point, on at most `TRIED_SAMPLES` samples:
        one run of the model for each layer and sample.

    Raises
    ------
    ModelError
        If the models have other inputs or no common tensor, or onnxruntime fails or is not installed.
    """
    if not samples:
        raise ModelError("a comparison needs at least one sample")
    _same_inputs(original, quantised)
    first = Session(original, _tensors(original), samples[0])
    if not first.floats & set(_tensors(original)):
        raise ModelError(NOTHING)
    places = list(_places(quantised, first.floats | {item.name for item in original.graph.output}))
    found = [place for place in places if place.base in first.floats]
    if not found:
        raise ModelError(
            "no tensor of the quantised model has the name of one of the float model; are they two forms of "
            "the same model?"
        )
    cut = _cut(quantised, found)
    ends = _ends(original, quantised)
    whole = Session(quantised, list(dict.fromkeys([*(place.real for place in found), *ends.values()])))
    single = Session(cut, [item.name for item in cut.graph.output])
    alone, accumulated = [Sums() for _ in found], [Sums() for _ in found]
    outputs = {name: Sums() for name in ends}
    counts = [_counts(place, first.floats | set(samples[0])) for place in found]
    inputs = {item.name for item in cut.graph.input}
    with progress.step("measuring the accuracy", len(samples), "samples") as shown:
        for sample in samples:
            right, ours = first(sample), whole(sample)
            feed = {name: right.get(_base(name, right), sample.get(name)) for name in inputs}
            lonely = single(feed)
            for number, place in enumerate(found):
                want = right[place.base]
                accumulated[number].add(want, ours[place.real])
                if (count := counts[number]) is not None:
                    count.add(want, ours[place.real], {**sample, **right})
                alone[number].add(want, lonely[place.tensor + (_REAL if place.pair else _ALONE)])
            for name, sums in outputs.items():
                sums.add(right[name], ours[ends[name]])
            shown.advance()
    layers = [
        Layer(
            place.node.name,
            place.node.op_type,
            place.base,
            place.scale,
            alone[number].figures(place.scale),
            accumulated[number].figures(place.scale),
            codes=count.codes() if (count := counts[number]) is not None else None,
        )
        for number, place in enumerate(found)
    ]
    if gains:
        pairs = {place.node.output[0]: place.pair for place in found if place.pair is not None}
        tried = [layer.name for layer in layers if layer.scale and layer.op not in MOVEMENTS]
        outputs_of = output_gains(original, quantised, ends, tried, pairs, samples[:TRIED_SAMPLES])
        for layer in layers:
            layer.output = outputs_of.get(layer.name)
    scales = {place.real: place.scale for place in found}
    return Accuracy(
        samples=len(samples),
        layers=layers,
        outputs={name: sums.figures(scales.get(ends[name])) for name, sums in outputs.items()},
        kept=list(_in_floats(quantised)),
        skipped=[place.node.name for place in places if place.base not in first.floats],
    )


def _counts(place: _Place, known: set[str]) -> CodeSums | None:
    """Return the counts of codes of a result; None if it is not quantised with 8 bits and one step."""
    if place.zero is None or not place.scale:
        return None
    parts = [_base(name, known) for name in place.takes] if place.node.op_type in CONCATS else []
    return CodeSums(place.scale, place.zero, place.signed, parts=parts)


def _same_inputs(original: onnx.ModelProto, quantised: onnx.ModelProto) -> None:
    names = [[item.name for item in proto.graph.input] for proto in (original, quantised)]
    if names[0] != names[1]:
        raise ModelError(
            f"the float model has the inputs {', '.join(names[0])}, the quantised one {', '.join(names[1])}"
        )


def _tensors(proto: onnx.ModelProto) -> list[str]:
    return list(dict.fromkeys(name for node in proto.graph.node for name in node.output if name))


def _base(name: str, known: Any) -> str:
    """Return the name of a tensor of the quantised model in the float one."""
    return name if name in known else name.removesuffix(_SUFFIX)


def _places(proto: onnx.ModelProto, known: set[str]) -> Iterator[_Place]:
    """Yield the result of each node that computes something, also of those that `known` does not have."""
    constants = {item.name: item for item in proto.graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    origins = _origins(proto)
    for node in proto.graph.node:
        if node.op_type in PAIR or all(name in constants for name in node.input):
            continue
        takes = tuple(origins.get(name, name) for name in node.input)
        for tensor in node.output[:1] if node.op_type != "Split" else node.output:
            pair, scale, zero, signed = None, None, None, True
            coder = next((one for one in readers.get(tensor, ()) if one.op_type == PAIR[0]), None)
            if coder is not None and coder.input[1] in constants:
                decoder = next((r for r in readers.get(coder.output[0], ()) if r.op_type == PAIR[1]), None)
                if decoder is not None:
                    pair = coder, decoder
                    scale = float(onnx.numpy_helper.to_array(constants[coder.input[1]]).reshape(-1)[0])
                    zero, signed = _zero(coder, constants)
            base = _base(tensor, known)
            if base not in known and pair is not None and pair[1].output[0] in known:
                base = pair[1].output[0]
            yield _Place(node, tensor, base, pair, scale, zero, signed, takes)


def _origins(proto: onnx.ModelProto) -> dict[str, str]:
    """Return the names of quantised tensors in front of their quantisation, by their names behind it."""
    coders = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type == PAIR[0]}
    return {
        node.output[0]: coders[node.input[0]]
        for node in proto.graph.node
        if node.op_type == PAIR[1] and node.input[0] in coders
    }


def _zero(coder: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[int | None, bool]:
    """Return the code of 0 of a QuantizeLinear, None if it has not 8 bits, and whether codes are signed."""
    name = coder.input[2] if len(coder.input) > 2 else ""
    if name not in constants:
        return 0, False  # ONNX's default is uint8
    zero = onnx.numpy_helper.to_array(constants[name]).reshape(-1)
    return int(zero[0]) if zero.dtype.itemsize == 1 else None, zero.dtype.kind == "i"


def _ends(original: onnx.ModelProto, quantised: onnx.ModelProto) -> dict[str, str]:
    """Return the names of the quantised model's outputs by those of the float model's."""
    ours, theirs = ([item.name for item in proto.graph.output] for proto in (quantised, original))
    if len(ours) != len(theirs):
        raise ModelError(f"the float model has {len(theirs)} outputs, the quantised one {len(ours)}")
    if set(ours) == set(theirs):
        return {name: name for name in theirs}
    return dict(zip(theirs, ours, strict=True))


def run_as(
    original: onnx.ModelProto, quantised: onnx.ModelProto, samples: Sequence[Sample]
) -> list[dict[str, Any]]:
    """Return the outputs of a quantised model by their names in the float model, for each sample.

    Raises
    ------
    ModelError
        If the models have other inputs or outputs, or onnxruntime fails or is not installed.
    """
    _same_inputs(original, quantised)
    ends = _ends(original, quantised)
    run = Session(quantised, list(ends.values()))
    return [{name: found[ours] for name, ours in ends.items()} for found in map(run, samples)]


def _in_floats(proto: onnx.ModelProto) -> Iterator[str]:
    """Yield the names of nodes with weights that do not come from a DequantizeLinear."""
    constants = {item.name: item for item in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") and node.input[1] in constants:
            yield node.name


def _cut(proto: onnx.ModelProto, places: Sequence[_Place]) -> onnx.ModelProto:
    """Return the quantised model cut at the results of `places`.

    The name of such a tensor becomes an input, which the layers behind it read; the result itself gets
    another name and, if it has one, a copy of the tensor's quantisation.
    """
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph = made.graph
    names = {place.tensor for place in places}
    for node in graph.node:
        if node.op_type not in PAIR:
            for number, name in enumerate(node.output):
                if name in names:
                    node.output[number] = name + _ALONE
    del graph.output[:], graph.value_info[:]
    for place in places:
        end = place.tensor + _ALONE
        if place.pair is not None:
            for node, source, target in zip(
                place.pair,
                (end, place.tensor + _CODES),
                (place.tensor + _CODES, place.tensor + _REAL),
                strict=True,
            ):
                copy = graph.node.add()
                copy.CopyFrom(node)
                copy.name = target
                copy.input[0], copy.output[0] = source, target
            end = place.tensor + _REAL
        graph.output.append(onnx.ValueInfoProto(name=end))
    read = {name for node in graph.node for name in node.input}
    for name in dict.fromkeys(place.tensor for place in places if place.tensor in read):
        graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return made
