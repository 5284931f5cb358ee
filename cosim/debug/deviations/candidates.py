"""Fields of a task that could make its result wrong, with other values that could be meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rkcosim.debug.deviations.against import Deviation
from rkcosim.debug.opening import DebuggedJob
from rkcosim.regcmd.lint.rule import Check
from rkcosim.regcmd.lint.traffic import accesses
from rkcosim.regcmd.listing import address_field
from rkcosim.regcmd.machine import Start, View, starts_of
from rkcosim.spec.regs import Field, Register, registers
from rkcosim.spec.types import ATOM

ALIGNED = 64
"""Alignment in bytes that compilers give to operands."""

STAGES = (
    ("CNA", ("CVT_", "PAD_CON1"), "input conversion"),
    ("CNA", ("DCOMP", "WEIGHT"), "weights"),
    ("CNA", ("CONV", "PAD"), "convolution"),
    ("CNA", ("",), "features"),
    ("CORE", ("",), "accumulation"),
    ("DPU", ("BS_",), "bias and scale (BS)"),
    ("DPU", ("BN_",), "bias and scale (BN)"),
    ("DPU", ("EW_",), "element-wise operation (EW)"),
    ("DPU", ("LUT_",), "look-up"),
    ("DPU", ("OUT_CVT",), "output conversion"),
    ("DPU", ("",), "output"),
    ("DPU_RDMA", ("BS_", "BRDMA"), "operand of BS"),
    ("DPU_RDMA", ("BN_", "NRDMA"), "operand of BN"),
    ("DPU_RDMA", ("EW_", "ERDMA"), "operand of EW"),
    ("DPU_RDMA", ("",), "main data"),
    ("PPU", ("DST",), "output"),
    ("PPU", ("",), "pooling"),
    ("PPU_RDMA", ("",), "main data"),
)
"""Stage of a register: block, beginnings of its name, name of the stage; the first line that fits counts."""

Change = Mapping[tuple[str, str], int]
"""(`BLOCK.REGISTER`, field) -> value."""


@dataclass
class Cause:
    """A field, or two that belong together, whose other value could explain a deviation.

    Members
    -------
    changes : the other values.
    before : the present values.
    likely : how probable it is by itself and by the pattern; larger is more.
    left : elements that are still wrong with the change; None if it was not tried or the task did not end.
    total : number of elements that are wrong now.
    error : why the task did not end with it, "" if it did.
    """

    changes: Change
    before: Change
    likely: float
    left: int | None = None
    total: int = 0
    error: str = ""
    distance: float = 0.0
    """Sum of the distances of the elements from the reference with the change."""

    @property
    def path(self) -> str:
        """The first field, as BLOCK.REGISTER.FIELD."""
        path, name = next(iter(self.changes))
        return f"{path}.{name}"

    @property
    def stage(self) -> str:
        """The stage to which its first field belongs."""
        return stage_of(self.path)

    @property
    def explains(self) -> bool:
        """Whether every element is right with the change."""
        return self.left == 0

    def __str__(self) -> str:
        parts = []
        for key, value in self.changes.items():
            path, name = key
            shown = path if path.endswith("." + name) else f"{path}.{name}"
            parts.append(f"{shown} {_shown(path, name, self.before[key])} -> {_shown(path, name, value)}")
        end = (
            "every element is right with it"
            if self.explains
            else f"{self.left} of {self.total} elements are still wrong"
            if self.left is not None
            else self.error or "not tried"
        )
        return f"{' and '.join(parts)} ({self.stage}): {end}"


def _shown(path: str, name: str, value: int) -> str:
    block, _, register = path.partition(".")
    found = registers()[block][register]
    codes = {code: known for known, code in (found.fields[name].enum or {}).items()}
    # A field's enum maps names to codes.
    if value in codes:
        return codes[value]
    return f"0x{value:X}" if address_field(found) is not None or value > 4095 else str(value)


def stage_of(path: str) -> str:
    """Return the name of the stage to which a register (or field) belongs."""
    block, _, name = path.partition(".")
    return next((stage for one, starts, stage in STAGES if one == block and name.startswith(starts)), block)


def distinct(causes: Iterator[Cause]) -> list[Cause]:
    """Return each change once, with its highest probability."""
    best: dict[tuple[tuple[tuple[str, str], int], ...], Cause] = {}
    for cause in causes:
        if all(cause.before[key] == value for key, value in cause.changes.items()):
            continue
        key = tuple(sorted(cause.changes.items()))
        if key not in best or best[key].likely < cause.likely:
            best[key] = cause
    return list(best.values())


SUGGESTED: dict[str, tuple[tuple[str, float], ...]] = {
    "shift": (
        ("DPU.OUT_CVT_SHIFT", 9.0),
        ("DPU.OUT_CVT_SCALE", 5.0),
        ("DPU.BS_MUL_CFG.BS_MUL_SHIFT", 4.0),
        ("DPU.BN_MUL_CFG.BN_MUL_SHIFT", 4.0),
        ("DPU.DATA_FORMAT.BS_MUL_SHIFT", 3.0),
        ("CORE.CLIP_TRUNCATE", 3.0),
        ("CNA.CVT_CON", 2.0),
        ("PPU.RECIP", 2.0),
    ),
    "scale": (
        ("DPU.OUT_CVT_SCALE", 9.0),
        ("DPU.BS_MUL_CFG", 5.0),
        ("DPU.BN_MUL_CFG", 5.0),
        ("PPU.RECIP", 6.0),
        ("DPU.EW_CVT_SCALE", 4.0),
        ("CNA.CVT_CON", 3.0),
        ("DPU.OUT_CVT_SHIFT", 2.0),
    ),
    "offset": (
        ("DPU.OUT_CVT_OFFSET", 9.0),
        ("DPU.BS_ALU_CFG", 5.0),
        ("DPU.BN_ALU_CFG", 5.0),
        ("DPU.EW_CVT_OFFSET", 4.0),
        ("CNA.CVT_CON", 2.0),
    ),
    "channel offset": (
        ("DPU_RDMA.BS_BASE_ADDR", 9.0),
        ("DPU_RDMA.BN_BASE_ADDR", 8.0),
        ("DPU.BS_ALU_CFG", 4.0),
        ("DPU.BS_CFG", 4.0),
        ("DPU_RDMA.BRDMA", 4.0),
    ),
    "saturation": (
        ("DPU.OUT_CVT_SHIFT", 6.0),
        ("DPU.BS_MUL_CFG", 4.0),
        ("DPU.BN_MUL_CFG", 4.0),
        ("DPU.OUT_CVT_OFFSET", 3.0),
        ("DPU.OUT_CVT_SCALE", 3.0),
        ("DPU_RDMA.BS_BASE_ADDR", 3.0),
    ),
    "relu": (
        ("DPU.BS_CFG.BS_RELU", 9.0),
        ("DPU.BN_CFG.BN_RELU", 9.0),
        ("DPU.EW_CFG.EW_RELU", 9.0),
        ("DPU.BS_CFG", 3.0),
        ("DPU.OUT_CVT_OFFSET", 2.0),
    ),
    "clipped": (("DPU.BS_CFG.BS_RELUX", 9.0), ("DPU.BN_CFG.BN_RELUX", 9.0), ("DPU.EW_CFG.EW_RELUX", 9.0)),
    "border": (
        ("CNA.PAD_CON0", 9.0),
        ("CNA.PAD_CON1", 8.0),
        ("PPU.POOLING_PADDING_CFG", 9.0),
        ("PPU.PADDING_VALUE", 8.0),
        ("DPU_RDMA.PAD_CFG", 6.0),
    ),
    "moved rows": (
        ("CNA.PAD_CON0.PAD_TOP", 9.0),
        ("CNA.FEATURE_DATA_ADDR", 7.0),
        ("PPU.POOLING_PADDING_CFG.PAD_TOP", 8.0),
        ("PPU_RDMA.SRC_BASE_ADDR", 7.0),
        ("DPU_RDMA.SRC_BASE_ADDR", 7.0),
        ("DPU.DST_BASE_ADDR", 6.0),
        ("PPU.DST_BASE_ADDR", 6.0),
    ),
    "moved columns": (
        ("CNA.PAD_CON0.PAD_LEFT", 9.0),
        ("CNA.FEATURE_DATA_ADDR", 7.0),
        ("PPU.POOLING_PADDING_CFG.PAD_LEFT", 8.0),
        ("DPU.DST_BASE_ADDR", 6.0),
        ("PPU.DST_BASE_ADDR", 6.0),
    ),
    "order of surfaces": (
        ("DPU.DST_SURF_STRIDE", 9.0),
        ("PPU.DST_SURF_STRIDE", 9.0),
        ("DPU.SURFACE_ADD", 7.0),
        ("CNA.DMA_CON2", 7.0),
        ("PPU_RDMA.SRC_SURF_STRIDE", 8.0),
        ("DPU_RDMA.SURF_NOTCH", 6.0),
        ("DPU.DST_BASE_ADDR", 5.0),
    ),
    "order of channels": (("DPU.DST_SURF_STRIDE", 5.0), ("CNA.DMA_CON2", 5.0), ("CNA.DCOMP_ADDR0", 5.0)),
    "order of rows": (("CNA.DMA_CON1", 7.0), ("CNA.CONV_CON3", 4.0)),
    "stale": (
        ("DPU.DST_BASE_ADDR", 9.0),
        ("DPU.DST_SURF_STRIDE", 8.0),
        ("PPU.DST_BASE_ADDR", 9.0),
        ("PPU.DST_SURF_STRIDE", 8.0),
        ("DPU.DATA_CUBE", 6.0),
        ("DPU.SURFACE_ADD", 6.0),
        ("DPU.WDMA_SIZE", 5.0),
    ),
    "part": (
        ("DPU.DST_SURF_STRIDE", 2.5),
        ("CNA.DMA_CON", 2.5),
        ("CNA.DCOMP_ADDR0", 2.0),
        ("CNA.FEATURE_DATA_ADDR", 2.0),
        ("DPU_RDMA.BS_BASE_ADDR", 2.5),
        ("DPU_RDMA.EW_BASE_ADDR", 2.0),
        ("DPU_RDMA.SRC_BASE_ADDR", 2.0),
    ),
    "scattered": (
        ("CNA.DCOMP_ADDR0", 3.0),
        ("CNA.FEATURE_DATA_ADDR", 3.0),
        ("DPU_RDMA.BS_BASE_ADDR", 2.5),
        ("DPU_RDMA.EW_BASE_ADDR", 2.5),
        ("DPU_RDMA.SRC_BASE_ADDR", 2.5),
    ),
}
"""By kind of a pattern: how much more probable fields become whose path begins with the given text."""

LIKELY = {
    "DPU.OUT_CVT_": 1.0,
    "DPU.BS_": 0.8,
    "DPU.BN_": 0.7,
    "DPU.EW_": 0.6,
    "CNA.PAD": 0.8,
    "CNA.CONV_CON3": 0.6,
}
"""Probability of fields without any pattern, by the beginning of their path; 0.3 for others."""

IGNORED = (
    "S_POINTER",
    "S_STATUS",
    "OPERATION_ENABLE",
    "CLK_GATE",
    "MAC_GATING",
    "UNDOC",
    "LUT_ACCESS",
    "DCOMP_AMOUNT",
    "DCOMP_REGNUM",
    "DMA_CON0",
    "FEATURE_GRAINS",
    "BURST_LEN",
    "OV4K_BYPASS",
    "SLCG",
    "SOFT_GATING",
    "WEIGHT.",
    "NN_MODE",
    "SURF_LEN",
)
"""Beginnings of names of registers and fields that change no result, or no value that a user would choose."""


def candidates_of(start: Start, job: DebuggedJob, found: Deviation) -> Iterator[Cause]:
    """Yield other values of the fields of a start."""
    others, ends = _values_elsewhere(job, found.task), _borders(job)
    for block, view in start.views.items():
        for register in registers()[block]:
            if not register.shadowed or register.name.startswith(IGNORED):
                continue
            for name, one in register.fields.items():
                if name.startswith(IGNORED):
                    continue
                value = view(register.name, name)
                for other, nearness in _other_values(register, one, value, view, found, others, ends):
                    key = register.path, name
                    likely = _likely(f"{register.path}.{name}", found) * nearness
                    yield Cause({key: other}, {key: value}, likely)
    yield from _placed(start, found)


def _likely(path: str, found: Deviation) -> float:
    base = next((weight for head, weight in LIKELY.items() if path.startswith(head)), 0.3)
    bonus = 0.0
    for rank, pattern in enumerate(found.patterns):
        for head, weight in SUGGESTED.get(pattern.kind, ()):
            if path.startswith(head):
                bonus = max(bonus, weight / (1 + rank))
    return base + bonus


def _values_elsewhere(job: DebuggedJob, task: int) -> dict[str, list[int]]:
    """Return the values that other tasks give to each register with an address."""
    values: dict[str, list[int]] = {}
    for index, begun in starts_of(job.program):
        for start in begun if index != task else ():
            for block, view in start.views.items():
                for register in registers()[block]:
                    if register.shadowed and address_field(register) is not None:
                        values.setdefault(register.path, []).append(view.bits(register.name))
    return values


def _borders(job: DebuggedJob) -> list[int]:
    """Return where the operands and results of all tasks begin, and where the next may begin after them."""
    found = set()
    for _, begun in starts_of(job.program):
        for start in begun:
            for access in accesses(Check(job.program, start)):
                first, end = access.span
                found |= {first, -(-end // ATOM) * ATOM, -(-end // ALIGNED) * ALIGNED}
    return sorted(found)


def _other_values(
    register: Register,
    one: Field,
    value: int,
    view: View,
    found: Deviation,
    others: Mapping[str, Sequence[int]],
    ends: Sequence[int],
) -> Iterator[tuple[int, float]]:
    """Yield other values of a field, each with how near it is to what people get wrong (up to 1)."""
    most = (1 << one.width) - 1
    if address_field(register) is one:
        yield from _addresses(register, one, value, found, others, ends)
        return
    if ("STRIDE" in one.name and one.width > 8) or one.name in (
        "SURF_ADD",
        "SURF_NOTCH_ADDR",
        "EW_SURF_NOTCH",
    ):
        yield from _distances(one, value, view, found)
        return
    if one.enum and one.width > 1:
        for code in one.enum.values():
            if code != value:
                yield code, 0.5
        return
    if one.width == 1:
        yield 1 - value, 1.0
        return
    near: dict[int, float] = {}
    steps = (1, -1, 2, -2, 3, -3, 4, -4) if one.width <= 16 else (1, -1)
    for step in steps:
        near[value + step] = 1.0 / abs(step)
    near[0] = max(near.get(0, 0), 0.5)
    for pattern in found.patterns:
        if pattern.number is None:
            continue
        number = pattern.number
        if pattern.kind == "offset" and ("OFFSET" in one.name or "OPERAND" in one.name):
            near[(value - round(number)) % (most + 1)] = 1.0
        if pattern.kind == "shift" and "SHIFT" in one.name:
            near[value + round(number)] = near[value - round(number)] = 1.0
        if pattern.kind in ("scale", "shift") and (
            "SCALE" in one.name or "OPERAND" in one.name or "RECIP" in one.name
        ):
            factor = number if pattern.kind == "scale" else 2.0**number
            target = round(value / factor) if factor else value
            for step in range(-2, 3):
                near[target + step] = 0.9 - 0.1 * abs(step)
    if one.name.startswith(("PAD_VALUE", "BS_RELUX", "BN_RELUX", "EW_RELUX")):
        zero = found.reference.place.zero_point
        for byte in (0x80, 0, zero & 0xFF):
            near[byte * 0x01010101 & most] = 0.7
            near[byte & most] = 0.6
        near[zero & most] = 0.6
    if one.width > 4 and value:
        near[value * 2] = max(near.get(value * 2, 0), 0.4)
        near[value // 2] = max(near.get(value // 2, 0), 0.4)
    for other, nearness in near.items():
        if 0 <= other <= most and other != value:
            yield other, nearness


def _addresses(
    register: Register,
    one: Field,
    value: int,
    found: Deviation,
    others: Mapping[str, Sequence[int]],
    ends: Sequence[int],
) -> Iterator[tuple[int, float]]:
    """Yield addresses near the present one, and those that other tasks have."""
    unit = 1 << one.lsb
    scale = 1 if one.lsb == 0 else unit
    byte = value * scale
    near: dict[int, float] = {}
    for same in set(others.get(register.path, ())):
        near[same] = 0.7
    for end in ends:
        near.setdefault(end, 0.65)
    for count in range(1, 33):
        for sign in (1, -1):
            near[byte + sign * count * ATOM] = max(
                near.get(byte + sign * count * ATOM, 0), 0.9 - 0.02 * count
            )
    if "DST" in one.name:
        near[found.reference.place.span[0]] = 1.0
    line = _line_bytes(found)
    for count in (1, -1, 2, -2):
        near[byte + count * line] = 0.8
    for count in range(1, 17):
        for sign in (1, -1):
            near.setdefault(byte + sign * count * 256, 0.2)
    for other, nearness in near.items():
        if other % scale == 0 and 0 <= other // scale < 1 << one.width and other != byte:
            yield other // scale, nearness


def _line_bytes(found: Deviation) -> int:
    """Return the bytes of a row of the wrong tensor."""
    return found.reference.place.cube[2] * ATOM


def _distances(one: Field, value: int, view: View, found: Deviation) -> Iterator[tuple[int, float]]:
    """Yield distances between surfaces or rows."""
    size, (_, rows, columns) = 1 << one.width, found.reference.place.cube
    signed = value - size if value >= size // 2 else value
    near = {-signed: 0.9, _surface_pitch(found): 1.0, rows * columns: 0.9, 0: 0.3, columns: 0.5}
    for step in (1, -1, columns, -columns, 2, -2):
        near.setdefault(signed + step, 0.6)
    near.setdefault(2 * signed, 0.5)
    near.setdefault(signed // 2, 0.5)
    for other, nearness in near.items():
        if other != signed and -size // 2 <= other < size:
            yield other % size, nearness


def _surface_pitch(found: Deviation) -> int:
    """Return the distance of the surfaces of the wrong tensor in atoms."""
    place = found.reference.place
    per_atom = ATOM // place.dtype.itemsize
    if place.cube[0] <= per_atom:
        return place.cube[1] * place.cube[2]
    return int(place.addresses[per_atom, 0, 0] - place.addresses[0, 0, 0]) // ATOM


def _placed(start: Start, found: Deviation) -> Iterator[Cause]:
    """Yield base and surface stride of the output together, as the layout of the tensor has them."""
    for block in ("DPU", "PPU"):
        view = start.views.get(block)
        if view is None:
            continue
        base, stride = registers()[block]["DST_BASE_ADDR"], registers()[block]["DST_SURF_STRIDE"]
        low, span = base.fields["DST_BASE_ADDR"], 1 << stride.fields["DST_SURF_STRIDE"].width
        pitch = _surface_pitch(found)
        count = -(-found.reference.place.cube[0] * found.reference.place.dtype.itemsize // ATOM)
        present = view("DST_BASE_ADDR") << low.lsb
        keys = (stride.path, "DST_SURF_STRIDE"), (base.path, "DST_BASE_ADDR")
        before = dict(zip(keys, (view("DST_SURF_STRIDE"), view("DST_BASE_ADDR")), strict=True))
        likely = _likely(f"{stride.path}.DST_SURF_STRIDE", found)
        for first in (found.reference.place.span[0], present - (count - 1) * pitch * ATOM):
            if first >= 0 and first % ATOM == 0 and first != present:
                values = dict(zip(keys, (pitch % span, first >> low.lsb), strict=True))
                yield Cause(values, before, likely * 0.95)
