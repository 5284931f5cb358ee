"""Batches of ONNX models: whether each sample of the inputs goes its own way through the whole graph.

Only then is a first dimension a batch, and the model can be compiled for one sample.  `divided` follows the
samples through every node: for each value that depends on the inputs it knows the axis along which they lie,
and how many indices each of them has there (a Reshape may move them to another axis, or join them with the
next one).  The rule of an operator says whether the samples stay apart, and what a model of one sample needs
in its place (the target of a Reshape, one row of a constant whose rows are the same for all samples).  An
operator without a rule, a constant with other numbers for each sample, or an operator that works along the
axis of the samples, as an LSTM over its first axis, ends the search: the first dimension is then as good as
any other.  The rules follow ONNX' definitions of the operators
(https://onnx.ai/onnx/operators/), and the shapes of the model of one sample are inferred and compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.loaders.onnx_file import OWN_DOMAINS, inferred, input_shape
from rkcosim.compiler.loaders.onnx_parts import ValueTypes

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Where the samples of a value lie: sample i has the indices i * per to (i + 1) * per - 1 of `axis`."""

    axis: int
    per: int = 1


@dataclass(frozen=True)
class Division:
    """A model whose samples are proven to be independent.

    Members
    -------
    proto
        The model of one sample: names of nodes, inputs and outputs are those of the whole model.
    samples
        Size of the batch.
    rows
        Where the samples lie in each value of the whole model that depends on the inputs.
    """

    proto: onnx.ModelProto
    samples: int
    rows: Mapping[str, Rows]


class NotProven(Exception):
    """The first dimension is not proven to be a batch; the text names the node and says why."""


def divided(proto: onnx.ModelProto, samples: int) -> Division:
    """Prove that the samples of a model are independent, and return the model of one.

    Parameters
    ----------
    proto
        A model as `rkcosim.compiler.loaders.onnx_file.read_onnx` returns it: every node has a name, constants
        are initializers, and shapes are fixed.  It is not changed.
    samples
        First dimension of every input, above 1.

    Raises
    ------
    NotProven
        If a sample of an output may depend on more than the sample of the inputs, or no rule is known.
    """
    return _Pass(proto, samples).run()


class _Pass:
    """State while the nodes are visited in order."""

    def __init__(self, proto: onnx.ModelProto, samples: int) -> None:
        self.samples = samples
        self.whole = proto
        self.constants = {item.name: item for item in proto.graph.initializer}
        self.shapes = _Shapes(proto)
        self.rows: dict[str, Rows] = {}
        self.fixed = set(self.constants)
        """Values that do not depend on the inputs."""
        self.opset = max((o.version for o in proto.opset_import if o.domain in OWN_DOMAINS), default=0)
        self.made = onnx.ModelProto()
        self.made.CopyFrom(proto)
        self.names = {*self.constants, *(item.name for item in proto.graph.input)}
        self.names.update(name for node in proto.graph.node for name in node.output)
        self.new: dict[str, Array] = {}
        """Constants of the model of one sample that take the place of others."""

    def run(self) -> Division:
        """See `divided`."""
        if self.opset < 7:
            raise NotProven(f"operator set {self.opset} has other rules of broadcasting")
        functions = {(item.domain, item.name) for item in self.whole.functions}
        for item in self.whole.graph.input:
            if not item.type.HasField("tensor_type") or self.shape(item.name)[:1] != (self.samples,):
                raise NotProven(f"input '{item.name}' has no {self.samples} in front")
            self.rows[item.name] = Rows(0)
        for node in self.made.graph.node:
            domain = "" if node.domain in OWN_DOMAINS else node.domain
            rule = RULES.get(node.op_type) if not domain else None
            try:
                if (node.domain, node.op_type) in functions or any(
                    a.HasField("g") or a.graphs for a in node.attribute
                ):
                    raise NotProven("it has a body of its own")
                self._visit(node, rule)
            except NotProven as problem:
                raise NotProven(f"{node.op_type} '{node.name}': {problem}") from None
            except INVALID as error:
                raise NotProven(f"{node.op_type} '{node.name}': it is not as ONNX defines it") from error
        for item in self.whole.graph.output:
            if self.rows.get(item.name) != Rows(0):
                raise NotProven(f"output '{item.name}' does not have its samples one by one in front")
        self._write()
        self._check()
        return Division(self.made, self.samples, self.rows)

    def _visit(self, node: onnx.NodeProto, rule: Rule | None) -> None:
        if all(name in self.fixed for name in node.input if name):
            if rule is None and node.op_type not in STEADY:
                raise NotProven("there is no rule for this operator")
            self.fixed.update(name for name in node.output if name)
            return
        if rule is None:
            raise NotProven("there is no rule for this operator")
        found = rule(_Node(self, node))
        every = [found] * len(node.output) if isinstance(found, Rows) else found
        for name, rows in zip(node.output, every, strict=False):
            if not name:
                continue
            shape = self.shape(name)
            if rows.axis >= len(shape) or shape[rows.axis] != self.samples * rows.per:
                raise NotProven(f"'{name}' of shape {list(shape)} has no samples along axis {rows.axis}")
            self.rows[name] = rows
        if unknown := [name for name in node.output if name and name not in self.rows]:
            raise NotProven(f"nothing is known of its output '{unknown[0]}'")

    def shape(self, name: str) -> Shape:
        """Return the shape of a value; raises NotProven if it is not known."""
        found = self.shapes.get(name)
        if found is None:
            raise NotProven(f"the shape of '{name}' is not known")
        return found

    def one(self, name: str) -> Shape:
        """Return the shape of a value in the model of one sample."""
        shape = self.shape(name)
        if name not in self.rows:
            return shape
        rows = self.rows[name]
        return (*shape[: rows.axis], rows.per, *shape[rows.axis + 1 :])

    def _write(self) -> None:
        """Give the model of one sample its shapes and constants."""
        graph = self.made.graph
        del graph.value_info[:]
        for item in graph.input:
            item.type.tensor_type.shape.dim[0].dim_value = 1
        for item in graph.output:
            if kind := item.type.tensor_type.elem_type:
                item.CopyFrom(helper.make_tensor_value_info(item.name, kind, self.one(item.name)))
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self.new.items())
        used = {name for node in graph.node for name in node.input} | {item.name for item in graph.output}
        kept = [item for item in graph.initializer if item.name in used]
        if len(kept) < len(graph.initializer):
            del graph.initializer[:]
            graph.initializer.extend(kept)

    def _check(self) -> None:
        """Compare the shapes of the model of one sample with those that the rules give."""
        shapes = _Shapes(self.made)
        for name in (*self.rows, *sorted(self.fixed - set(self.constants))):
            found = shapes.get(name)
            if found != self.one(name):
                raise NotProven(f"'{name}' of one sample has shape {found}, not {list(self.one(name))}")


class _Shapes:
    """Shapes of the values of a model: those that inference finds, else onnxruntime's."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        made = onnx.ModelProto()
        made.CopyFrom(proto)
        for item in made.graph.output:  # what is declared need not be what is computed
            item.type.tensor_type.ClearField("shape")
        graph = inferred(made).graph
        self._known = {item.name: tuple(item.dims) for item in graph.initializer}
        for item in (*graph.input, *graph.value_info, *graph.output):
            sizes = input_shape(item) if item.type.tensor_type.HasField("shape") else [""]
            if all(isinstance(size, int) for size in sizes):
                self._known[item.name] = tuple(int(size) for size in sizes)
        self._types = ValueTypes(made)

    def get(self, name: str) -> Shape | None:
        """Return the shape of a value; None if it is not known, or only for one run."""
        if name not in self._known:
            item = self._types.of(name)
            if item is None or item.shape is None or not item.fixed:
                return None
            self._known[name] = item.shape
        return self._known[name]


class _Node:
    """A node as the rules see it; its constants can be replaced in the model of one sample."""

    def __init__(self, state: _Pass, node: onnx.NodeProto) -> None:
        self.state, self.node = state, node
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def given(self, place: int) -> bool:
        """Whether input `place` is given."""
        return place < len(self.node.input) and bool(self.node.input[place])

    @property
    def places(self) -> list[int]:
        """Places of the inputs that are given."""
        return [place for place in range(len(self.node.input)) if self.given(place)]

    def rows(self, place: int) -> Rows | None:
        """Return where the samples of an input lie; None if it does not depend on the model's inputs."""
        return self.state.rows.get(self.node.input[place]) if self.given(place) else None

    def moving(self, place: int = 0) -> Rows:
        """Return where the samples of an input lie; raises NotProven if it has none."""
        rows = self.rows(place)
        if rows is None:
            raise NotProven(f"input {place} is the same for all samples")
        return rows

    def shape(self, place: int = 0) -> Shape:
        """Return the shape of an input."""
        return self.state.shape(self.node.input[place])

    def output(self, place: int = 0) -> Shape:
        """Return the shape of an output."""
        return self.state.shape(self.node.output[place])

    def outputs(self) -> list[int]:
        """Return the places of the outputs that are used."""
        return [place for place, name in enumerate(self.node.output) if name]

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute, or its default."""
        return self.attributes.get(name, default)

    def constant(self, place: int) -> Array:
        """Return an input that must be a constant."""
        item = self.state.constants.get(self.node.input[place]) if self.given(place) else None
        if item is None:
            raise NotProven(f"input {place} is no constant")
        return numpy_helper.to_array(item)

    def numbers(self, name: str, place: int, default: Sequence[int] | None = None) -> list[int] | None:
        """Return integers that are an attribute, or a constant input in later operator sets."""
        if name in self.attributes:
            value = self.attributes[name]
            return [int(n) for n in value] if isinstance(value, Iterable) else [int(value)]
        if not self.given(place):
            return None if default is None else list(default)
        return [int(n) for n in self.constant(place).reshape(-1)]

    def replace(self, place: int, array: Array) -> None:
        """Give the node another constant in the model of one sample."""
        name = f"{self.node.name}@{place}@sample"
        while name in self.state.names or name in self.state.new:
            name += "_"
        self.state.new[name] = array
        self.node.input[place] = name

    def same_for_all(self, places: Iterable[int]) -> None:
        """Check that inputs do not depend on the model's inputs."""
        for place in places:
            if self.rows(place) is not None:
                raise NotProven(f"input {place} depends on the samples")

    def along(self, place: int, rows: Rows) -> None:
        """Check that an input has the samples along an axis, or one sample's numbers for all of them.

        The rows of a constant must all be the same; the model of one sample gets one of them.
        """
        if (found := self.rows(place)) is not None:
            if found != rows:
                raise NotProven(f"the samples of input {place} lie along another axis")
            return
        shape = self.shape(place)
        size = self.state.samples * rows.per
        if rows.axis >= len(shape) or shape[rows.axis] != size:
            raise NotProven(f"input {place} does not have {size} rows along axis {rows.axis}")
        array = self.constant(place)
        parts = np.split(array, self.state.samples, rows.axis)
        if any(part.tobytes() != parts[0].tobytes() for part in parts[1:]):
            raise NotProven(f"the constant '{self.node.input[place]}' has other numbers for each sample")
        self.replace(place, np.ascontiguousarray(parts[0]))

    def broadcast(self, places: Iterable[int], rank: int, rows: Rows) -> None:
        """Check inputs that are broadcast to a shape of `rank` dimensions with samples at `rows`."""
        for place in places:
            missing = rank - len(self.shape(place))
            axis = rows.axis - missing
            if self.rows(place) is None and (axis < 0 or self.shape(place)[axis] == 1):
                continue
            if axis < 0:
                raise NotProven(f"the samples of input {place} lie along another axis")
            self.along(place, Rows(axis, rows.per))

    def axis(self, default: int, place: int = 0) -> int:
        """Return the attribute `axis` as a number from 0, for the rank of an input."""
        return int(self.attribute("axis", default)) % max(len(self.shape(place)), 1)


Rule = Callable[[_Node], "Rows | Sequence[Rows]"]

INVALID = (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What rules raise for inputs and attributes that ONNX does not permit."""


def _elements(n: _Node) -> Rows:
    """Operators on single elements of inputs that are broadcast."""
    rank = max(len(n.shape(place)) for place in n.places)
    found = [(n.rows(place), len(n.shape(place))) for place in n.places]
    rows = next(Rows(r.axis + rank - own, r.per) for r, own in found if r is not None)
    n.broadcast(n.places, rank, rows)
    return rows


def _dropout(n: _Node) -> Rows:
    if n.given(2) and bool(n.constant(2).any()):
        raise NotProven("it draws random numbers")
    n.same_for_all([1, 2])
    return n.moving()


def _quantisation(n: _Node) -> Rows:
    rows = n.moving()
    n.same_for_all([1, 2])
    if n.attribute("block_size", 0):
        raise NotProven("its scales are those of blocks")
    if math.prod(n.shape(1)) > 1 and n.axis(1) == rows.axis:
        raise NotProven("it has a scale for each sample")
    return rows


def _maps(n: _Node) -> Rows:
    """Operators on maps, whose first axis has the maps one by one; the other inputs are weights."""
    rows = n.moving()
    n.same_for_all(range(1, len(n.node.input)))
    if rows.axis != 0:
        raise NotProven(f"the samples lie along axis {rows.axis} of a map")
    if len(n.outputs()) > 1 or n.attribute("training_mode", 0):
        raise NotProven("it has more than one result")  # indices count through all maps
    return rows


def _maps_together(*places: int) -> Rule:
    """Operators on maps with several inputs that have one entry for each map."""

    def rule(n: _Node) -> Rows:
        rows = next((r for place in places if (r := n.rows(place)) is not None), None)
        if rows is None or rows.axis != 0:
            raise NotProven("the samples do not lie along the first axis of a map")
        for place in n.places:
            if place in places:
                n.along(place, rows)
            else:
                n.same_for_all([place])
        return rows

    return rule


def _resize(n: _Node) -> Rows:
    rows = n.moving()
    n.same_for_all(range(1, len(n.node.input)))
    if n.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise NotProven("it cuts a region out")
    if n.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise NotProven("its sizes depend on each other")
    if n.output()[rows.axis] != n.shape()[rows.axis]:
        raise NotProven("it resizes the axis of the samples")
    rank = len(n.shape())
    axes = [int(axis) % rank for axis in n.attribute("axes", range(rank))]
    if rows.axis not in axes:
        return rows
    at = axes.index(rows.axis)
    if n.given(3):
        sizes = n.constant(3).copy()
        sizes[at] = rows.per
        n.replace(3, sizes)
        return rows
    place = 1 if n.node.op_type == "Upsample" or n.state.opset < 11 else 2
    scales = n.attributes["scales"] if "scales" in n.attributes else n.constant(place)
    if float(scales[at]) != 1.0:
        raise NotProven("it resizes the axis of the samples")
    return rows


def _product(n: _Node) -> Rows:
    """MatMul and MatMulInteger: rows of the first operand, columns of the second, and the axes in front."""
    first, second = n.shape(0), n.shape(1)
    ranks = len(first), len(second)
    n.same_for_all(range(2, len(n.node.input)))
    if any(math.prod(n.shape(place)) != 1 for place in n.places[2:]):
        raise NotProven("it has a zero point for each row")
    rank = max(*ranks, 2)  # with the axes of vectors, which the result does not have
    at: list[Rows | None] = [None, None]
    for place in (0, 1):
        rows = n.rows(place)
        if rows is None:
            continue
        inner = ranks[0] - 1 if place == 0 else max(ranks[1] - 2, 0)
        if rows.axis == inner:
            raise NotProven("it sums over the samples")
        at[place] = Rows(rows.axis + rank - ranks[place], rows.per)
    found = next(rows for rows in at if rows is not None)
    if found.axis < rank - 2:  # one of the axes in front, which are broadcast
        n.broadcast([0, 1], rank, found)
    elif at[0] is not None and at[1] is not None:
        raise NotProven("both operands have samples, but not in front")
    if found.axis >= rank - 2 and (found.axis == rank - 2) != (at[0] is not None):
        raise NotProven("the samples lie along another axis of its operand")
    lost = (ranks[0] == 1 and found.axis > rank - 2) + 0
    return Rows(found.axis - lost, found.per)


def _gemm(n: _Node) -> Rows:
    rows = n.moving()
    n.same_for_all([1])
    if rows.axis != (1 if n.attribute("transA", 0) else 0):
        raise NotProven("it sums over the samples")
    made = Rows(0, rows.per)
    if n.given(2):
        n.broadcast([2], 2, made)
    return made


def _einsum(n: _Node) -> Rows:
    text = n.attribute("equation", b"").decode().replace(" ", "")
    before, arrow, after = text.partition("->")
    terms = before.split(",")
    found = {(terms[p][r.axis], r.per) for p in n.places if "." not in text and (r := n.rows(p)) is not None}
    if len(found) != 1 or not arrow:
        raise NotProven("the samples have no letter of their own")
    ((letter, per),) = found
    if after.count(letter) != 1 or any(term.count(letter) > 1 for term in terms):
        raise NotProven("it sums over the samples")
    for place in n.places:
        if letter in terms[place]:
            axis = terms[place].index(letter)
            if n.rows(place) is not None or n.shape(place)[axis] != 1:
                n.along(place, Rows(axis, per))
    return Rows(after.index(letter), per)


def _softmax(n: _Node) -> Rows:
    rows = n.moving()
    if n.state.opset >= 13:
        axes = [n.axis(-1)]
    else:  # from the axis on, all axes are one
        axes = list(range(n.axis(1), len(n.shape())))
    return _outside(rows, axes)


def _outside(rows: Rows, axes: Iterable[int]) -> Rows:
    if rows.axis in axes:
        raise NotProven("it computes along the axis of the samples")
    return rows


def _last_axes(n: _Node) -> Rows:
    """Normalisations over all axes from `axis` on; scale and offset are broadcast."""
    rows = _outside(n.moving(), range(n.axis(-1), len(n.shape())))
    n.broadcast(n.places[1:], len(n.shape()), rows)
    return rows


def _one_axis(default: int) -> Rule:
    """Operators along one axis, given as an attribute, whose results have the shape of the input."""

    def rule(n: _Node) -> Rows:
        n.same_for_all(range(1, len(n.node.input)))
        return _outside(n.moving(), [n.axis(default)])

    return rule


def _mean_variance(n: _Node) -> Rows:
    rank = len(n.shape())
    return _outside(n.moving(), [int(axis) % rank for axis in n.attribute("axes", (0, 2, 3))])


def _cumulative(n: _Node) -> Rows:
    return _outside(n.moving(), [int(n.constant(1).reshape(-1)[0]) % len(n.shape())])


def _reduction(n: _Node) -> Rows:
    rank = len(n.shape())
    n.same_for_all([1])
    axes = n.numbers("axes", 1, ())
    if not axes and n.attribute("noop_with_empty_axes", 0):
        return n.moving()
    inner = {axis % rank for axis in axes or range(rank)}
    return _without(n, inner, n.attribute("keepdims", 1))


def _without(n: _Node, axes: set[int], kept: int) -> Rows:
    """Return the rows of a result without some axes."""
    rows = _outside(n.moving(), axes)
    return rows if kept else Rows(rows.axis - sum(axis < rows.axis for axis in axes), rows.per)


def _extreme(n: _Node) -> Rows:
    return _without(n, {n.axis(0)}, n.attribute("keepdims", 1))


def _transpose(n: _Node) -> Rows:
    rows = n.moving()
    order = [int(axis) for axis in n.attribute("perm", range(len(n.shape()) - 1, -1, -1))]
    return Rows(order.index(rows.axis), rows.per)


def _reshape(n: _Node) -> Rows:
    rows, before, after = n.moving(), n.shape(), n.output()
    n.same_for_all([1])
    if not math.prod(before):
        raise NotProven("it has no elements")
    front = math.prod(before[: rows.axis])
    for axis, size in enumerate(after):
        if math.prod(after[:axis]) == front and size % n.state.samples == 0:
            made = Rows(axis, size // n.state.samples)
            if n.node.op_type == "Reshape":
                n.replace(1, np.array([*after[:axis], made.per, *after[axis + 1 :]], np.int64))
            return made
    raise NotProven(f"it mixes the samples: {list(before)} becomes {list(after)}")


def _squeeze(n: _Node) -> Rows:
    rank = len(n.shape())
    axes = n.numbers("axes", 1)
    gone = (
        {axis for axis in range(rank) if n.shape()[axis] == 1} if axes is None else {a % rank for a in axes}
    )
    return _without(n, gone, 0)


def _unsqueeze(n: _Node) -> Rows:
    rows, rank = n.moving(), len(n.output())
    new = {axis % rank for axis in n.numbers("axes", 1, ()) or ()}
    return Rows([axis for axis in range(rank) if axis not in new][rows.axis], rows.per)


def _expand(n: _Node) -> Rows:
    rows, after = n.moving(), n.output()
    n.same_for_all([1])
    made = Rows(rows.axis + len(after) - len(n.shape()), rows.per)
    n.replace(1, np.array([*after[: made.axis], made.per, *after[made.axis + 1 :]], np.int64))
    return made


def _split(n: _Node) -> Rows:
    n.same_for_all([1])
    return _outside(n.moving(), [n.axis(0)])


def _slice(n: _Node) -> Rows:
    rows, rank = n.moving(), len(n.shape())
    n.same_for_all(range(1, len(n.node.input)))
    starts = n.numbers("starts", 1) or []
    axes = [axis % rank for axis in n.numbers("axes", 3, range(len(starts))) or ()]
    steps = n.numbers("steps", 4, [1] * len(starts)) or []
    if rows.axis in axes:
        at = axes.index(rows.axis)
        if steps[at] != 1 or n.output()[rows.axis] != n.shape()[rows.axis]:
            raise NotProven("it takes some of the samples")
    return rows


def _gather(n: _Node) -> Rows:
    data, indices = n.rows(0), n.rows(1)
    axis = n.axis(0)
    if data is not None and indices is not None:
        raise NotProven("its indices depend on the samples, too")
    if data is None:
        rows = n.moving(1)
        return Rows(axis + rows.axis, rows.per)
    _outside(data, [axis])
    return Rows(data.axis + (len(n.shape(1)) - 1 if axis < data.axis else 0), data.per)


def _in_parallel(n: _Node) -> Rows:
    """Concat, GatherElements and ScatterElements: all inputs have the samples in the same places."""
    rows = next(r for place in n.places if (r := n.rows(place)) is not None)
    _outside(rows, [n.axis(0)])
    for place in n.places:
        n.along(place, rows)
    return rows


def _gather_nd(n: _Node) -> Rows:
    rows = next(r for place in (0, 1) if (r := n.rows(place)) is not None)
    if rows.axis < n.attribute("batch_dims", 0):
        n.along(0, rows)
        n.along(1, rows)
        return rows
    if n.rows(0) is not None or n.attribute("batch_dims", 0) or rows.axis == len(n.shape(1)) - 1:
        raise NotProven("its indices choose among the samples")
    return rows


def _pad(n: _Node) -> Rows:
    rows, rank = n.moving(), len(n.shape())
    n.same_for_all(range(1, len(n.node.input)))
    pads = n.numbers("pads", 1) or []
    axes = [axis % rank for axis in n.numbers("axes", 3, range(rank)) or ()]
    for at, axis in enumerate(axes):
        if axis == rows.axis and (pads[at] or pads[at + len(axes)]):
            raise NotProven("it pads the axis of the samples")
    return rows


def _tile(n: _Node) -> Rows:
    rows = n.moving()
    if int(n.constant(1)[rows.axis]) != 1:
        raise NotProven("it repeats the samples")
    return rows


def _one_hot(n: _Node) -> Rows:
    rows = n.moving()
    n.same_for_all([1, 2])
    rank = len(n.shape()) + 1
    return Rows(rows.axis + (int(n.attribute("axis", -1)) % rank <= rows.axis), rows.per)


def _triangle(n: _Node) -> Rows:
    rank = len(n.shape())
    n.same_for_all([1])
    return _outside(n.moving(), [rank - 2, rank - 1])


def _recurrent(n: _Node) -> list[Rows]:
    """LSTM, GRU and RNN: the first axis has the steps, the second one the sequences; `layout` swaps them."""
    rows, last = n.moving(), bool(n.attribute("layout", 0))
    n.same_for_all([1, 2, 3, 7])
    if rows.axis != (0 if last else 1):
        raise NotProven("it goes along the axis of the samples, step by step")
    if n.given(4):
        n.along(4, Rows(0, rows.per))
    for place in (5, 6):
        if n.given(place):
            n.along(place, Rows(0 if last else 1, rows.per))
    state = Rows(0 if last else 1, rows.per)
    return [Rows(0 if last else 2, rows.per), state, state]


_ELEMENTS = """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr
BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid
HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow
Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh
ThresholdedRelu Where Xor""".split()

_MAPS = """AveragePool BatchNormalization Conv ConvInteger ConvTranspose DepthToSpace GlobalAveragePool
GlobalLpPool GlobalMaxPool GroupNormalization InstanceNormalization LRN LpPool MaxPool SpaceToDepth""".split()

_REDUCTIONS = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
ReduceSum ReduceSumSquare""".split()

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTS, _elements),
    **dict.fromkeys(_MAPS, _maps),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _last_axes),
    **dict.fromkeys(("ArgMax", "ArgMin"), _extreme),
    **dict.fromkeys(("Concat", "GatherElements", "ScatterElements"), _in_parallel),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("MatMul", "MatMulInteger"), _product),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantisation),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(("Reshape", "Flatten"), _reshape),
    "CumSum": _cumulative,
    "DeformConv": _maps_together(0, 2, 4),
    "Dropout": _dropout,
    "Einsum": _einsum,
    "Expand": _expand,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "GridSample": _maps_together(0, 1),
    "LpNormalization": _one_axis(-1),
    "MeanVarianceNormalization": _mean_variance,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _one_axis(-1),
    "Transpose": _transpose,
    "Trilu": _triangle,
    "Unsqueeze": _unsqueeze,
}
"""How an operator of ONNX' own domain keeps samples apart; it is called if an input depends on them."""

STEADY = {"Constant", "ConstantOfShape", "EyeLike", "NonZero", "Range", "Shape", "Size"}
"""Operators without a rule whose results are the same in each run if their inputs are."""
