"""ONNX files, checked and made ready for the loader: fixed shapes, chosen outputs, names, QDQ form.

The steps of `read_onnx`, in order: parse and check the bytes (before, functions of the file are put in
place of their calls, `onnx_functions`, and GroupNormalization of opset 18 is rewritten, `onnx_groups`);
unite initializers and Constant nodes; name every node; write operators of ai.onnx.ml as others
(`onnx_reals`); write bfloat16 as float32 and codes of four bits as codes of eight (`onnx_types`); cut the
graph at the requested outputs; write operators on codes (QLinearConv and others) as the same operators
between DequantizeLinear and QuantizeLinear; fix the shapes of the inputs; write pools that round their size
up with padding (`rkcosim.compiler.loaders.onnx_windows`); write products, dynamically quantised ones too,
and normalisations in the form that the loader knows (`onnx_products`, `onnx_reals`, `onnx_norms`); fold
constants (`rkcosim.compiler.loaders.onnx_fold`) and write out loops of a constant number of turns
(`onnx_loops`); write convolutions with computed kernels as products (`onnx_computed`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.base import progress
from rkcosim.compiler import several
from rkcosim.compiler.graph import MAX_ELEMENTS, ModelError
from rkcosim.compiler.host_runtimes import refuse_external
from rkcosim.compiler.loaders.onnx_bounds import check_bounds
from rkcosim.compiler.loaders.onnx_computed import computed_kernels
from rkcosim.compiler.loaders.onnx_fold import described, fold, inferred, runs, shapes_of_run
from rkcosim.compiler.loaders.onnx_functions import inlined
from rkcosim.compiler.loaders.onnx_groups import write_groups
from rkcosim.compiler.loaders.onnx_loops import unrolled
from rkcosim.compiler.loaders.onnx_node import reads
from rkcosim.compiler.loaders.onnx_norms import layer_normalisations
from rkcosim.compiler.loaders.onnx_products import products
from rkcosim.compiler.loaders.onnx_reals import learned_scalers, real_products, row_normalisations
from rkcosim.compiler.loaders.onnx_types import has_bfloat16, write_bfloat16, write_narrow_codes
from rkcosim.compiler.loaders.onnx_windows import exact_windows
from rkcosim.compiler.options import LoadOptions, OpenDimensions

OWN_DOMAINS = ("", "ai.onnx")

SIZES = (
    *((224, 224), (48, 320), (32, 320), (320, 320), (640, 640)),
    *((size, size) for size in (576, 512, 256, 128, 64, 32, 16, 8, 1)),
)
"""Sizes of open dimensions that are tried in this order until onnxruntime accepts the model: rows of a map,
and everything else except batches, which are 1."""


UNNAMED = "and nobody named their sizes"
"""Words of the message about open dimensions that are refused, by which callers recognise it."""


def read_onnx(data: bytes, options: LoadOptions, say: bool = False) -> onnx.ModelProto:
    """Read an ONNX file and make it ready for the loader.

    Parameters
    ----------
    data
        The bytes of the file.
    options
        `shapes`, `input_shapes`, `open_dimensions`, `outputs` and `fold` are used.
    say
        Whether a line is shown about sizes that are chosen for open dimensions.

    Raises
    ------
    ModelError
        If the file is damaged, or an option names an input or a value that the model does not have.
    """
    try:
        return _ready(_parsed(data), options, say)
    except UnicodeDecodeError as error:
        raise ModelError(f"damaged ONNX model: a name is not text: {error}") from error


def _ready(proto: onnx.ModelProto, options: LoadOptions, say: bool) -> onnx.ModelProto:
    _unite_constants(proto.graph)
    _name_nodes(proto.graph)
    learned_scalers(proto.graph)
    if has_bfloat16(proto):
        write_bfloat16(proto)
        if say:
            progress.say("the numbers of type bfloat16 of this model are read as float32")
    write_narrow_codes(proto.graph)
    if options.outputs:
        proto = cut_outputs(proto, options.outputs)
    _write_as_qdq(proto.graph)
    proto = _reshaped(proto, options.input_shapes)
    given = dict(options.shapes)
    guessed = {item.name for item in proto.graph.input if _is_open(item)} - set(given)
    if guessed and (listed := listed_shapes(proto)):
        given = dict(zip(_input_names(proto), listed[several.largest(listed)], strict=True))
    fixed = _with_shapes(proto, given, options.open_dimensions)
    for item in fixed.graph.input if say else ():
        if item.name in guessed:
            shape = ",".join(map(str, input_shape(item)))
            progress.say(f"input '{item.name}' has open dimensions: {shape} is used (--shape changes it)")
    fixed = products(exact_windows(fixed))
    if options.floats == "fp16":
        fixed = layer_normalisations(row_normalisations(real_products(fixed, say)))
    _check_sizes(fixed)
    if options.fold:
        fixed = fold(fixed)
        if (written := unrolled(fixed)) is not fixed:
            fixed = fold(written)
        _unite_constants(fixed.graph)
        _name_nodes(fixed.graph)
    return computed_kernels(fixed) if options.floats == "fp16" else fixed


@contextlib.contextmanager
def _described_outputs(proto: onnx.ModelProto) -> Iterator[None]:
    """Give outputs without a type or shape one for onnx' checker, which needs them; onnxruntime does not.

    Everything behind the checker takes the types that are inferred.
    """
    kept = []
    for item in proto.graph.output:
        kind = onnx.TypeProto()
        kind.CopyFrom(item.type)
        if kind.WhichOneof("value") in (None, "tensor_type") and not kind.tensor_type.HasField("shape"):
            kept.append((item, kind))
            item.type.tensor_type.elem_type = kind.tensor_type.elem_type or onnx.TensorProto.FLOAT
            item.type.tensor_type.shape.SetInParent()
    try:
        yield
    finally:
        for item, kind in kept:
            item.type.CopyFrom(kind)


def _parsed(data: bytes) -> onnx.ModelProto:
    if not data:
        raise ModelError("not an ONNX model: the file is empty")
    try:
        proto = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's DecodeError; its class is not part of onnx' interface
        raise ModelError(f"not an ONNX model, or cut short ({len(data)} bytes): {error}") from error
    if not proto.graph.node and not proto.graph.output:  # outputs may be inputs or constants
        raise ModelError(f"not an ONNX model, or cut short: no node in {len(data)} bytes")
    refuse_external(data)
    check_bounds(proto)
    proto = inlined(proto)
    write_groups(proto, OWN_DOMAINS)
    try:
        with _described_outputs(proto):
            onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:  # ValueError: names that are no text
        text = " ".join(str(error).split())
        raise ModelError(f"damaged ONNX model: {text[:300]}") from error
    return proto


def _unite_constants(graph: onnx.GraphProto) -> None:
    """Turn Constant nodes of tensors into initializers, and take initializers off the inputs."""
    nodes = []
    for node in graph.node:
        values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        array: Any = None
        if node.op_type == "Constant" and node.domain in OWN_DOMAINS and len(values) == 1:
            ((kind, value),) = values.items()
            if kind == "value" and value.data_type != onnx.TensorProto.STRING:
                tensor = onnx.TensorProto()
                tensor.CopyFrom(value)
                tensor.name = node.output[0]
                graph.initializer.append(tensor)
                continue
            if kind in ("value_float", "value_floats"):
                array = np.array(value, np.float32)
            elif kind in ("value_int", "value_ints"):
                array = np.array(value, np.int64)
        if array is None:
            nodes.append(node)
        else:
            graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
    del graph.node[:]
    graph.node.extend(nodes)
    known = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in known]
    del graph.input[:]
    graph.input.extend(inputs)


def _name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a name that no other node has: its own, or that of its first output."""
    used: set[str] = set()
    for node in graph.node:
        first = next((name for name in node.output if name), node.op_type)
        name = node.name or first
        if name in used:
            name = first
        while name in used:
            name += "_"
        used.add(name)
        node.name = name


def cut_outputs(proto: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return the part of a model that computes these values, which become its outputs.

    Raises
    ------
    ModelError
        If no node computes one of them; the message has similar names.
    """
    graph = proto.graph
    makers = {name: node for node in graph.node for name in node.output if name}
    wanted = list(dict.fromkeys(names))
    if missing := [name for name in wanted if name not in makers]:
        from difflib import get_close_matches

        near = get_close_matches(missing[0], makers, n=3)
        hint = f"; similar names: {', '.join(near)}" if near else ""
        raise ModelError(f"no node of the model computes '{missing[0]}'{hint}")
    needed, queue = set(), list(wanted)
    while queue:
        node = makers.get(queue.pop())
        if node is not None and node.name not in needed:
            needed.add(node.name)
            queue += reads(node)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    known = {item.name: item for item in (*graph.value_info, *graph.output)}
    del made.graph.node[:], made.graph.output[:]
    made.graph.node.extend(node for node in graph.node if node.name in needed)
    made.graph.output.extend(known.get(name, onnx.ValueInfoProto(name=name)) for name in wanted)
    read = {name for node in made.graph.node for name in reads(node)}
    kept = [item for item in made.graph.input if item.name in read]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    if any(not item.HasField("type") for item in made.graph.output):
        types = {item.name: item for item in described(proto).graph.value_info}
        for item in made.graph.output:
            if not item.HasField("type") and item.name in types:
                item.CopyFrom(types[item.name])
    return made


def _check_sizes(proto: onnx.ModelProto) -> None:
    """Refuse values that are too large, before a runtime allocates them.

    Raises
    ------
    ModelError
        The message names the value.
    """
    for info in described(proto).graph.value_info:
        dims = info.type.tensor_type.shape.dim
        count = math.prod(dim.dim_value for dim in dims if dim.HasField("dim_value"))
        if dims and count > MAX_ELEMENTS:
            shape = tuple(dim.dim_value for dim in dims)
            raise ModelError(f"'{info.name}' of shape {shape} is too large")


def input_shape(info: onnx.ValueInfoProto) -> list[int | str]:
    """Return the dimensions of an input: numbers, and names ("" without one) of open dimensions."""
    dims = info.type.tensor_type.shape.dim
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param for dim in dims
    ]


def _input_names(proto: onnx.ModelProto) -> list[str]:
    """Return the names of the inputs without those that have an initializer, in order."""
    constants = {item.name for item in proto.graph.initializer}
    return [item.name for item in proto.graph.input if item.name not in constants]


def listed_shapes(proto: onnx.ModelProto) -> list[several.ShapeSet]:
    """Return the sets of shapes in the model's metadata entry `dynamic_input`; [] for a model without it.

    Raises
    ------
    ModelError
        If the entry is no list of sets with a shape for every input.
    """
    text = next((item.value for item in proto.metadata_props if item.key == several.KEY), None)
    if text is None:
        return []
    try:
        return several.sets_of(text, len(_input_names(proto)))
    except ValueError as error:
        raise ModelError(str(error)) from error


def _reshaped(proto: onnx.ModelProto, shapes: Sequence[tuple[int, ...]]) -> onnx.ModelProto:
    """Return the model with other shapes of its inputs; the model itself if no shapes are given."""
    if not shapes:
        return proto
    names = _input_names(proto)
    if len(shapes) != len(names):
        raise ModelError(f"{len(shapes)} shapes are given, the model has {len(names)} inputs")
    given = dict(zip(names, shapes, strict=True))
    for item in proto.graph.input:
        old = item.type.tensor_type
        if item.name in given and old.HasField("shape") and len(old.shape.dim) != len(given[item.name]):
            rank = len(old.shape.dim)
            raise ModelError(f"input '{item.name}' has {rank} dimensions, not {len(given[item.name])}")
    return _fixed(proto, given)


def planned_shapes(data: bytes) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's values by name, with the sizes that are chosen for open dimensions.

    They are those of a run of onnxruntime; without it, values whose shape is not inferred are absent.

    Raises
    ------
    ModelError
        If the file is damaged.
    """
    fixed = _with_shapes(_parsed(data), {})
    shapes = shapes_of_run(fixed)
    if shapes is not None:
        return shapes
    graph = inferred(fixed).graph
    items = [item for item in (*graph.input, *graph.value_info) if item.type.tensor_type.HasField("shape")]
    sizes = {item.name: (input_shape(item), item) for item in items}
    return {
        name: tuple(size for size in dims if isinstance(size, int))
        for name, (dims, item) in sizes.items()
        if not _is_open(item)
    }


def _with_shapes(
    proto: onnx.ModelProto, given: Mapping[str, tuple[int, ...]], still: OpenDimensions = "choose"
) -> onnx.ModelProto:
    """Fix the shapes of the inputs: as given, or with sizes for open dimensions that the model accepts.

    `still` is what becomes of dimensions that are still open then (`LoadOptions.open_dimensions`).
    """
    inputs = [item for item in proto.graph.input if item.type.HasField("tensor_type")]
    names = [item.name for item in inputs]
    if unknown := [name for name in given if name not in names]:
        raise ModelError(f"the model has no input '{unknown[0]}', only {', '.join(names)}")
    fixed = {item.name: _given_shape(item, given[item.name]) for item in inputs if item.name in given}
    still_open = [item for item in inputs if item.name not in given and _is_open(item)]
    if not still_open and not given:
        return proto
    for item in still_open:
        if still == "refuse" or (still == "batches" and _sizes_matter([item])):
            said = ", ".join(str(size or "?") for size in input_shape(item))
            raise ModelError(
                f"input '{item.name}' has free dimensions [{said}], {UNNAMED}: --shape names one shape, the "
                "metadata entry dynamic_input several"
            )
    shapes = [_guess(still_open, size) for size in (SIZES if _sizes_matter(still_open) else SIZES[:1])]
    candidates = [_fixed(proto, {**fixed, **guess}) for guess in shapes]
    chosen = next((made for made in candidates if runs(made)), candidates[0])
    for item in chosen.graph.input:
        size = math.prod(d for d in input_shape(item) if isinstance(d, int))
        if size > MAX_ELEMENTS:
            raise ModelError(f"input '{item.name}': shape {tuple(input_shape(item))} is too large")
    return chosen


def _is_open(item: onnx.ValueInfoProto) -> bool:
    return any(isinstance(size, str) for size in input_shape(item))


def _given_shape(item: onnx.ValueInfoProto, shape: tuple[int, ...]) -> tuple[int, ...]:
    old = input_shape(item)
    fits = len(old) == len(shape) or not item.type.tensor_type.HasField("shape")
    if not fits or any(isinstance(a, int) and a != b for a, b in zip(old, shape, strict=False)):
        said = ", ".join(str(size or "?") for size in old)
        raise ModelError(f"the shape {shape} does not fit input '{item.name}' of shape [{said}]")
    return shape


def _sizes_matter(items: list[onnx.ValueInfoProto]) -> bool:
    return any(isinstance(size, str) and n > 0 for item in items for n, size in enumerate(input_shape(item)))


def _guess(items: list[onnx.ValueInfoProto], size: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Return shapes for inputs with open dimensions: batches of one, and `size` for all others.

    The width of a map with a fixed height up to 64 (a line of text) is 320 instead of 224.
    """
    batches = {dims[0] for item in items if (dims := input_shape(item)) and isinstance(dims[0], str)} - {""}
    result = {}
    for item in items:
        dims = input_shape(item)
        state = isinstance(dims[0], int) if dims else False
        shape = []
        for place, old in enumerate(dims):
            if isinstance(old, int):
                shape.append(old)
            elif place == 0 or old in batches or (state and place == 1):
                shape.append(1)
            elif len(dims) == 4 and place == 3 and size == SIZES[0] and dims[2] in range(1, 65):
                shape.append(320)
            else:
                shape.append(size[0] if len(dims) == 4 and place == 2 else size[1])
        result[item.name] = tuple(shape)
    return result


def _fixed(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for item in made.graph.input:
        if item.name in shapes:
            kind = item.type.tensor_type.elem_type
            item.CopyFrom(helper.make_tensor_value_info(item.name, kind, shapes[item.name]))
    del made.graph.value_info[:]  # they may name the open dimensions
    kept = [item for item in made.metadata_props if item.key != several.KEY]
    del made.metadata_props[:]  # the model has one shape now
    made.metadata_props.extend(kept)
    for item in made.graph.output:
        item.type.tensor_type.ClearField("shape")
    return made


# Operators on codes, as the same operators on real numbers between DequantizeLinear and QuantizeLinear.
# Each entry has the operator, the (code, scale, zero point) of its inputs and the (scale, zero point) of its
# result, as places among the inputs.
_Triple = tuple[int, int, int]
_ON_CODES: dict[tuple[str, str], tuple[str, Callable[[int], list[_Triple]], tuple[int, int]]] = {
    ("", "QLinearConv"): ("Conv", lambda n: [(0, 1, 2), (3, 4, 5)], (6, 7)),
    ("", "QLinearMatMul"): ("MatMul", lambda n: [(0, 1, 2), (3, 4, 5)], (6, 7)),
    ("com.microsoft", "QGemm"): ("Gemm", lambda n: [(0, 1, 2), (3, 4, 5)], (7, 8)),
    ("com.microsoft", "QLinearAdd"): ("Add", lambda n: [(0, 1, 2), (3, 4, 5)], (6, 7)),
    ("com.microsoft", "QLinearMul"): ("Mul", lambda n: [(0, 1, 2), (3, 4, 5)], (6, 7)),
    ("com.microsoft", "QLinearSigmoid"): ("Sigmoid", lambda n: [(0, 1, 2)], (3, 4)),
    ("com.microsoft", "QLinearLeakyRelu"): ("LeakyRelu", lambda n: [(0, 1, 2)], (3, 4)),
    ("com.microsoft", "QLinearAveragePool"): ("AveragePool", lambda n: [(0, 1, 2)], (3, 4)),
    ("com.microsoft", "QLinearGlobalAveragePool"): ("GlobalAveragePool", lambda n: [(0, 1, 2)], (3, 4)),
    ("com.microsoft", "QLinearConcat"): (
        "Concat",
        lambda n: [(place, place + 1, place + 2) for place in range(2, n, 3)],
        (0, 1),
    ),
}


def _write_as_qdq(graph: onnx.GraphProto) -> None:
    """Write operators on codes as operators on real numbers; others stay as they are."""
    nodes: list[onnx.NodeProto] = []
    constants = {item.name: item for item in graph.initializer}
    for node in graph.node:
        domain = "" if node.domain in OWN_DOMAINS else node.domain
        entry = _ON_CODES.get((domain, node.op_type))
        names = [*node.input, *[""] * 12]
        if entry is None or _exotic(node):
            nodes.append(node)
            continue
        kind, triples, result = entry
        codings = [*result, *(index for place in triples(len(node.input)) for index in place[1:])]
        if not all(names[index] in constants for index in codings if names[index]):
            nodes.append(node)
            continue
        reals = []
        for number, place in enumerate(triples(len(node.input))):
            real = f"{node.name}@input{number}"
            axis = _scale_axis(kind, number, constants.get(names[place[1]]), node)
            coding = [names[index] for index in place if names[index]]
            nodes.append(helper.make_node("DequantizeLinear", coding, [real], real, axis=axis))
            reals.append(real)
        bias = _bias(node, kind, names, nodes, graph)
        real, places = f"{node.name}@real", [names[result[0]], names[result[1]]]
        made = helper.make_node(kind, [*reals, *bias], [real], node.name)
        made.attribute.extend(a for a in node.attribute if a.name != "channels_last")
        nodes.append(made)
        coding = [real, *(name for name in places if name)]
        nodes.append(helper.make_node("QuantizeLinear", coding, [node.output[0]], f"{node.name}@codes"))
    del graph.node[:]
    graph.node.extend(nodes)


def _exotic(node: onnx.NodeProto) -> bool:
    """Whether an operator on codes is in a form that has no equal on real numbers."""
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return bool(values.get("channels_last", 0))


def _scale_axis(kind: str, number: int, scale: onnx.TensorProto | None, node: onnx.NodeProto) -> int:
    """Return the axis of the scales of weights: kernels of a Conv, columns of a matrix."""
    if number != 1 or scale is None or math.prod(scale.dims) <= 1 or kind == "Conv":
        return 0
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return 0 if kind == "Gemm" and values.get("transB", 0) else 1


def _bias(
    node: onnx.NodeProto,
    kind: str,
    names: list[str],
    nodes: list[onnx.NodeProto],
    graph: onnx.GraphProto,
) -> list[str]:
    """Add the DequantizeLinear of a bias of int32, whose scale is input scale * weight scale."""
    place = {"Conv": 8, "Gemm": 6}.get(kind)
    if place is None or not names[place]:
        return []
    constants = {item.name: item for item in graph.initializer}
    scales = [constants.get(names[index]) for index in (1, 4)]
    if scales[0] is None or scales[1] is None:
        raise ModelError(f"{node.op_type} '{node.name}': the scales must be constants")
    arrays = [numpy_helper.to_array(item).astype(np.float32) for item in scales if item is not None]
    scale, real = f"{node.name}@bias_scale", f"{node.name}@bias"
    unit = (arrays[0].reshape(-1)[:1] * arrays[1].reshape(-1)).astype(np.float32)
    unit = unit.reshape(()) if unit.size == 1 else unit
    graph.initializer.append(numpy_helper.from_array(unit, scale))
    nodes.append(helper.make_node("DequantizeLinear", [names[place], scale], [real], real, axis=0))
    return [real]
