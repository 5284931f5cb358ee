"""Validation of a model: what NNAPI requires before a model is prepared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from rkcosim.apis.nnapi.model import (
    OEM,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    Subgraph,
)
from rkcosim.apis.nnapi.operations import TABLE, OperationType, Word, accepts, endings, forms

L, T = OperandLifeTime, OperandType

ZEROS = {
    T.TENSOR_QUANT8_ASYMM: (0, 255),
    T.TENSOR_QUANT8_ASYMM_SIGNED: (-128, 127),
    T.TENSOR_QUANT16_ASYMM: (0, 65535),
    T.TENSOR_QUANT8_SYMM: (0, 0),
    T.TENSOR_QUANT16_SYMM: (0, 0),
    T.TENSOR_QUANT8_SYMM_PER_CHANNEL: (0, 0),
}
"""Least and largest zero point by type; all other types have none but 0."""

SCALED = ZEROS.keys() - {T.TENSOR_QUANT8_SYMM_PER_CHANNEL}
"""Types that need a scale above 0."""

CHANNEL_DIMS = {"CONV_2D": 0, "GROUPED_CONV_2D": 0, "TRANSPOSE_CONV_2D": 0, "DEPTHWISE_CONV_2D": 3}
"""Dimension of the filter that has a scale per index."""

FIXED_OUTPUTS = {
    "LOGISTIC": (1 / 256, 0),
    "SOFTMAX": (1 / 256, 0),
    "TANH": (1 / 128, 128),
    "L2_NORMALIZATION": (1 / 128, 128),
}
"""Scale and zero point that the results of unsigned bytes must have; 128 less for signed bytes."""

BIAS_TOLERANCE = 1e-6
"""Relative difference up to which a bias has the scale of input times filter."""


Ends = tuple[Sequence[Operand], Sequence[Operand]]
"""Inputs and outputs of a subgraph."""


class ModelInvalid(ValueError):
    """A model breaks a rule of NNAPI.

    Members
    -------
    operation : index of the operation in its subgraph, None if the rule is about an operand or the model.
    operand : index of the operand in its subgraph, None if the rule is about something else.
    rule : what is required, and what was found.
    """

    def __init__(
        self, rule: str, operation: int | None = None, operand: int | None = None, kind: str = ""
    ) -> None:
        self.operation, self.operand, self.rule = operation, operand, rule
        place = [f"operation {operation}{f' ({kind})' if kind else ''}"] if operation is not None else []
        place += [f"operand {operand}"] if operand is not None else []
        super().__init__(": ".join([*[", ".join(place)] * bool(place), rule]))


def validate(model: Model) -> None:
    """Check a model: operands, operations and their types, values, and the order of the operations.

    Raises
    ------
    ModelInvalid
        For the first rule that is broken; it names operation, operand and rule.
    """
    _nesting(model, model.main, ())
    for subgraph in (model.main, *model.referenced):
        if not subgraph.operations and subgraph is model.main:
            raise ModelInvalid("a model needs an operation")
        for index, operand in enumerate(subgraph.operands):
            _operand(model, index, operand)
        _ends(subgraph)
        _order(subgraph)
        for index, operation in enumerate(subgraph.operations):
            check_operation(subgraph, index, operation)
            check_control(subgraph.operands, index, operation, lambda operand: _ends_of(model, operand))


def _ends_of(model: Model, operand: Operand) -> Ends:
    """Return the inputs and outputs of the subgraph that an operand names."""
    named = model.referenced[operand.location.offset]
    inputs, outputs = (
        [named.operands[index] for index in indices]
        for indices in (named.input_indexes, named.output_indexes)
    )
    return inputs, outputs


def check_control(
    operands: Sequence[Operand], number: int, operation: Operation, ends: Callable[[Operand], Ends]
) -> None:
    """Check the subgraphs of an IF or WHILE against the operands that they get and give.

    A subgraph takes and gives the elements of the operands as they are, so types, ranks and dimensions that
    are known, scales and zero points must be the same (AOSP, common/types/src/Validation.cpp).

    Parameters
    ----------
    operands, number, operation : operands of the subgraph, and the operation's place and content.
    ends : gives the inputs and outputs of the subgraph that an operand names.

    Raises
    ------
    ModelInvalid
        If they differ; it names operation and operand.
    """
    kind = _name(operation, number)
    if kind not in ("IF", "WHILE"):
        return
    given = [operands[index] for index in operation.inputs]
    made = [operands[index] for index in operation.outputs]

    def same(what: str, inner: Sequence[Operand], outer: Sequence[Operand]) -> None:
        if len(inner) != len(outer):
            raise ModelInvalid(f"{what}: {len(inner)} operands for {len(outer)}", number, kind=kind)
        for place, (one, other) in enumerate(zip(inner, outer, strict=True)):
            if problem := _difference(one, other):
                raise ModelInvalid(f"{what} {place}: {problem}", number, kind=kind)

    def condition(operand: Operand) -> None:
        if operand.type is not T.TENSOR_BOOL8 or operand.dimensions != (1,):
            found = f"{operand.type.name} {list(operand.dimensions)}"
            raise ModelInvalid(f"the condition is {found}, not TENSOR_BOOL8 [1]", number, kind=kind)

    places = (1, 2) if kind == "IF" else (0, 1)
    named = [given[place] for place in places if place < len(given)]
    subgraphs = all((one.lifetime, one.type) == (L.SUBGRAPH, T.SUBGRAPH) for one in named)
    if len(given) < 3 or not made or not subgraphs:
        raise ModelInvalid("it needs two subgraphs and a result", number, kind=kind)
    (first_in, first_out), (second_in, second_out) = (ends(given[place]) for place in places)
    if kind == "IF":
        condition(given[0])
        for name, inputs, outputs in (("then", first_in, first_out), ("else", second_in, second_out)):
            same(f"input of the subgraph for {name}", inputs, given[3:])
            same(f"output of the subgraph for {name}", outputs, made)
        return
    same("input of the condition", first_in, given[2:])
    if len(first_out) != 1:
        raise ModelInvalid(f"the condition has {len(first_out)} outputs", number, kind=kind)
    condition(first_out[0])
    same("input of the body", second_in, given[2:])
    if not len(made) <= len(second_out) <= len(second_in):
        count = f"{len(second_in)} inputs and {len(second_out)} outputs for {len(made)} results"
        raise ModelInvalid(f"the body has {count}", number, kind=kind)
    same("output of the body", second_out[: len(made)], made)
    same("output of the body", second_out, second_in[: len(second_out)])


def _difference(inner: Operand, outer: Operand) -> str:
    """Return how two operands of the same elements differ, "" if they do not."""
    if inner.type is not outer.type:
        return f"{inner.type.name}, but {outer.type.name} outside"
    sizes, others = inner.dimensions, outer.dimensions
    known = sizes and others
    if known and (
        len(sizes) != len(others) or any(n and m and n != m for n, m in zip(sizes, others, strict=True))
    ):
        return f"dimensions {list(sizes)}, but {list(others)} outside"
    if (inner.scale, inner.zero_point, inner.extra_params) != (
        outer.scale,
        outer.zero_point,
        outer.extra_params,
    ):
        return f"scale {inner.scale:g} and zero point {inner.zero_point}, but others outside"
    return ""


def _nesting(model: Model, subgraph: Subgraph, above: tuple[int, ...]) -> None:
    """Check that subgraphs exist and that none contains itself."""
    for index, operand in enumerate(subgraph.operands):
        if operand.lifetime is not L.SUBGRAPH:
            continue
        named = operand.location.offset
        if not 0 <= named < len(model.referenced):
            raise ModelInvalid(f"there is no subgraph {named}", operand=index)
        if named in above:
            raise ModelInvalid(f"subgraph {named} contains itself", operand=index)
        _nesting(model, model.referenced[named], (*above, named))


def check_operand(index: int, operand: Operand) -> None:
    """Check type, dimensions, scale and zero point of an operand; raises ModelInvalid."""
    kind = operand.type
    if kind.scalar and operand.dimensions:
        raise ModelInvalid(f"a scalar has no dimensions, not {operand.dimensions}", operand=index)
    if any(n < 0 for n in operand.dimensions):
        raise ModelInvalid(f"dimensions {operand.dimensions} are negative", operand=index)
    if _overflows(operand):
        raise ModelInvalid(f"dimensions {operand.dimensions} have more than 2^32 - 1 bytes", operand=index)
    if kind in OEM:  # any quantisation (AOSP, common/LegacyUtils.cpp, validateOperandTypeHelper)
        return
    low, high = ZEROS.get(kind, (0, 0))
    if not low <= operand.zero_point <= high:
        raise ModelInvalid(
            f"the zero point of {kind.name} is {low} to {high}, not {operand.zero_point}", operand=index
        )
    if not np.isfinite(operand.scale) or operand.scale < 0:
        raise ModelInvalid(f"the scale {operand.scale} is not a number from 0 on", operand=index)
    if kind in SCALED and not operand.scale > 0 and operand.lifetime is not L.NO_VALUE:
        raise ModelInvalid(f"{kind.name} needs a scale above 0", operand=index)
    if kind not in SCALED and kind is not T.TENSOR_INT32 and operand.scale:
        raise ModelInvalid(f"{kind.name} has no scale, but {operand.scale} is given", operand=index)


def _overflows(operand: Operand) -> bool:
    """Whether the bytes of a tensor, multiplied from its first dimension on as in AOSP, exceed 32 bits."""
    if not operand.dimensions:
        return False
    size = operand.type.dtype.itemsize
    for dimension in operand.dimensions:
        size *= dimension
        if size >= 1 << 32:
            return True
    return False


def _operand(model: Model, index: int, operand: Operand) -> None:
    check_operand(index, operand)
    check_channel_scales(index, operand)
    if operand.lifetime in (L.CONSTANT_COPY, L.CONSTANT_POOL):
        _constant(model, index, operand)


def check_channel_scales(index: int, operand: Operand) -> None:
    """Check that exactly the type with scales per channel has them, one each; raises ModelInvalid."""
    extra = operand.extra_params
    if operand.type is not T.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        if extra is not None:
            raise ModelInvalid(f"{operand.type.name} has no scales per channel", operand=index)
        return
    if extra is None:
        if operand.lifetime is not L.NO_VALUE:
            raise ModelInvalid("TENSOR_QUANT8_SYMM_PER_CHANNEL needs scales per channel", operand=index)
        return
    if not 0 <= extra.channel_dim < len(operand.dimensions):
        raise ModelInvalid(f"the channel dimension {extra.channel_dim} is none of the tensor", operand=index)
    size = operand.dimensions[extra.channel_dim]
    if len(extra.scales) != size or not all(np.isfinite(s) and s > 0 for s in extra.scales):
        raise ModelInvalid(
            f"{size} scales above 0 are needed, one for each channel; {len(extra.scales)} are given",
            operand=index,
        )


def _constant(model: Model, index: int, operand: Operand) -> None:
    if operand.type is T.OEM_SCALAR:  # a value of any size
        return
    if operand.lifetime is L.CONSTANT_POOL and not 0 <= operand.location.pool_index < len(model.pools):
        raise ModelInvalid(f"there is no pool {operand.location.pool_index}", operand=index)
    if not operand.type.scalar and (not operand.dimensions or 0 in operand.dimensions):
        if operand.location.length:
            raise ModelInvalid("the dimensions of a constant must be known", operand=index)
    try:
        model.value(operand)
    except (ValueError, KeyError) as error:
        raise ModelInvalid(str(error), operand=index) from error


def _ends(subgraph: Subgraph) -> None:
    """Check that inputs and outputs are listed exactly once, as their lifetimes say."""
    for name, listed, lifetime in (
        ("inputs", subgraph.input_indexes, L.SUBGRAPH_INPUT),
        ("outputs", subgraph.output_indexes, L.SUBGRAPH_OUTPUT),
    ):
        for index in listed:
            if not 0 <= index < len(subgraph.operands):
                raise ModelInvalid(f"the {name} name operand {index} of {len(subgraph.operands)}")
            if subgraph.operands[index].lifetime is not lifetime:
                found = subgraph.operands[index].lifetime.name
                raise ModelInvalid(f"it is one of the {name}, but its lifetime is {found}", operand=index)
        if len(set(listed)) != len(listed):
            raise ModelInvalid(f"the {name} {listed} name an operand twice")
        for index, operand in enumerate(subgraph.operands):
            if operand.lifetime is lifetime and index not in listed:
                raise ModelInvalid(f"its lifetime is {lifetime.name}, but it is none of them", operand=index)


def _order(subgraph: Subgraph) -> None:
    """Check that operands are written once, and before they are read."""
    written: set[int] = set()
    size = len(subgraph.operands)
    for number, operation in enumerate(subgraph.operations):
        kind = _name(operation, number)
        for side, indices in (("reads", operation.inputs), ("writes", operation.outputs)):
            for index in indices:
                if not 0 <= index < size:
                    raise ModelInvalid(f"it {side} operand {index} of {size}", number, index, kind)
        for index in operation.inputs:
            made = subgraph.operands[index].lifetime in (L.TEMPORARY_VARIABLE, L.SUBGRAPH_OUTPUT)
            if made and index not in written:
                raise ModelInvalid("it is read before an operation writes it", number, index, kind)
        for index in operation.outputs:
            if subgraph.operands[index].lifetime not in (L.TEMPORARY_VARIABLE, L.SUBGRAPH_OUTPUT):
                raise ModelInvalid(
                    f"an operation writes it, but its lifetime is {subgraph.operands[index].lifetime.name}",
                    *(number, index, kind),
                )
            if index in written:
                raise ModelInvalid("it is written twice", number, index, kind)
            written.add(index)
    for index, operand in enumerate(subgraph.operands):
        if operand.lifetime in (L.TEMPORARY_VARIABLE, L.SUBGRAPH_OUTPUT) and index not in written:
            raise ModelInvalid("no operation writes it", operand=index)


def _name(operation: Operation, number: int) -> str:
    try:
        return OperationType(operation.type).name
    except ValueError:
        raise ModelInvalid(f"{operation.type} is not the code of an operation", number) from None


def check_operation(subgraph: Subgraph, number: int, operation: Operation) -> None:
    """Check an operation, whose operands exist, against the rules of its kind; raises ModelInvalid."""
    kind = _name(operation, number)
    given = [subgraph.operands[index] for index in operation.inputs]
    made = [subgraph.operands[index] for index in operation.outputs]
    tried = [_form_problem(kind, form, given, made) for form in forms(kind)]
    if all(problem is not None for problem in tried):
        place, text = max(problem for problem in tried if problem is not None)
        index = operation.inputs[place] if 0 <= place < len(given) else None
        raise ModelInvalid(text, number, index, kind)
    _outputs(subgraph, number, operation, kind)
    _rules(subgraph, number, operation, kind)


def _expanded(form: Sequence[Word], count: int) -> list[Word]:
    """Return a word for each of `count` operands."""
    rest = count - len(form) + 1
    return [word for item in form for word in [item] * (rest if item.repeats else 1)]


def _data_type(form: Sequence[Word], given: Sequence[Operand], made: Sequence[Operand]) -> OperandType | None:
    """Return the type that `x` stands for: that of an input, or of the first result if no input is `x`."""
    for word, operand in zip(form, given, strict=False):
        if word.text == "x":
            return operand.type
    return made[0].type if made else None


def _form_problem(
    kind: str, form: Sequence[Word], given: Sequence[Operand], made: Sequence[Operand]
) -> tuple[int, str] | None:
    """Return the place of the first operand that does not fit a form, and why; None if all fit."""
    full = _expanded(form, len(given))
    if len(full) != len(given):
        return -1, f"it takes {_counts(forms(kind))} operands, not {len(given)}"
    data = _data_type(full, given, made)
    for place, (word, operand) in enumerate(zip(full, given, strict=True)):
        if operand.lifetime is L.NO_VALUE and not word.optional:
            return place, f"input {place} may not be omitted"
        if word.text == "x" and not accepts(Word(TABLE[kind][0]), operand.type, None):
            return place, f"input {place} may not be {operand.type.name}"
        if not accepts(word, operand.type, data):
            return place, f"input {place} may not be {operand.type.name} ('{word.text}' is needed)"
    return None


def _counts(tried: Sequence[Sequence[Word]]) -> str:
    sizes = sorted({len(form) for form in tried})
    return " or ".join(map(str, sizes)) + ("" if not any(w.repeats for w in tried[0]) else " or more")


def _outputs(subgraph: Subgraph, number: int, operation: Operation, kind: str) -> None:
    """Check number and types of the outputs, and that `same` ones keep scale and zero point."""
    made = [subgraph.operands[index] for index in operation.outputs]
    tried = [_expanded(form, len(made)) for form in endings(TABLE[kind][2])]
    full = next((form for form in tried if len(form) == len(made)), None)
    if full is None:
        counts = _counts(endings(TABLE[kind][2]))
        raise ModelInvalid(f"it gives {counts} results, not {len(made)}", number, kind=kind)
    source = _source(subgraph, operation, kind)
    data = source.type if source else made[0].type
    for index, word, operand in zip(operation.outputs, full, made, strict=True):
        fits = accepts(Word(TABLE[kind][0]) if word.text == "x" and not source else word, operand.type, data)
        if not fits:
            text = f"a result may not be {operand.type.name} ('{word.text}' is needed)"
            raise ModelInvalid(text, number, index, kind)
        if word.text == "same" and source is not None and source.type in SCALED:
            copied = [subgraph.operands[n] for n in operation.inputs[1:]] if kind == "PACK" else [source]
            if any((operand.scale, operand.zero_point) != (one.scale, one.zero_point) for one in copied):
                raise ModelInvalid("the result must keep scale and zero point", number, index, kind)


def _source(subgraph: Subgraph, operation: Operation, kind: str) -> Operand | None:
    """Return the first input that is `x` in the table."""
    given = [subgraph.operands[index] for index in operation.inputs]
    made = [subgraph.operands[index] for index in operation.outputs]
    for form in forms(kind):
        if _form_problem(kind, form, given, made) is None:
            for word, operand in zip(_expanded(form, len(given)), given, strict=True):
                if word.text == "x":
                    return operand
    return None


def _rules(subgraph: Subgraph, number: int, operation: Operation, kind: str) -> None:
    """Check rules beyond the types: ranks, channel dimensions, the scale of a product."""
    given = [subgraph.operands[index] for index in operation.inputs]
    made = [subgraph.operands[index] for index in operation.outputs]
    if kind in RANKS:
        for place, index in enumerate(operation.inputs[: RANKS[kind][1]]):
            rank = len(subgraph.operands[index].dimensions)
            if rank and rank not in RANKS[kind][0]:
                allowed = " or ".join(map(str, RANKS[kind][0]))
                raise ModelInvalid(f"input {place} has rank {rank}, not {allowed}", number, index, kind)
    if kind == "MUL" and made[0].type in SCALED:
        least = float(np.float32(given[0].scale) * np.float32(given[1].scale))
        if not np.float32(made[0].scale) > least:
            text = f"the result's scale {made[0].scale:g} is not above {least:g}, that of the product"
            raise ModelInvalid(text, number, operation.outputs[0], kind)
    if kind == "FULLY_CONNECTED" and all(operand.dimensions for operand in given[:3]):
        ranks = [len(operand.dimensions) for operand in given[:3]]
        if ranks[0] not in (2, 3, 4) or ranks[1:] != [2, 1]:
            text = f"the ranks of data, weights and bias are {ranks}, not 2 to 4, 2 and 1"
            raise ModelInvalid(text, number, kind=kind)
    if kind == "PACK":
        _packed(number, operation, given[1:], made[0])
    if kind == "REVERSE":
        _reversed(number, operation, given, made[0])
    extra = given[1].extra_params if kind in CHANNEL_DIMS or kind == "FULLY_CONNECTED" else None
    if extra is not None and extra.channel_dim != CHANNEL_DIMS.get(kind):
        text = f"the channel dimension is {extra.channel_dim}, not {CHANNEL_DIMS.get(kind)}"
        raise ModelInvalid(text, number, operation.inputs[1], kind)


def _packed(number: int, operation: Operation, given: Sequence[Operand], made: Operand) -> None:
    """Check that the inputs of PACK have one rank less than its result (AOSP, Pack.cpp)."""
    ranks = [len(operand.dimensions) + 1 for operand in given if operand.dimensions]
    wanted = len(made.dimensions) or next(iter(ranks), 0)
    for rank in ranks:
        if rank != wanted:
            text = f"an input has rank {rank - 1}, not {wanted - 1}, one less than the result"
            raise ModelInvalid(text, number, kind="PACK")


def _reversed(number: int, operation: Operation, given: Sequence[Operand], made: Operand) -> None:
    """Check that REVERSE has one axis, and a result of its input's rank (AOSP, Reverse.cpp)."""
    if given[1].dimensions and given[1].dimensions not in ((0,), (1,)):
        text = f"the axis has dimensions {list(given[1].dimensions)}, not [1]"
        raise ModelInvalid(text, number, operation.inputs[1], "REVERSE")
    ranks = len(given[0].dimensions), len(made.dimensions)
    if all(ranks) and ranks[0] != ranks[1]:
        text = f"the result has rank {ranks[1]}, the input {ranks[0]}"
        raise ModelInvalid(text, number, operation.outputs[0], "REVERSE")


def check_scales(subgraph: Subgraph, number: int, operation: Operation) -> None:
    """Check the scales that an operation may execute with: those of fixed results and of a bias.

    AOSP takes a model that breaks these rules, and its execution fails (common/OperationsExecutionUtils.cpp,
    GetQuantizedConvolutionMultiplier, and `prepare` of the operations in common/cpu_operations).

    Raises
    ------
    ModelInvalid
        If a scale or a zero point is another one; it names operation and operand.
    """
    kind = _name(operation, number)
    given = [subgraph.operands[index] for index in operation.inputs]
    made = [subgraph.operands[index] for index in operation.outputs]
    if kind in FIXED_OUTPUTS and made[0].type in SCALED:
        scale, zero = FIXED_OUTPUTS[kind]
        zero -= 128 if made[0].type is T.TENSOR_QUANT8_ASYMM_SIGNED else 0
        if made[0].scale != scale or made[0].zero_point != zero:
            text = f"the result must have scale {scale} and zero point {zero}"
            raise ModelInvalid(text, number, operation.outputs[0], kind)
    if kind in CHANNEL_DIMS or kind == "FULLY_CONNECTED":
        _bias(number, operation, kind, given)


RANKS: dict[str, tuple[tuple[int, ...], int]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D"), ((4,), 2)),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), ((4,), 1)),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "RESIZE_BILINEAR"), ((4,), 1)),
    **dict.fromkeys(("RESIZE_NEAREST_NEIGHBOR", "INSTANCE_NORMALIZATION"), ((4,), 1)),
    **dict.fromkeys(
        """RELU RELU1 RELU6 LOGISTIC TANH FLOOR DEQUANTIZE CHANNEL_SHUFFLE PAD PAD_V2 RESHAPE SQUEEZE
        TRANSPOSE MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM SOFTMAX
        STRIDED_SLICE L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION""".split(),
        ((1, 2, 3, 4), 1),
    ),
    "CONCATENATION": ((1, 2, 3, 4), sys.maxsize),
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), ((1, 2, 3, 4), 2)),
}
"""Ranks that the first inputs may have, and how many inputs that concerns; unknown ranks are not checked.

AOSP, common/types/operations/src, and for maps of four axes the operations themselves.
"""


def _bias(number: int, operation: Operation, kind: str, given: Sequence[Operand]) -> None:
    """Check the scale of a quantised product's bias."""
    data, kernel, bias = given[:3]
    place = operation.inputs[2]
    if data.type not in SCALED:
        return
    if kernel.extra_params is not None:
        if bias.scale or bias.zero_point:
            raise ModelInvalid("a bias with scales per channel has the scale 0", number, place, kind)
        return
    wanted = data.scale * kernel.scale
    if abs(bias.scale - wanted) > BIAS_TOLERANCE * wanted or bias.zero_point:
        text = f"the bias must have the scale {wanted:g} (input times filter) and zero point 0"
        raise ModelInvalid(f"{text}, not {bias.scale:g} and {bias.zero_point}", number, place, kind)
