"""TFLite models of batches: which operators treat the samples one by one.

The NPU's tensors have a batch of one.  If all operators of a model treat the samples one by one, the model
can be compiled for one sample (`sample_of`).  If not, those that do are repeated for each sample, on tensors
of one sample; a SPLIT and a CONCATENATION on the host lead there and back (`unbatched`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rkcosim.compiler.loaders.tflite_file import SYNTHETIC, TfModel, TfNode, TfTensor, new_constant

MOST = 64
"""Largest batch whose samples are computed one by one; the host computes models of larger ones."""

MOST_NODES = 10**4
"""Largest number of operators after the repetition."""

Check = Callable[["_Samples", TfNode], bool]


def unbatched(model: TfModel) -> TfModel:
    """Return a model in which operators on batches are repeated for each sample, where that is possible.

    Parameters
    ----------
    model
        The model; it is returned unchanged if it has no batch of maps, or one of more than `MOST` samples.
    """
    sizes = {model.tensors[n].shape[0] for n in model.inputs if len(model.tensors[n].shape) > 2} - {1}
    if len(sizes) != 1 or not 1 < min(sizes) <= MOST or len(model.nodes) * min(sizes) > MOST_NODES:
        return model
    return _Samples(model, sizes.pop()).run()


def sample_of(model: TfModel, samples: int) -> tuple[TfModel, set[int]] | None:
    """Return the model for one sample, and the tensors that have samples in front; None if an operator may
    use more of its input than one sample for a sample of its result.

    Parameters
    ----------
    model
        The model.
    samples
        First dimension of its inputs, above 1.
    """
    state = _Samples(model, samples)
    tensors, batched = list(model.tensors), set(model.inputs)
    for node in model.nodes:
        moving = state.moving(node)
        table = {**EACH, **ALSO}
        if not moving or not batched.issuperset(moving) or not state.each(node, table):
            return None
        for at, number in enumerate(node.inputs):
            item = model.tensors[number] if number >= 0 else None
            if item is None or item.data is None:
                continue
            if SIZES.get(node.op) == at and node.op != "RESHAPE":
                sizes = item.data.copy()
                sizes.reshape(-1)[:1] = 1
                tensors[number] = replace(item, data=sizes)
            elif node.op in (*ELEMENTWISE, *ALSO) and item.shape[:1] == (samples,):
                if len(item.shape) == len(state.shape(node.outputs[0])):
                    return None  # a row for each sample
        state.parts |= {number: [] for number in node.outputs}
        batched.update(node.outputs)
    changed = {n for n in range(len(tensors)) if tensors[n] is not model.tensors[n]}
    for node in model.nodes:
        for at, number in enumerate(node.inputs):
            if number in changed and SIZES.get(node.op) != at:
                return None  # the same constant is no size elsewhere
    if not batched.issuperset(model.outputs):
        return None
    for number in batched:
        tensors[number] = replace(tensors[number], shape=(1, *tensors[number].shape[1:]))
    return replace(model, tensors=tensors), batched


class _Samples:
    """State while the nodes are visited: `parts` has the tensors of each sample of a batch."""

    def __init__(self, model: TfModel, size: int) -> None:
        self.model, self.size = model, size
        self.tensors, self.nodes = list(model.tensors), list[TfNode]()
        self.parts: dict[int, list[int]] = {}
        self.whole = set(model.inputs)
        self.constants: dict[tuple[int, int], int] = {}

    def run(self) -> TfModel:
        """Visit all nodes and return the new model."""
        for node in self.model.nodes:
            if self.each(node, EACH):
                self._repeat(node)
            else:
                for number in node.inputs:
                    self._join(number)
                self.nodes.append(node)
                self.whole.update(node.outputs)
        for number in self.model.outputs:
            self._join(number)
        return replace(self.model, tensors=self.tensors, nodes=self.nodes, samples=self.size)

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of a tensor in the file."""
        return self.model.tensors[number].shape

    def integers(self, node: TfNode, index: int) -> list[int]:
        """Return a constant operand as integers; none if it is no constant."""
        data = self.model.tensors[node.inputs[index]].data if index < len(node.inputs) else None
        return [] if data is None else [int(n) for n in np.asarray(data).reshape(-1)]

    def moving(self, node: TfNode) -> list[int]:
        """Return the inputs of a node that are no constants."""
        return [n for n in node.inputs if n >= 0 and self.model.tensors[n].data is None]

    def each(self, node: TfNode, table: Mapping[str, Check | None]) -> bool:
        """Whether a node treats the samples one by one, with maps or with samples that are apart already."""
        if node.op not in table or not node.outputs:
            return False
        if node.op not in JOINING and self.moving(node) != [node.inputs[DATA.get(node.op, 0)]]:
            return False  # weights or sizes are computed
        rank = len(self.shape(node.outputs[0]))
        sources = self.moving(node)
        batched = [n for n in sources if self.shape(n)[:1] == (self.size,) and len(self.shape(n)) > 1]
        others = [n for n in sources if n not in batched]
        apart = any(n in self.parts or len(self.shape(n)) > 2 for n in batched)
        alone = all(len(self.shape(n)) < rank or self.shape(n)[0] == 1 for n in others)
        results = all(self.shape(n)[:1] == (self.size,) for n in node.outputs)
        check = table[node.op]
        return bool(batched) and apart and alone and results and (check is None or check(self, node))

    def _repeat(self, node: TfNode) -> None:
        made = [self._apart(number) for number in node.outputs]
        for sample in range(self.size):
            inputs = tuple(self._input(node, at, sample) for at in range(len(node.inputs)))
            outputs = tuple(parts[sample] for parts in made)
            self.nodes.append(replace(node, inputs=inputs, outputs=outputs))
        self.parts |= dict(zip(node.outputs, made, strict=True))

    def _input(self, node: TfNode, at: int, sample: int) -> int:
        """Return the tensor that a sample's node reads as operand `at`."""
        number = node.inputs[at]
        if number < 0:
            return number
        item = self.model.tensors[number]
        if item.data is None:
            return self._split(number)[sample] if item.shape[:1] == (self.size,) else number
        if SIZES.get(node.op) == at:
            sizes = item.data.copy()
            sizes.reshape(-1)[:1] = 1
            return self._constant(number, SYNTHETIC, replace(item, data=sizes))
        rank = len(self.shape(node.outputs[0]))
        if node.op in ELEMENTWISE and item.shape[:1] == (self.size,) and len(item.shape) == rank:
            data = item.data[sample : sample + 1]
            return self._constant(number, sample, replace(item, data=data, shape=data.shape))
        return number

    def _constant(self, number: int, sample: int, item: TfTensor) -> int:
        if (number, sample) not in self.constants:
            name = f"{item.name}@{sample if sample >= 0 else 'one'}"
            self.constants[number, sample] = self._add(replace(item, name=name))
        return self.constants[number, sample]

    def _add(self, item: TfTensor) -> int:
        self.tensors.append(item)
        return len(self.tensors) - 1

    def _apart(self, number: int) -> list[int]:
        """Add tensors for the samples of a tensor."""
        item = self.model.tensors[number]
        shape = (1, *item.shape[1:])
        names = [f"{item.name}@{sample}" for sample in range(self.size)]
        return [self._add(replace(item, name=name, shape=shape, part=True)) for name in names]

    def _split(self, number: int) -> list[int]:
        """Return the samples of a tensor, which a SPLIT makes if there are none yet."""
        if number not in self.parts:
            self.parts[number] = self._apart(number)
            axis = self._add(new_constant(f"{self.model.tensors[number].name}@axis", 0))
            options = {"NumSplits": self.size}
            made = tuple(self.parts[number])
            self.nodes.append(TfNode("SPLIT", (axis, number), made, options, SYNTHETIC))
        return self.parts[number]

    def _join(self, number: int) -> None:
        """Make a tensor of its samples if there is none yet."""
        if number in self.parts and number not in self.whole:
            options = {"Axis": 0, "FusedActivationFunction": 0}
            sources = tuple(self.parts[number])
            self.nodes.append(TfNode("CONCATENATION", sources, (number,), options, SYNTHETIC))
            self.whole.add(number)


def _other_axis(index: int | None) -> Check:
    """A check that the axis, an option or constant `index`, is not that of the batch."""

    def check(state: _Samples, node: TfNode) -> bool:
        found = [int(node.options["Axis"])] if index is None else state.integers(node, index)
        rank = len(state.shape(node.outputs[0]))
        return len(found) == 1 and found[0] % rank != 0

    return check


def _joined(state: _Samples, node: TfNode) -> bool:
    return len(state.moving(node)) == len(node.inputs) and _other_axis(None)(state, node)


def _unpadded(state: _Samples, node: TfNode) -> bool:
    return state.integers(node, 1)[:2] == [0, 0]


def _in_front(state: _Samples, node: TfNode) -> bool:
    return state.integers(node, 1)[:1] == [0]


def _inside(state: _Samples, node: TfNode) -> bool:
    axes, rank = state.integers(node, 1), len(state.shape(node.inputs[0]))
    return bool(axes) and 0 not in [axis % rank for axis in axes]


def _all_samples(state: _Samples, node: TfNode) -> bool:
    begin, strides = state.integers(node, 1), state.integers(node, 3) if node.op == "STRIDED_SLICE" else [1]
    plain = not any(node.options.get(f"{name}Mask") for name in ("Ellipsis", "NewAxis", "ShrinkAxis"))
    return plain and strides[:1] == [1] and begin[:1] == [0]


def _keeps_samples(state: _Samples, node: TfNode) -> bool:
    return state.shape(node.inputs[0])[:1] == (state.size,)


ELEMENTWISE: Sequence[str] = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")

JOINING = (*ELEMENTWISE, "CONCATENATION", "DIV", "POW", "SQUARED_DIFFERENCE", "FLOOR_DIV")
"""Operators of which all operands may be computed."""

DATA = {"TRANSPOSE_CONV": 2, "SPLIT": 1}
"""Number of the operand that has the samples, for operators of which it is not the first."""

SIZES = {"RESHAPE": 1, "SLICE": 2, "STRIDED_SLICE": 2, "TRANSPOSE_CONV": 0}
"""Constant operand of an operator that has the number of samples in front."""

EACH: dict[str, Check | None] = {
    **dict.fromkeys((*ELEMENTWISE, "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "MAX_POOL_2D")),
    **dict.fromkeys(("AVERAGE_POOL_2D", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "PRELU", "LOGISTIC")),
    **dict.fromkeys(("TANH", "HARD_SWISH", "SOFTMAX", "QUANTIZE", "DEQUANTIZE", "RESIZE_NEAREST_NEIGHBOR")),
    **dict.fromkeys(("RESIZE_BILINEAR", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "FULLY_CONNECTED")),
    "CONCATENATION": _joined,
    "SPLIT": _other_axis(0),
    "SPLIT_V": _other_axis(2),
    "PAD": _unpadded,
    "PADV2": _unpadded,
    "MIRROR_PAD": _unpadded,
    "TRANSPOSE": _in_front,
    "MEAN": _inside,
    "SLICE": _all_samples,
    "STRIDED_SLICE": _all_samples,
    "RESHAPE": _keeps_samples,
}
"""Operators that treat samples one by one, with a check of their operands."""

ALSO: dict[str, Check | None] = {
    **dict.fromkeys(
        ("DIV", "POW", "SQUARED_DIFFERENCE", "FLOOR_DIV", "ABS", "NEG", "FLOOR", "CEIL", "ROUND")
    ),
    **dict.fromkeys(("ELU", "EXP", "GELU", "LOG", "SQRT", "RSQRT", "SQUARE", "SIN", "COS", "CAST")),
    "SUM": _inside,
    "REDUCE_MAX": _inside,
    "REDUCE_MIN": _inside,
}
"""More of them, which the host computes for all samples at once in a model that is not divided."""
