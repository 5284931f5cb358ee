"""What librknnrt 2.3.2 takes and refuses of matrix products on the RK3588, each row with its source.

`rkcosim.rknn_api.matmul` checks a `rknn_matmul_info` with these rows, and docs/rknn_api.md contains them as
a table (`python -m tools.pages products` writes it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum

from rkcosim.rknn_api import matmul_types as mt
from rkcosim.rknn_api import types as t

_GITHUB = "https://github.com"
_UNIMATRIX = f"{_GITHUB}/unimatrix099/rk-llama.cpp/blob"
SOURCES = {
    "550": ("rknn-toolkit2#550", f"{_GITHUB}/airockchip/rknn-toolkit2/issues/550"),
    "ork": (
        "ork-driver",
        f"{_GITHUB}/oRKLLM/ork-driver/blob/b4186fa7f059f73d67b59d8648549eecbce892fc/REGCMD_CAPTURE_WIP.md",
    ),
    "opi5": ("opi5, 2026-10-10", f"{_GITHUB}/pty819/rk-llama.cpp/blob/HEAD/docs/opi5/README.md"),
    "probe": (
        "matmul-probe",
        f"{_UNIMATRIX}/a2610e5ca39a54605e9a38fecdb8cd19615018b7/docs/backend/rknpu2-matmul-probe.c",
    ),
    "equivalence": (
        "native-equivalence",
        f"{_UNIMATRIX}/0292a4e56b07c82153c477ee39994e2e06083071/docs/backend/test-rknpu2-native-equivalence.c",
    ),
    "plan": (
        "native-layout-plan",
        f"{_UNIMATRIX}/0292a4e56b07c82153c477ee39994e2e06083071/docs/backend/RKNPU2-native-layout-plan.md",
    ),
    "decode": (
        "decode-research",
        f"{_UNIMATRIX}/0719a6579cc54d666580d1f06798cabc228f1528/docs/backend/RKNPU2-decode-research.md",
    ),
    "guide": ("vendor guide 3.5", ""),
    "header": ("header", ""),
}
"""Label and address of each source; the last two are the vendor's user guide and rknn_matmul_api.h."""

VERSION = "librknnrt 2.3.2"
CREATE, SET_IO_MEM = "rknn_matmul_create", "rknn_matmul_set_io_mem"

FIELDS = ("type", "B_layout", "AC_layout", "B_quant_type", "AC_quant_type", "iommu_domain_id")
"""Members of `rknn_matmul_info` that the rows judge, in the order in which they are checked."""


class Board(Enum):
    """What librknnrt 2.3.2 does on the RK3588."""

    TAKES = "takes it"
    REFUSES = "refuses it"
    ZEROS = "returns success and writes zeros"
    DOCUMENTED = "documented"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Behaviour:
    """Behaviour for some values of one member of `rknn_matmul_info`.

    Members
    -------
    field : the member.
    values : its values; empty: all that no earlier row has.
    types : types of products to which the row applies; empty: all.
    board : what librknnrt 2.3.2 does; with `DOCUMENTED` no report from a board was found, with `UNKNOWN`
        nothing at all, and what happens here is assumed.
    sources : keys of `SOURCES`.
    code : code here, RKNN_SUCC if it is computed.
    call : function that returns the code.
    line : text of the refusal, with `{type}` and `{value}` for the names of type and value.
    note : remark.
    """

    field: str
    values: tuple[int, ...]
    types: tuple[int, ...]
    board: Board
    sources: tuple[str, ...] = ()
    code: int = int(t.RKNN_SUCC)
    call: str = CREATE
    line: str = ""
    note: str = ""

    def applies(self, info: mt.rknn_matmul_info) -> bool:
        """Whether the row judges this product."""
        return (not self.types or info.type in self.types) and (
            not self.values or getattr(info, self.field) in self.values
        )


_FLOATS = (mt.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32, mt.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16)
_F32, _F16 = (int(kind) for kind in _FLOATS)
_I32, _I8 = int(mt.RKNN_INT8_MM_INT8_TO_INT32), int(mt.RKNN_INT8_MM_INT8_TO_INT8)
_IF32, _I4 = int(mt.RKNN_INT8_MM_INT8_TO_FLOAT32), int(mt.RKNN_INT4_MM_INT4_TO_INT16)
_MIXED = (5, 6, 7, 8, 11, 12, 15)
_NORM, _NATIVE = int(mt.RKNN_MM_LAYOUT_NORM), int(mt.RKNN_MM_LAYOUT_NATIVE)
_TP_NORM = int(mt.RKNN_MM_LAYOUT_TP_NORM)
_LAYER, _LAYER_ASYM, _CHANNEL, _CHANNEL_ASYM, _GROUP, _GROUP_ASYM = range(6)
_BAD = int(t.RKNN_ERR_PARAM_INVALID)

_NO_TYPE = "unsupported matmul dtype: {type} in this platform"
_NO_CHANNEL = (
    "B_quant_type = {value}, only supported matmul dtype : RKNN_INT8_MM_INT8_TO_INT8 and "
    "RKNN_INT8_MM_INT8_TO_INT32"
)
_NO_VALUE = "{field} = {value} is not supported"
TAKES, REFUSES, ZEROS = Board.TAKES, Board.REFUSES, Board.ZEROS
DOCUMENTED, UNKNOWN = Board.DOCUMENTED, Board.UNKNOWN

ROWS = (
    Behaviour("type", (_F32, _I32, _I8, _F16, _I4), (), TAKES, ("ork", "opi5", "probe")),
    Behaviour(
        "type",
        (_IF32,),
        (),
        TAKES,
        ("opi5", "decode"),
        note='one board created it, another reports that it "aborts at run", without details',
    ),
    Behaviour("type", _MIXED, (), REFUSES, ("ork", "opi5", "probe"), _BAD, line=_NO_TYPE),
    Behaviour("type", (), (), UNKNOWN, (), _BAD, line=_NO_TYPE),
    Behaviour("B_layout", (_NORM,), (_F32, _I32, _I8, _F16), TAKES, ("ork", "decode")),
    Behaviour("B_layout", (_NORM,), (_IF32,), DOCUMENTED, ("guide",)),
    Behaviour(
        "B_layout",
        (_NORM,),
        (_I4,),
        REFUSES,
        ("equivalence", "ork"),
        int(t.RKNN_ERR_FAIL),
        SET_IO_MEM,
        "Unsupport type bits 0",
        "the context is created, and setting B fails; the code is assumed, since some reports say that the "
        "process ends",
    ),
    Behaviour("B_layout", (_NATIVE,), (_F32, _I32, _F16, _IF32, _I4), TAKES, ("plan", "opi5", "550")),
    Behaviour("B_layout", (_NATIVE,), (_I8,), DOCUMENTED, ("guide",)),
    Behaviour("B_layout", (_TP_NORM,), (_F32,), TAKES, ("decode",)),
    Behaviour("B_layout", (_TP_NORM,), (_I32, _I8, _F16, _IF32), DOCUMENTED, ("guide",)),
    Behaviour("B_layout", (_TP_NORM,), (_I4,), UNKNOWN, note="the vendor's sample has code for it"),
    Behaviour("B_layout", (), (), UNKNOWN, (), _BAD, line=_NO_VALUE),
    Behaviour("AC_layout", (_NORM,), (_F32, _I32, _I8, _F16, _I4), TAKES, ("ork", "plan")),
    Behaviour("AC_layout", (_NORM,), (_IF32,), DOCUMENTED, ("guide",)),
    Behaviour("AC_layout", (_NATIVE,), (_F32, _I32, _F16, _IF32, _I4), TAKES, ("plan", "opi5", "550")),
    Behaviour("AC_layout", (_NATIVE,), (_I8,), DOCUMENTED, ("guide",)),
    Behaviour("AC_layout", (), (), UNKNOWN, (), _BAD, line=_NO_VALUE),
    Behaviour("B_quant_type", (_LAYER,), (), TAKES, ("ork", "opi5")),
    Behaviour("B_quant_type", (_LAYER_ASYM,), (), DOCUMENTED, ("guide",)),
    Behaviour(
        "B_quant_type",
        (_CHANNEL,),
        (_I32,),
        ZEROS,
        ("550",),
        note="with scales of 1, M 4, K and N 128, also in 2.4.2a2; here the product is computed, with a "
        "warning",
    ),
    Behaviour(
        "B_quant_type", (_CHANNEL,), (_I8,), TAKES, ("550",), note="according to the line of the next row"
    ),
    Behaviour("B_quant_type", (_CHANNEL,), (_IF32,), REFUSES, ("550",), _BAD, line=_NO_CHANNEL),
    Behaviour(
        "B_quant_type",
        (_CHANNEL,),
        (_F32, _F16, _I4),
        REFUSES,
        ("550",),
        _BAD,
        line=_NO_CHANNEL,
        note="the line names the only two types that are taken",
    ),
    Behaviour("B_quant_type", (_CHANNEL_ASYM,), (_I32, _I8), DOCUMENTED, ("guide",)),
    Behaviour("B_quant_type", (_CHANNEL_ASYM,), (), UNKNOWN, (), _BAD, line=_NO_CHANNEL),
    Behaviour(
        "B_quant_type",
        (_GROUP,),
        (_IF32,),
        ZEROS,
        ("550",),
        _BAD,
        line=_NO_VALUE,
        note="native B and groups of 32; also with the vendor's sample",
    ),
    Behaviour("B_quant_type", (), (), UNKNOWN, (), _BAD, line=_NO_VALUE),
    Behaviour("AC_quant_type", (_LAYER,), (), TAKES, ("ork", "opi5")),
    Behaviour(
        "AC_quant_type", (_LAYER_ASYM,), (), DOCUMENTED, ("guide",), note='the header says "only support 0"'
    ),
    Behaviour("AC_quant_type", (), (), UNKNOWN, ("header",), _BAD, line=_NO_VALUE),
    Behaviour("iommu_domain_id", tuple(range(16)), (), TAKES, ("decode",), note="no effect here"),
    Behaviour("iommu_domain_id", (), (), UNKNOWN, note="no effect here"),
)
"""The rows; of those with the same member the first that applies counts."""

NAMES: dict[str, type[IntEnum]] = {
    "type": mt.rknn_matmul_type,
    "B_layout": mt.rknn_matmul_layout,
    "AC_layout": mt.rknn_matmul_layout,
    "B_quant_type": mt.rknn_matmul_quant_type,
    "AC_quant_type": mt.rknn_matmul_quant_type,
}
"""Enumeration of each member that has one."""


def row_of(field: str, info: mt.rknn_matmul_info) -> Behaviour:
    """Return the row that judges a member of a product."""
    return next(row for row in ROWS if row.field == field and row.applies(info))


def rows_of(info: mt.rknn_matmul_info) -> Iterator[Behaviour]:
    """Yield the row of each member of a product, in the order in which they are checked."""
    for field in FIELDS:
        yield row_of(field, info)


def value_name(field: str, value: int) -> str:
    """Return the header's name of a value, or the number; an unknown type is "UNKNOW" as in the header."""
    if field == "type":
        return mt.get_matmul_type_string(value)
    names = {int(member): member.name for member in NAMES.get(field, ())}
    return names.get(value, str(value))


def line_of(row: Behaviour, info: mt.rknn_matmul_info) -> str:
    """Return the text with which a product is refused."""
    return row.line.format(
        field=row.field,
        type=mt.get_matmul_type_string(info.type),
        value=value_name(row.field, getattr(info, row.field)),
    )
