"""Rules of NNAPI that a model may break, one for each test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.apis.nnapi.device import IDevice
from rkcosim.apis.nnapi.model import (
    DataLocation,
    Model,
    Operand,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)
from rkcosim.apis.nnapi.ndk.compilations import Compilation
from rkcosim.apis.nnapi.ndk.models import ModelBuilder
from rkcosim.apis.nnapi.ndk.result_codes import NdkError, ResultCode
from rkcosim.apis.nnapi.operations import LETTERS, TABLE, OperationType, forms
from rkcosim.apis.nnapi.prepared import Unsupported, prepare
from rkcosim.apis.nnapi.supported import supported_operations
from rkcosim.apis.nnapi.validation import RANKS, SCALED, ModelInvalid, check_operation, validate
from rkcosim.apis.nnapi.values import ExecutionError
from tests.makers.nnapi_models import F16, F32, I32, S8, U8, Builder, L, T, changed, conv_model, nested


def add_model(kind: T = F32) -> Model:
    """Return ADD of operands 0 and 1 with activation 2 into operand 3."""
    b = Builder()
    scale = 0.5 if kind in (U8, S8) else 0.0
    ends = [b.input(kind, (2, 3), scale), b.input(kind, (2, 3), scale), b.scalar(0)]
    b.add("ADD", ends, b.output(kind, (2, 3), scale))
    return b.model()


def with_operation(model: Model, **members: object) -> Model:
    """Return a model with another first operation."""
    first = replace(model.main.operations[0], **members)  # type: ignore[arg-type]
    return replace(model, main=replace(model.main, operations=(first, *model.main.operations[1:])))


def conv() -> Model:
    """Return a convolution with 10 further operands; 0 data, 1 filter, 2 bias."""
    return conv_model()[0]


def per_channel(channel_dim: int, scales: tuple[float, ...] = (0.25,) * 4) -> Model:
    """Return a convolution with scales per channel."""
    kind = T.TENSOR_QUANT8_SYMM_PER_CHANNEL
    params = SymmPerChannelQuantParams(scales, channel_dim)
    model = changed(conv(), 1, type=kind, scale=0.0, zero_point=0, extra_params=params)
    return changed(model, 2, scale=0.0)


def twice() -> Model:
    """Return a model whose operand 3 is written twice."""
    model = add_model()
    return replace(model, main=replace(model.main, operations=model.main.operations * 2))


def early() -> Model:
    """Return a model that reads operand 2 before it is written."""
    b = Builder()
    x, act, early, late = b.input(F32, (2,)), b.scalar(0), b.between(F32, (2,)), b.output(F32, (2,))
    b.add("ADD", (x, early, act), late)
    b.add("ADD", (x, x, act), early)
    return b.model()


def own_subgraph() -> Model:
    """Return a model whose subgraph 0 contains itself."""
    b = Builder()
    inner = nested(b)
    x = inner.input(T.TENSOR_BOOL8, (1,))
    itself = inner.operand(replace(inner.operands[x], type=T.SUBGRAPH, dimensions=(), lifetime=L.SUBGRAPH))
    inner.add("IF", (x, itself, itself, x), inner.output(T.TENSOR_BOOL8, (1,)))
    named, y = b.subgraph(inner), b.input(T.TENSOR_BOOL8, (1,))
    b.add("IF", (y, named, named, y), b.output(T.TENSOR_BOOL8, (1,)))
    return b.model()


def softmax(scale: float, zero: int) -> Model:
    """Return SOFTMAX with a quantised result."""
    b = Builder()
    b.add("SOFTMAX", (b.input(U8, (1, 4), 0.5, 3), b.scalar(1.0)), b.output(U8, (1, 4), scale, zero))
    return b.model()


def pack(scale: float, zero: int, result: float = 0.5) -> Model:
    """Return PACK of two tensors of bytes, the second one with another quantisation."""
    b = Builder()
    ends = [b.scalar(0), b.input(U8, (2,), 0.5, 3), b.input(U8, (2,), scale, zero)]
    b.add("PACK", ends, b.output(U8, (2, 2), result, 3))
    return b.model()


def branch(inner: tuple[tuple[int, ...], float, int], condition: tuple[int, ...] = (1,)) -> Model:
    """Return an IF with a tensor of [2], scale 0.5 and zero point 3; both subgraphs have another one."""
    b = Builder()
    part = nested(b)
    dimensions, scale, zero = inner
    part.add("RELU", (part.input(U8, dimensions, scale, zero),), part.output(U8, (2,), 0.5, 3))
    named = b.subgraph(part)
    ends = (b.input(T.TENSOR_BOOL8, condition), named, named, b.input(U8, (2,), 0.5, 3))
    b.add("IF", ends, b.output(U8, (2,), 0.5, 3))
    return b.model()


def loop(inner: float) -> Model:
    """Return a WHILE over a tensor of scale 0.5, whose body has another scale."""
    b = Builder()
    condition, body = nested(b), nested(b)
    x = condition.input(U8, (1,), 0.5, 3)
    condition.add("LESS", (x, x), condition.output(T.TENSOR_BOOL8, (1,)))
    body.add("RELU", (body.input(U8, (1,), 0.5, 3),), body.output(U8, (1,), inner, 3))
    ends = (b.subgraph(condition), b.subgraph(body), b.input(U8, (1,), 0.5, 3))
    b.add("WHILE", ends, b.output(U8, (1,), inner, 3))
    return b.model()


def concatenation(second: tuple[int, ...]) -> Model:
    """Return CONCATENATION of a tensor of [1, 2, 3] and another one."""
    b = Builder()
    ends = [b.input(F32, (1, 2, 3)), b.input(F32, second), b.scalar(0)]
    b.add("CONCATENATION", ends, b.output(F32, ()))
    return b.model()


def connected(dimensions: tuple[int, ...]) -> Model:
    """Return FULLY_CONNECTED of data of these dimensions; three of them become five, which are too many."""
    b = Builder()
    given = (*dimensions, 1, 1) if len(dimensions) == 3 else dimensions
    ends = [b.input(F32, given), b.constant(F32, np.ones((2, 6))), b.constant(F32, np.ones(2)), b.scalar(0)]
    b.add("FULLY_CONNECTED", ends, b.output(F32, ()))
    return b.model()


def product(scale: float) -> Model:
    """Return MUL of tensors of bytes of scale 0.5."""
    b = Builder()
    b.add("MUL", [b.input(U8, (2,), 0.5), b.input(U8, (2,), 0.5), b.scalar(0)], b.output(U8, (2,), scale))
    return b.model()


def reverse(result: tuple[int, ...], axes: tuple[int, ...]) -> Model:
    """Return REVERSE of a tensor of [2, 3]."""
    b = Builder()
    b.add("REVERSE", [b.input(F32, (2, 3)), b.input(I32, axes)], b.output(F32, result))
    return b.model()


LIMITED = """RELU FLOOR DEQUANTIZE CHANNEL_SHUFFLE PAD PAD_V2 RESHAPE SQUEEZE TRANSPOSE MEAN
REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM SOFTMAX STRIDED_SLICE L2_NORMALIZATION
LOCAL_RESPONSE_NORMALIZATION""".split()
"""Operations whose first input has at most four axes in AOSP (common/types/operations/src)."""


def test_ranks_of_aosp() -> None:
    for name in LIMITED:
        ranks, count = RANKS[name]
        assert (ranks, count) == ((1, 2, 3, 4), 1), name
    for name in ("ABS", "EXP", "HARD_SWISH", "GATHER", "SLICE", "SPLIT", "TILE", "SELECT", "CAST", "PRELU"):
        assert name not in RANKS  # any rank in AOSP, too


def test_bytes_of_unknown_dimensions() -> None:
    """AOSP multiplies from the first dimension on: behind a 0 every dimension is allowed."""
    validate(changed(add_model(), 0, dimensions=(0, 1 << 31)))
    validate(product(0.2500001))


def test_copies_of_codes_with_one_quantisation() -> None:
    """What AOSP accepts: PACK, IF and WHILE whose operands agree, or have unknown dimensions."""
    for model in (
        pack(0.5, 3),
        branch(((2,), 0.5, 3)),
        branch(((0,), 0.5, 3)),
        branch(((), 0.5, 3)),
        loop(0.5),
    ):
        validate(model)


CASES: dict[str, tuple[Callable[[], Model], int | None, int | None, str]] = {
    "operand index": (lambda: with_operation(add_model(), inputs=(0, 9, 2)), 0, 9, "reads operand 9 of 4"),
    "code": (lambda: with_operation(add_model(), type=106), 0, None, "106 is not the code"),
    "count": (lambda: with_operation(add_model(), inputs=(0, 1)), 0, None, "takes 3 operands, not 2"),
    "results": (lambda: with_operation(add_model(), outputs=()), None, 3, "no operation writes it"),
    "written twice": (twice, 1, 3, "written twice"),
    "read before": (early, 0, 2, "before an operation writes it"),
    "write to an input": (lambda: with_operation(add_model(), outputs=(0,)), 0, 0, "SUBGRAPH_INPUT"),
    "types differ": (lambda: changed(add_model(), 1, type=F16), 0, 1, "may not be TENSOR_FLOAT16"),
    "type": (lambda: add_model(T.TENSOR_BOOL8), 0, 0, "may not be TENSOR_BOOL8"),
    "result type": (lambda: changed(add_model(), 3, type=F16), 0, 3, "a result may not be"),
    "omitted": (lambda: changed(add_model(), 2, lifetime=L.NO_VALUE), 0, 2, "may not be omitted"),
    "scalar dimensions": (lambda: changed(add_model(), 2, dimensions=(1,)), None, 2, "has no dimensions"),
    "zero point": (lambda: changed(add_model(U8), 0, zero_point=256), None, 0, "0 to 255"),
    "signed zero point": (lambda: changed(add_model(S8), 0, zero_point=128), None, 0, "-128 to 127"),
    "scale": (lambda: changed(add_model(U8), 1, scale=0.0), None, 1, "scale above 0"),
    "no scale": (lambda: changed(add_model(), 1, scale=0.5), None, 1, "has no scale"),
    "negative scale": (lambda: changed(add_model(U8), 1, scale=-1.0), None, 1, "scale -1.0"),
    "rank": (lambda: changed(add_model(), 0, dimensions=(1, 1, 1, 2, 3)), 0, 0, "rank 5"),
    "conv rank": (lambda: changed(conv(), 0, dimensions=(5, 4, 3)), 0, 0, "rank 3, not 4"),
    "bias zero": (lambda: changed(conv(), 2, zero_point=1), None, 2, "zero point"),
    "bias type": (lambda: changed(conv(), 2, type=F32, scale=0.0), 0, 2, "'bias' is needed"),
    "channel dimension": (lambda: per_channel(3, (0.25,) * 3), 0, 1, "dimension is 3, not 0"),
    "scales": (lambda: per_channel(0, (0.25,) * 3), None, 1, "4 scales above 0"),
    "no scales": (lambda: changed(per_channel(0), 1, extra_params=None), None, 1, "needs scales"),
    "channel scales": (
        lambda: changed(conv(), 1, extra_params=SymmPerChannelQuantParams((1.0,) * 4, 0)),
        *(None, 1, "no scales per channel"),
    ),
    "constant length": (
        lambda: changed(conv(), 1, location=DataLocation(length=3)),
        *(None, 1, "72 bytes, but its location has 3"),
    ),
    "constant place": (
        lambda: changed(conv(), 1, location=DataLocation(offset=10**6, length=72)),
        *(None, 1, "outside a pool"),
    ),
    "pool": (
        lambda: changed(conv(), 1, lifetime=L.CONSTANT_POOL, location=DataLocation(2, 0, 72)),
        *(None, 1, "no pool 2"),
    ),
    "input not listed": (
        lambda: replace(add_model(), main=replace(add_model().main, input_indexes=(0,))),
        *(None, 1, "none of them"),
    ),
    "lifetime": (
        lambda: replace(add_model(), main=replace(add_model().main, output_indexes=(3, 0))),
        *(None, 0, "SUBGRAPH_INPUT"),
    ),
    "empty": (lambda: replace(add_model(), main=replace(add_model().main, operations=())), None, None, ""),
    "pack scale": (lambda: pack(0.25, 3), 0, 3, "keep scale and zero point"),
    "pack zero": (lambda: pack(0.5, 4), 0, 3, "keep scale and zero point"),
    "pack result": (lambda: pack(0.25, 3, 0.25), 0, 3, "keep scale and zero point"),
    "if scale": (lambda: branch(((2,), 0.25, 3)), 0, None, "input of the subgraph for then 0: scale 0.25"),
    "if zero": (lambda: branch(((2,), 0.5, 4)), 0, None, "zero point 4"),
    "if dimensions": (lambda: branch(((3,), 0.5, 3)), 0, None, "dimensions [3]"),
    "if condition": (lambda: branch(((2,), 0.5, 3), (2,)), 0, None, "TENSOR_BOOL8 [2], not"),
    "while scale": (lambda: loop(0.25), 0, None, "output of the body 0: scale 0.25"),
    "bytes": (lambda: changed(add_model(), 0, dimensions=(1 << 16, 1 << 14)), None, 0, "2^32 - 1 bytes"),
    "many dimensions": (
        lambda: changed(add_model(), 0, dimensions=(5, 4, 4, 786433, 5, 3, 16777216, 4, 5)),
        *(None, 0, "2^32 - 1 bytes"),
    ),
    "product scale": (lambda: product(0.25), 0, 3, "scale 0.25 is not above 0.25"),
    "later rank": (lambda: concatenation((1, 1, 1, 2, 3)), 0, 1, "input 1 has rank 5"),
    "connected ranks": (lambda: connected((2, 3, 1)), 0, None, "are [5, 2, 1], not"),
    "weights rank": (lambda: connected((6,)), 0, None, "are [1, 2, 1], not 2 to 4, 2 and 1"),
    "own subgraph": (own_subgraph, None, 1, "contains itself"),
    "packed ranks": (lambda: changed(pack(0.5, 3), 3, dimensions=(2, 2, 2)), 0, None, "has rank 1, not 2"),
    "reversed rank": (lambda: reverse((2,), (1,)), 0, 2, "the result has rank 1, the input 2"),
    "axes": (lambda: reverse((2, 3), (2,)), 0, 1, "dimensions [2], not [1]"),
    "model of another type": (lambda: changed(branch(((2,), 0.5, 3)), 0, type=I32), 0, None, "two subgraphs"),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    make, operation, operand, text = CASES[name]
    with pytest.raises(ModelInvalid) as caught:
        validate(make())
    assert (caught.value.operation, caught.value.operand) == (operation, operand), str(caught.value)
    assert text in caught.value.rule
    if operation is not None and name != "code":
        assert f"operation {operation} (" in str(caught.value)


SCALES: dict[str, tuple[Callable[[], Model], str]] = {
    "bias scale": (lambda: changed(conv(), 2, scale=0.5), "operand 2: the bias must have the scale 0.125"),
    "channel bias": (lambda: changed(per_channel(0), 2, scale=0.1), "operand 2: a bias with scales per"),
    "softmax scale": (lambda: softmax(1 / 128, 0), "operand 2: the result must have scale 0.00390625"),
    "softmax zero": (lambda: softmax(1 / 256, 1), "and zero point 0"),
}


@pytest.mark.parametrize("name", SCALES)
def test_scales_are_looked_at_by_the_execution(name: str) -> None:
    """AOSP takes the model, and its execution fails (runtime/test/TestValidateOperations.cpp, *_quant8)."""
    make, text = SCALES[name]
    model = make()
    validate(model)
    data = model.main.operands[model.main.input_indexes[0]]
    with prepare(model, npu=False) as prepared, pytest.raises(ExecutionError, match=text):
        prepared.execute([np.ones(data.dimensions, data.type.dtype)])


SHORT = LETTERS | {"F": T.FLOAT32, "H": T.FLOAT16, "I": T.INT32, "B": T.BOOL}

TYPES: dict[str, tuple[str, ...]] = {
    "AXIS_ALIGNED_BBOX_TRANSFORM": ("ffif f", "hhih h", "vuiv v", "vsiv v"),
    "BOX_WITH_NMS_LIMIT": ("ffiFIIFFF ffii", "hhiHIIHHH hhii", "uviFIIFFF uvii", "sviFIIFFF svii"),
    "CAST": ("f h", "h f", "i u", "u i", "b b", "v v", "w w", "s s", "y y"),
    "DETECTION_POSTPROCESSING": ("fffFFFFBIIIFFB ffii", "hhhHHHHBIIIHHB hhii"),
    "FILL": ("iF f", "iH h", "iI i"),
    "GENERATE_PROPOSALS": ("ffffFFIIFFB ffi", "hhhhHHIIHHB hhi", "uuwvFFIIFFB uvi", "sswvFFIIFFB svi"),
    "HEATMAP_MAX_KEYPOINT": ("ffB ff", "hhB hh", "uvB uv", "svB sv"),
    "LSH_PROJECTION": ("fffI i", "hhhI i", "fifI i", "fufI i"),
    "ROI_ALIGN": ("ffiIIFFIIB f", "hhiIIHHIIB h", "uviIIFFIIB u", "sviIIFFIIB s"),
    "ROI_POOLING": ("ffiIIFFB f", "hhiIIHHB h", "uviIIFFB u", "sviIIFFB s"),
}
"""Types of inputs and results that AOSP @19f042d takes (common/types/operations/src), by letters of `SHORT`.
"""


def fits(name: str, given: Sequence[T], made: Sequence[T]) -> bool:
    """Whether an operation may have operands of these types, and of dimensions that are not known."""
    operands = [
        Operand(kind, scale=0.5 if kind in SCALED else 0.0, lifetime=L.TEMPORARY_VARIABLE)
        for kind in (*given, *made)
    ]
    ends = tuple(range(len(given))), tuple(range(len(given), len(operands)))
    try:
        check_operation(Subgraph(tuple(operands), (), (), ()), 0, Operation(OperationType[name], *ends))
    except ModelInvalid:
        return False
    return True


@pytest.mark.parametrize("name", TYPES)
def test_types_of_aosp(name: str) -> None:
    """Every type of an operand by which AOSP's forms differ from one that AOSP refuses is refused."""
    known = {form for form in TYPES[name]}
    if name == "CAST":
        known |= {f"{x} {y}" for x in "fhiu" for y in "fhiu"}
    if name == "LSH_PROJECTION":
        known |= {f"{x}{y}{x}I i" for x in "fh" for y in "fhiu"}
    for form in sorted(known):
        given, made = form.split()
        assert fits(name, [SHORT[one] for one in given], [SHORT[one] for one in made]), form
        for place in range(len(given) + len(made)):
            for letter in SHORT:
                one = f"{given}{made}"[:place] + letter + f"{given}{made}"[place + 1 :]
                other = f"{one[: len(given)]} {one[len(given) :]}"
                if other not in known:
                    halves = [[SHORT[x] for x in half] for half in other.split()]
                    assert not fits(name, *halves), other


RESULTS = {
    "UNIDIRECTIONAL_SEQUENCE_RNN": (1, 2),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (1, 3),
    "BIDIRECTIONAL_SEQUENCE_RNN": (1, 2, 3, 4),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (1, 2, 5, 6),
}
"""Numbers of results that AOSP takes, without and with merged halves and states."""


@pytest.mark.parametrize("name", RESULTS)
def test_numbers_of_results_of_aosp(name: str) -> None:
    scalars = {"act": T.INT32, "int": T.INT32, "real": T.FLOAT32, "bool": T.BOOL}
    given = [scalars.get(word.text, F32) for word in forms(name)[0]]
    assert tuple(count for count in range(9) if fits(name, given, [F32] * count)) == RESULTS[name]


@pytest.mark.parametrize("kind", [F32, F16, U8, S8, I32])
def test_valid(kind: T) -> None:
    validate(add_model(kind))


def test_valid_convolutions() -> None:
    validate(conv())
    validate(per_channel(0))
    validate(softmax(1 / 256, 0))


def test_every_operation_is_described() -> None:
    assert [kind.value for kind in OperationType] == [*range(106), 10000]
    assert set(TABLE) == {kind.name for kind in OperationType}
    assert (OperationType.CONV_2D, OperationType.IF, OperationType.REVERSE) == (3, 96, 105)
    assert sorted({len(form) for form in forms("CONV_2D")}) == [7, 8, 10, 11, 13]
    assert [len(form) for form in forms("LSTM")] == [27, 23]
    assert [len(form) for form in forms("BIDIRECTIONAL_SEQUENCE_LSTM")] == [61]


def test_supported_operations() -> None:
    b = Builder()
    x, y = b.input(F32, (4,)), b.between(F32, (4,))
    b.add("FLOOR", (x,), y)
    b.add("LSH_PROJECTION", (y, x, b.omitted(F32), b.scalar(1)), b.output(I32, (4,)))
    assert supported_operations(b.model()) == [True, False]


def test_unknown_operation_code() -> None:
    model = add_model()
    broken = replace(model, main=replace(model.main, operations=(Operation(-1, (0, 1, 2), (3,)),)))
    with pytest.raises(ModelInvalid, match="-1 is not the code of an operation"):
        supported_operations(broken)


CHANGES = st.one_of(
    st.fixed_dictionaries({"dimensions": st.lists(st.integers(-1, 5), max_size=5).map(tuple)}),
    st.fixed_dictionaries({"scale": st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e30, float("nan")])}),
    st.fixed_dictionaries({"zero_point": st.integers(-300, 300)}),
    st.fixed_dictionaries({"type": st.sampled_from(list(T))}),
    st.fixed_dictionaries({"lifetime": st.sampled_from(list(L))}),
    st.builds(lambda n: {"location": DataLocation(length=n)}, st.integers(-1, 300)),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 13), CHANGES), max_size=2),
    st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 14)), max_size=2),
    st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 7, 2**31 - 1]),
    st.integers(0, 200),
)
def test_damaged_models(
    changes: list[tuple[int, dict[str, object]]], moves: list[tuple[int, int]], number: int, place: int
) -> None:
    """A damaged model is refused, or fails in its execution, or gives a result: nothing else happens."""
    model, x, _ = conv_model()
    inputs = list(model.main.operations[0].inputs)
    for at, index in moves:
        inputs[at % len(inputs)] = index
    model = with_operation(model, inputs=tuple(inputs))
    for operand, members in changes:
        model = changed(model, operand % len(model.main.operands), **members)
    values = bytearray(model.operand_values)
    values[place : place + 4] = number.to_bytes(4, "little", signed=True)
    try:
        with prepare(replace(model, operand_values=bytes(values)), npu=False) as prepared:
            made = prepared.execute([x])
    except (ModelInvalid, Unsupported, ExecutionError):
        return
    assert all(isinstance(array, np.ndarray) for array in made)


def test_operations_of_a_maker() -> None:
    """AOSP takes OEM types and OEM_OPERATION; a device that has it not refuses it (TestValidation.cpp)."""
    model = ModelBuilder()
    model.add_operand(T.OEM_SCALAR, (), 0.25, 3)
    model.set_value(0, bytes(20))
    for _ in range(2):
        model.add_operand(T.TENSOR_OEM_BYTE, (1,), 0.0, 0)
    model.add_operation(OperationType.OEM_OPERATION, (1, 0), (2,))
    model.identify((1,), (2,))
    model.finish()
    with IDevice(engine="golden") as device:
        assert device.supported_operations(*model.merged()) == [False]
        compilation = Compilation(model, explicit=True)
        with pytest.raises(NdkError, match="the device has no operation OEM_OPERATION") as caught:
            compilation.finish(device)
    assert caught.value.code is ResultCode.BAD_DATA and not compilation.ready
