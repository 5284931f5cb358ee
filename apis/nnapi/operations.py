"""The operations of NNAPI: their codes, and what each of them takes and gives.

Codes and operands are those of `NeuralNetworks.h` (AOSP packages/modules/NeuralNetworks,
runtime/include/NeuralNetworksTypes.h).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import IntEnum

from rkcosim.apis.nnapi.model import OperandType

OperationType = IntEnum(  # type: ignore[misc]  # the names are below, one table for code and operands
    "OperationType",
    {
        name: code
        for code, name in enumerate(
            """
            ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
            EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
            LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU1 RELU6 RESHAPE
            RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH BATCH_TO_SPACE_ND DIV MEAN PAD
            SPACE_TO_BATCH_ND SQUEEZE STRIDED_SLICE SUB TRANSPOSE ABS ARGMAX ARGMIN
            AXIS_ALIGNED_BBOX_TRANSFORM BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN
            BOX_WITH_NMS_LIMIT CAST CHANNEL_SHUFFLE DETECTION_POSTPROCESSING EQUAL EXP EXPAND_DIMS GATHER
            GENERATE_PROPOSALS GREATER GREATER_EQUAL GROUPED_CONV_2D HEATMAP_MAX_KEYPOINT
            INSTANCE_NORMALIZATION LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOG_SOFTMAX MAXIMUM
            MINIMUM NEG NOT_EQUAL PAD_V2 POW PRELU QUANTIZE QUANTIZED_16BIT_LSTM RANDOM_MULTINOMIAL REDUCE_ALL
            REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM ROI_ALIGN ROI_POOLING RSQRT SELECT SIN
            SLICE SPLIT SQRT TILE TOPK_V2 TRANSPOSE_CONV_2D UNIDIRECTIONAL_SEQUENCE_LSTM
            UNIDIRECTIONAL_SEQUENCE_RNN RESIZE_NEAREST_NEIGHBOR QUANTIZED_LSTM IF WHILE ELU HARD_SWISH FILL
            RANK BATCH_MATMUL PACK MIRROR_PAD REVERSE
            """.split()
        )
    }
    | {"OEM_OPERATION": 10000},
)
"""The code of each operation: 0 to 105, and 10000 for one that only its maker's driver knows (deprecated)."""

T = OperandType
LETTERS = {
    "f": T.TENSOR_FLOAT32,
    "h": T.TENSOR_FLOAT16,
    "i": T.TENSOR_INT32,
    "u": T.TENSOR_QUANT8_ASYMM,
    "s": T.TENSOR_QUANT8_ASYMM_SIGNED,
    "b": T.TENSOR_BOOL8,
    "y": T.TENSOR_QUANT8_SYMM,
    "p": T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    "w": T.TENSOR_QUANT16_SYMM,
    "v": T.TENSOR_QUANT16_ASYMM,
}
"""Types of tensors by the letters that the table uses."""

SCALARS = {"int": T.INT32, "act": T.INT32, "pad": T.INT32, "bool": T.BOOL}
"""Scalars by the words that the table uses: a fused activation is 0 to 3, a padding scheme 1 or 2."""

BYTES = (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED)
"""The types of quantised bytes that most operations take."""

CONVERTIBLE = (T.TENSOR_FLOAT16, T.TENSOR_FLOAT32, T.TENSOR_INT32, T.TENSOR_QUANT8_ASYMM)
"""The types between which CAST converts."""

ELEMENTS = {T.TENSOR_FLOAT16: T.FLOAT16, T.TENSOR_FLOAT32: T.FLOAT32, T.TENSOR_INT32: T.INT32}
"""The scalar for each type of a tensor that has one."""

_POOL = ("x int*8 act | bool", "x pad int*4 act | bool")
_CONV = ("x filter bias int*6 act | bool | int int", "x filter bias pad int*2 act | bool | int int")
_LSTM = "x x*17? x x act real real"
_QLSTM = "s k*8? w*3? i*4? k? i? s w w*4? real32*6 int real32"

TABLE: dict[str, tuple[str, tuple[str, ...], str]] = {
    "ADD": ("fhusi", ("x x act",), "x"),
    "AVERAGE_POOL_2D": ("fhus", _POOL, "same"),
    "CONCATENATION": ("fhus", ("x* int",), "x"),
    "CONV_2D": ("fhus", _CONV, "x"),
    "DEPTHWISE_CONV_2D": (
        "fhus",
        ("x filter bias int*7 act | bool | int int", "x filter bias pad int*3 act | bool | int int"),
        "x",
    ),
    "DEPTH_TO_SPACE": ("fhus", ("x int | bool",), "same"),
    "DEQUANTIZE": ("usyp", ("x",), "fh"),
    "EMBEDDING_LOOKUP": ("fhius", ("i x",), "same"),
    "FLOOR": ("fh", ("x",), "x"),
    "FULLY_CONNECTED": ("fhus", ("x filter bias act",), "x"),
    "HASHTABLE_LOOKUP": ("fiu", ("i i x",), "same u"),
    "L2_NORMALIZATION": ("fhus", ("x | int",), "x"),
    "L2_POOL_2D": ("fh", _POOL, "x"),
    "LOCAL_RESPONSE_NORMALIZATION": ("fh", ("x int real real real | int",), "x"),
    "LOGISTIC": ("fhus", ("x",), "x"),
    "LSH_PROJECTION": ("fh", ("x fhiu x? int",), "i"),
    "LSTM": ("fh", (f"{_LSTM} | x*4?",), "x x x x"),
    "MAX_POOL_2D": ("fhus", _POOL, "same"),
    "MUL": ("fhusi", ("x x act",), "x"),
    "RELU": ("fhus", ("x",), "x"),
    "RELU1": ("fhus", ("x",), "x"),
    "RELU6": ("fhus", ("x",), "x"),
    "RESHAPE": ("fhusi", ("x i",), "same"),
    "RESIZE_BILINEAR": ("fhus", ("x int int | bool | bool bool", "x real real | bool | bool bool"), "same"),
    "RNN": ("fh", ("x x x x x act",), "x x"),
    "SOFTMAX": ("fhus", ("x real | int",), "x"),
    "SPACE_TO_DEPTH": ("fhus", ("x int | bool",), "same"),
    "SVDF": ("fh", ("x x x x? x int act",), "x x"),
    "TANH": ("fhus", ("x",), "x"),
    "BATCH_TO_SPACE_ND": ("fhus", ("x i | bool",), "same"),
    "DIV": ("fhi", ("x x act",), "x"),
    "MEAN": ("fhus", ("x i int",), "same"),
    "PAD": ("fhus", ("x i",), "same"),
    "SPACE_TO_BATCH_ND": ("fhus", ("x i i | bool",), "same"),
    "SQUEEZE": ("fhus", ("x i?",), "same"),
    "STRIDED_SLICE": ("fhus", ("x i i i int int int",), "same"),
    "SUB": ("fhusi", ("x x act",), "x"),
    "TRANSPOSE": ("fhus", ("x i?",), "same"),
    "ABS": ("fhi", ("x",), "x"),
    "ARGMAX": ("fhius", ("x int",), "i"),
    "ARGMIN": ("fhius", ("x int",), "i"),
    "AXIS_ALIGNED_BBOX_TRANSFORM": ("fhv", ("x delta i x",), "x"),
    "BIDIRECTIONAL_SEQUENCE_LSTM": ("fh", ("x x*47? act real real bool bool x*8?",), "x | x | x*3 | x"),
    "BIDIRECTIONAL_SEQUENCE_RNN": ("fh", ("x x*11? act bool bool",), "x | x | x | x"),
    "BOX_WITH_NMS_LIMIT": ("fhus", ("x roi i real int int real real real",), "x roi i i"),
    "CAST": ("fhiubsyvw", ("x",), "cast"),
    "CHANNEL_SHUFFLE": ("fhus", ("x int int",), "same"),
    "DETECTION_POSTPROCESSING": ("fh", ("x x x real*4 bool int int int real real bool",), "x x i i"),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL"), ("fhiusb", ("x x",), "b")),
    "EXP": ("fh", ("x",), "x"),
    "EXPAND_DIMS": ("fhius", ("x int",), "same"),
    "GATHER": ("fhius", ("x int i",), "same"),
    "GENERATE_PROPOSALS": ("fhus", ("x x anchor roi real real int int real real bool",), "x roi i"),
    **dict.fromkeys(("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), ("fhiusb", ("x x",), "b")),
    "GROUPED_CONV_2D": ("fhus", ("x filter bias int*7 act bool", "x filter bias pad int*3 act bool"), "x"),
    "HEATMAP_MAX_KEYPOINT": ("fhus", ("x roi bool",), "x roi"),
    "INSTANCE_NORMALIZATION": ("fh", ("x real real real bool",), "x"),
    "LOG": ("fh", ("x",), "x"),
    "LOGICAL_AND": ("b", ("x x",), "x"),
    "LOGICAL_NOT": ("b", ("x",), "x"),
    "LOGICAL_OR": ("b", ("x x",), "x"),
    "LOG_SOFTMAX": ("fh", ("x real int",), "x"),
    "MAXIMUM": ("fhius", ("x x",), "x"),
    "MINIMUM": ("fhius", ("x x",), "x"),
    "NEG": ("fhi", ("x",), "x"),
    "PAD_V2": ("fhus", ("x i value",), "same"),
    "POW": ("fh", ("x x",), "x"),
    "PRELU": ("fhus", ("x x",), "x"),
    "QUANTIZE": ("fh", ("x",), "us"),
    "QUANTIZED_16BIT_LSTM": ("u", ("x x*8 i*4 w x",), "w x"),
    "RANDOM_MULTINOMIAL": ("fh", ("x int i",), "i"),
    "REDUCE_ALL": ("b", ("x i bool",), "x"),
    "REDUCE_ANY": ("b", ("x i bool",), "x"),
    "REDUCE_MAX": ("fhus", ("x i bool",), "same"),
    "REDUCE_MIN": ("fhus", ("x i bool",), "same"),
    "REDUCE_PROD": ("fh", ("x i bool",), "x"),
    "REDUCE_SUM": ("fh", ("x i bool",), "x"),
    "ROI_ALIGN": ("fhus", ("x roi i int int real real int int bool",), "x"),
    "ROI_POOLING": ("fhus", ("x roi i int int real real bool",), "x"),
    "RSQRT": ("fhus", ("x",), "x"),
    "SELECT": ("fhius", ("b x x",), "x"),
    "SIN": ("fh", ("x",), "x"),
    "SLICE": ("fhius", ("x i i",), "same"),
    "SPLIT": ("fhius", ("x int int",), "same*"),
    "SQRT": ("fh", ("x",), "x"),
    "TILE": ("fhius", ("x i",), "same"),
    "TOPK_V2": ("fhius", ("x int",), "same i"),
    "TRANSPOSE_CONV_2D": (
        "fhus",
        ("x filter bias int*6 act bool", "x filter bias i pad int*2 act bool"),
        "x",
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": ("fh", (f"{_LSTM} bool x*4?",), "x | x x"),
    "UNIDIRECTIONAL_SEQUENCE_RNN": ("fh", ("x x x x x act int",), "x | x"),
    "RESIZE_NEAREST_NEIGHBOR": (
        "fhus",
        ("x int int bool | bool bool", "x real real bool | bool bool"),
        "same",
    ),
    "QUANTIZED_LSTM": ("s", (_QLSTM,), "s w s"),
    "IF": ("b", ("x any*",), "any*"),
    "WHILE": ("b", ("any*",), "any*"),
    "ELU": ("fh", ("x real",), "x"),
    "HARD_SWISH": ("fhus", ("x",), "x"),
    "FILL": ("fhi", ("i element",), "x"),
    "RANK": ("fhiusbypwv", ("x",), "int"),
    "BATCH_MATMUL": ("fhusi", ("x x bool bool",), "x"),
    "PACK": ("fhius", ("int x*",), "same"),
    "MIRROR_PAD": ("fhius", ("x i int",), "same"),
    "REVERSE": ("fhius", ("x i",), "same"),
    "OEM_OPERATION": ("", ("any*",), "any*"),
}
"""By name of the operation: the types that `x` may have, the forms of its inputs, and its outputs.

A form is a list of words, and may end at each `|`.  `x` is one and the same type everywhere, `same` is `x`
with the same scale and zero point; letters stand for any of these types; `filter` is `x` or, of 8-bit types,
TENSOR_QUANT8_SYMM_PER_CHANNEL; `bias` is `x`, or TENSOR_INT32 of 8-bit types; `roi` is `x`, or
TENSOR_QUANT16_ASYMM of 8-bit types; `anchor` is `x`, or TENSOR_QUANT16_SYMM of 8-bit types; `delta` is `x`,
or one of the 8-bit types for TENSOR_QUANT16_ASYMM; `cast` is one of fhiu for these four types, else `x`;
`real` is FLOAT16 if `x` is TENSOR_FLOAT16, else FLOAT32; `real32` is FLOAT32; `value` is `real`, or INT32 of
8-bit types; `element` is a scalar of the type of `x`; `any` is any type.  `?` marks operands that may be
omitted, `*N` repetitions, and `*` any number of them, at least one.  If no input is `x`, the output says what
it is.

The types are those that AOSP takes when an operation is added
(timocapa/android_packages_modules_NeuralNetworks @19f042d, common/types/operations/src).
"""


@dataclass(frozen=True)
class Word:
    """One operand of a form: what it is, whether it may be omitted, whether it repeats without limit."""

    text: str
    optional: bool = False
    repeats: bool = False


@functools.cache
def words(form: str) -> tuple[Word, ...]:
    """Return the operands of a form without `|`."""
    found: list[Word] = []
    for text in form.split():
        name, star, count = text.rstrip("?").partition("*")
        found += [Word(name, text.endswith("?"), bool(star) and not count)] * int(count or 1)
    return tuple(found)


@functools.cache
def forms(name: str) -> tuple[tuple[Word, ...], ...]:
    """Return all forms of the inputs of an operation, the longest first."""
    return tuple(made for form in TABLE[name][1] for made in endings(form))


@functools.cache
def endings(form: str) -> tuple[tuple[Word, ...], ...]:
    """Return the operands of a form for each place where it may end, the longest first."""
    parts = form.split("|")
    return tuple(words(" ".join(parts[:count])) for count in range(len(parts), 0, -1))


def accepts(word: Word, given: OperandType, data: OperandType | None) -> bool:
    """Whether an operand of a type may stand for a word, when `x` is of type `data`."""
    quantised = data in BYTES
    real = T.FLOAT16 if data is T.TENSOR_FLOAT16 else T.FLOAT32
    match word.text:
        case "any":
            return True
        case "x" | "same":
            return given is data
        case "filter":
            return given is data or (quantised and given is T.TENSOR_QUANT8_SYMM_PER_CHANNEL)
        case "bias":
            return given is (T.TENSOR_INT32 if quantised else data)
        case "roi":
            return given is (T.TENSOR_QUANT16_ASYMM if quantised else data)
        case "anchor":
            return given is (T.TENSOR_QUANT16_SYMM if quantised else data)
        case "delta":
            return given in BYTES if data is T.TENSOR_QUANT16_ASYMM else given is data
        case "cast":
            return given in CONVERTIBLE if data in CONVERTIBLE else given is data
        case "element":
            return data is not None and given is ELEMENTS.get(data)
        case "real":
            return given is real
        case "real32":
            return given is T.FLOAT32
        case "value":
            return given is (T.INT32 if quantised else real)
        case "k":
            return given is T.TENSOR_QUANT8_SYMM
        case text if text in SCALARS:
            return given is SCALARS[text]
        case text:
            return any(given is LETTERS[letter] for letter in text)
