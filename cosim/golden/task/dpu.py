"""DPU of the task-level golden model: the stages of a task in their order.

The model follows [HW 7].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task import dpu_float as fp
from rkcosim.golden.task.arith import (
    saturate,
    shift_by_sign,
    shift_even,
    shift_to_offset,
    shift_up,
    sign_extend,
)
from rkcosim.golden.task.context import Context
from rkcosim.golden.task.core import ConvResult
from rkcosim.golden.task.dpu_lut import LutTables, look_up
from rkcosim.golden.task.dpu_stages import Domain, Floats, Integers, Values, shift_round
from rkcosim.golden.task.dpu_writer import (
    NEVER_INSIDE,
    SurfacePlan,
    pack,
    padded,
    write_maxima,
    write_packets,
    write_surfaces,
)
from rkcosim.golden.task.errors import GoldenHang
from rkcosim.golden.task.memory import Bytes
from rkcosim.golden.task.rdma import RdmaData, StageOperands
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.rules import Diagnosis
from rkcosim.golden.task.rules_dpu import COMPARISONS, HALVES, STAGE_ALGORITHMS
from rkcosim.golden.task.shapes import DpuCube
from rkcosim.spec.types import (
    ALTERNATE,
    ATOM,
    BF16,
    ELEMENT_BITS,
    FLOAT_CODES,
    FP16,
    INT16,
    LANES,
    STRIPE,
    bits_of,
)

Ints = NDArray[np.int64]


LATE_STOPS = ("dpu.flying-surfaces", "dpu.part-atoms")
"""Rules about tasks that process all data and then never end."""


@dataclass(frozen=True)
class PpuFeed:
    """Data that the DPU passes to the PPU."""

    atoms: Bytes
    """uint8 [surfaces, rows, columns, 16]."""
    bits: int
    """Bits of an element."""
    group_surfaces: int
    """Number of surfaces of a channel group, which are passed together."""


def _as_moved(dpu: View) -> View:
    """Effective settings of a task that moves atoms: int16 in and out, a neutral converter."""
    out = bits_of(dpu("DATA_FORMAT", "OUT_PRECISION"))

    def channels(register: str, name: str) -> int:
        return 8 * -(-(dpu(register, name) + 1) * out // (8 * ATOM)) - 1

    channel = channels("DATA_CUBE_CHANNEL", "CHANNEL")
    return dpu.changed(
        {
            ("DATA_FORMAT", "OUT_PRECISION"): INT16.dpu_code,
            ("DATA_FORMAT", "PROC_PRECISION"): INT16.dpu_code,
            ("DATA_CUBE_CHANNEL", "CHANNEL"): channel,
            ("DATA_CUBE_CHANNEL", "ORIG_CHANNEL"): channel,
            ("WDMA_SIZE_0", "CHANNEL_WDMA"): channels("WDMA_SIZE_0", "CHANNEL_WDMA"),
            ("OUT_CVT_SCALE", "OUT_CVT_SCALE"): 1,
            ("OUT_CVT_SHIFT", "OUT_CVT_SHIFT"): 0,
            ("OUT_CVT_OFFSET", "OUT_CVT_OFFSET"): 0,
        }
    )


class Dpu:
    """Processing of one task.

    The constructor raises the diagnostics of the settings, `run` processes the data.

    Parameters
    ----------
    ctx
        Memory and diagnostics of the task.
    dpu
        Registers of the DPU for the task.
    tables
        Tables of the LUT.
    rdma
        Registers of DPU_RDMA; None if it does not take part.
    copies
        Copies of a row that DPU_RDMA's unpooling makes; 0 without unpooling.
    """

    def __init__(
        self, ctx: Context, dpu: View, tables: LutTables, rdma: View | None = None, copies: int = 0
    ) -> None:
        cube = DpuCube(dpu, copies)
        if cube.moves:
            dpu = _as_moved(dpu)
            cube = DpuCube(dpu, copies)
        self.ctx, self.dpu, self.cube, self.tables = ctx, dpu, cube, tables
        self.offered = RdmaData()
        self.flying, self.copies, self.lut, self.operation = (
            cube.flying,
            cube.copies,
            cube.lut,
            cube.operation,
        )
        self.width, self.height, self.channels = cube.width, cube.height, cube.channels
        self.out, self.bits = dpu("DATA_FORMAT", "OUT_PRECISION"), cube.bits
        self.serial = cube.packets and cube.flying
        """Whether the data arrive surface by surface."""
        self.group = LANES if self.serial else cube.group
        self.float_domain = cube.floats
        brain = dpu("DATA_FORMAT", "PROC_PRECISION") == BF16.dpu_code
        self.domain: Domain = Floats(brain=brain) if cube.floats else Integers()
        views = {"DPU": dpu} if rdma is None else {"DPU": dpu, "DPU_RDMA": rdma}
        check = Diagnosis(ctx, views, patient=True)
        check.dpu = cube
        for block in views:
            check.ask(block)
        self._misplaced = any(name not in LATE_STOPS for name in check.stops)
        self._starved: GoldenHang | None = check.stops.get("dpu.live-product")
        """Why the operation never gets its operand."""
        self.unfinished: GoldenHang | None = next(iter(check.stops.values()), None)
        """Why the DPU never ends, although it accepts all data that it receives."""

    def run(self, offered: RdmaData, conv: ConvResult | None = None) -> PpuFeed | None:
        """Run the task and return the data for the PPU.

        Parameters
        ----------
        offered
            Data that DPU_RDMA fetched; every client is None if it does not take part.
        conv
            Data that CORE delivers; None if it does not take part.

        Returns
        -------
        The data for the PPU, or None.  If the DPU accepts everything and still never ends, `unfinished` has
        the reason.

        Raises
        ------
        GoldenHang
            If data that the DPU waits for never come.
        """
        wrong = self._check_group(conv)
        if wrong:
            raise wrong
        self.offered = offered
        value = self._main(conv)
        value = self._bs(value)
        value = self._stage_bn(value)
        value = self._element_wise(value)
        elements = self._out_cvt(value)
        feed = self._write(elements)
        return None if self._misplaced else feed

    # -- sizes and streams ----------------------------------------------------------------------

    def _plan(self) -> SurfacePlan:
        """Atoms that are written as surfaces, also by a task that never ends."""
        dpu, want, cube = self.dpu, self.cube.group_surfaces, self.cube
        group = cube.stripe_surfaces  # surfaces that come together, stripe by stripe
        surfaces, pixels = cube.surfaces, self.width * self.height
        written = min(surfaces, cube.told_surfaces)
        said = dpu("BS_OW_CFG", "SIZE_E_1") + 1
        if self.copies:
            return SurfacePlan(said, written, pixels, self.copies, group)
        if self.flying:
            return SurfacePlan(cube.series, written, pixels, group=group, kept=cube.kept)
        if self.cube.fixed:
            return SurfacePlan(want, written, pixels, group=group)
        if said == want:
            whole = surfaces if dpu("BS_OW_CFG", "OD_BYPASS") else surfaces // want * want
            return SurfacePlan(want, min(written, whole), pixels, group=group)
        first = 1 if said > want and dpu("BS_OW_CFG", "OD_BYPASS") else STRIPE
        complete = self.group * self.bits >= 8 * ATOM  # a group's channels fill at least one atom
        return SurfacePlan(said, min(said, want, written) if complete else 0, min(first, pixels))

    def _check_group(self, conv: ConvResult | None) -> GoldenHang | None:
        """Report CORE and DPU having different groups; this is reported in addition to other errors (4.1)."""
        if conv is None or self.flying:
            return None
        theirs = conv.acc.shape[1] // conv.shape.groups
        if theirs == self.group:
            return None
        message = f"CORE delivers groups of {theirs} channels, the DPU expects {self.group}"
        return self.ctx.stop("SIZE_MISMATCH", self.dpu, "DATA_FORMAT", "IN_PRECISION", message)

    def _hang(self, message: str, register: str, name: str | None = None) -> GoldenHang:
        return self.ctx.hang(self.dpu, register, name, message)

    def _check_streams(self) -> None:
        """Make sure that DPU_RDMA offers the data that the DPU needs; data not needed are left over (5.6)."""
        offered = self.offered
        clients = {"MRDMA": offered.main, "BRDMA": offered.bs, "NRDMA": offered.bn, "ERDMA": offered.ew}
        if any(data is not None for data in clients.values()):
            size = (offered.width, offered.height, offered.channels)
            pixels = offered.width * offered.height == self.width * self.height
            if not self._same_atoms(offered) and not (pixels and offered.channels == self.channels):
                raise self._hang(f"DPU_RDMA's cube {size} differs from the DPU's", "DATA_CUBE_WIDTH", "WIDTH")
        combination, reader = offered.missing
        if reader:
            main = ("FEATURE_MODE_CFG", "COMB_USE")
            place = main if combination == ALTERNATE else ("EW_CFG", "EW_OP_SRC")
            raise self._hang(f"COMB_USE {combination} waits for {reader}, which is off", *place)
        left = None
        if not self.flying and offered.main is not None:
            left = self._hang("MRDMA offers data that nothing uses", "FEATURE_MODE_CFG", "FLYING_MODE")
        needs = self.operation and bool(self.dpu("EW_CFG", "EW_OP_SRC"))
        if needs and offered.ew is None:
            raise self._hang("waits for ERDMA, which is off", "EW_CFG", "EW_OP_SRC")
        if not needs and offered.ew is not None and not self.flying:
            left = left or self._hang("ERDMA offers data that nothing uses", "EW_CFG", "EW_OP_SRC")
        self.unfinished = self.unfinished or left or offered.endless
        if self.flying and offered.endless is not None:
            raise offered.endless
        if self.flying and offered.main is None:
            raise self._hang("waits for MRDMA, which is off", "FEATURE_MODE_CFG", "FLYING_MODE")

    def _same_atoms(self, offered: RdmaData) -> bool:
        """Whether an unpooled, moved cube has the DPU's size, with its channels counted in atoms."""
        size = (offered.width, offered.height, -(-offered.channels // 8))
        return bool(self.copies) and size == (self.width, self.height, -(-self.channels // 8))

    def _in_order(self, data: Ints) -> Ints:
        """Elements of MRDMA or ERDMA in their order of arrival, should the groups of the blocks differ."""
        wide = self.offered.bits >= 16
        group = LANES if self.serial and wide else self.offered.group
        if group == self.group:
            return data
        octets = -(-self.channels // 8)
        lanes = np.pad(data, ((0, 0), (0, octets * 8 - self.channels))).reshape(-1, octets, 8)
        theirs, mine = group // 8, self.group // 8
        serial = [lanes[:, at : at + theirs].reshape(-1, 8) for at in range(0, octets, theirs)]
        stream = np.concatenate(serial)
        out, taken = np.empty_like(lanes), 0
        for at in range(0, octets, mine):
            part = out[:, at : at + mine]
            part[...] = stream[taken : taken + part.size // 8].reshape(part.shape)
            taken += part.size // 8
        return out.reshape(lanes.shape[0], -1)[:, : self.channels]

    def _main(self, conv: ConvResult | None) -> Values:
        """Main data after CPEND, [pixels, channels] of the domain's dtype."""
        self._check_streams()
        if self.flying:
            assert self.offered.main is not None  # checked by `_check_streams`
            cfg = "BS_OW_CFG"
            if not (self.float_domain or self.dpu(cfg, "OD_BYPASS")) and self.dpu(cfg, "OW_SRC"):
                self._operands("BS", cfg, "OW_SRC")  # the DPU waits for them, but does not use them (4.3)
            return self.domain.enter(self._in_order(self.offered.main[:, : self.channels]))
        if conv is None:
            raise self._hang("waits for CORE, which is not enabled", "FEATURE_MODE_CFG", "FLYING_MODE")
        shape = conv.shape
        pixels = self.width * self.height
        if shape.pixels != pixels:
            raise self._hang(f"CORE delivers {shape.pixels} pixels of {pixels}", "DATA_CUBE_WIDTH", "WIDTH")
        groups = -(-self.channels // self.group)
        if shape.delivered_groups != groups:
            message = f"CORE delivers {shape.delivered_groups} groups, the DPU expects {groups}"
            raise self._hang(message, "DATA_CUBE_CHANNEL", "CHANNEL")
        missing = ((0, 0), (0, max(0, self.channels - conv.acc.shape[1])))
        acc = np.pad(conv.acc[:, : self.channels], missing)
        if self.float_domain:
            return self.domain.enter(sign_extend(acc, 32))
        whole = acc + self._correction(np.pad(conv.sum[:, : self.channels], missing))
        shift = conv.clip.shift
        short = shift_up(whole, shift) if conv.clip.half_up else shift_even(whole, shift)
        return self.domain.enter(saturate(short, 32))

    def _correction(self, total: Ints) -> Ints | int:
        """Term that CPEND adds to the sums."""
        if self.dpu("BS_OW_CFG", "OD_BYPASS"):
            return 0
        if self.dpu("BS_OW_CFG", "OW_SRC"):
            return total * self._operands("BS", "BS_OW_CFG", "OW_SRC").cpend
        return total * self.dpu.signed("BS_OW_OP", "OW_OP")

    # -- BS and BN ------------------------------------------------------------------------------

    def _operands(self, stage: str, register: str, name: str) -> StageOperands:
        """Operands from BRDMA or NRDMA."""
        data = self.offered.bs if stage == "BS" else self.offered.bn
        if data is None:
            client = "BRDMA" if stage == "BS" else "NRDMA"
            raise self._hang(f"waits for {client} operands, which are off", register, name)
        return data

    def _alu(self, stage: str, value: Values) -> Values:
        dpu, cfg = self.dpu, f"{stage}_CFG"
        if dpu(cfg, f"{stage}_ALU_BYPASS"):
            return value
        if dpu(cfg, f"{stage}_ALU_SRC"):
            operand: Ints | int = self._operands(stage, cfg, f"{stage}_ALU_SRC").alu
        else:
            operand = dpu.signed(f"{stage}_ALU_CFG", f"{stage}_ALU_OPERAND")
        algorithm = dpu(cfg, f"{stage}_ALU_ALGO")
        return (
            self.domain.add(value, operand, minus=algorithm == 4) if algorithm in STAGE_ALGORITHMS else value
        )

    def _factor(self, stage: str) -> Ints | int:
        """Operands of a multiplier, signed 16 bits."""
        register = f"{stage}_MUL_CFG"
        if self.dpu(register, f"{stage}_MUL_SRC"):
            return self._operands(stage, register, f"{stage}_MUL_SRC").mul
        return self.dpu.signed(register, f"{stage}_MUL_OPERAND")

    def _mul(self, stage: str, value: Values) -> Values:
        """Multiply, shift and saturate; with PRELU only negative values."""
        dpu, register = self.dpu, f"{stage}_MUL_CFG"
        return self.domain.multiply(
            value,
            self._factor(stage),
            dpu(register, f"{stage}_MUL_SHIFT_VALUE"),
            dpu("DATA_FORMAT", f"{stage}_MUL_SHIFT_VALUE_NEG"),
            prelu=bool(dpu(f"{stage}_CFG", f"{stage}_MUL_PRELU")),
        )

    def _relu(self, stage: str, value: Values, domain: Domain) -> Values:
        """ReLU unless bypassed, ReLUX if enabled; both are independent."""
        dpu, cfg = self.dpu, f"{stage}_CFG"
        if not dpu(cfg, f"{stage}_RELU_BYPASS"):
            value = domain.relu(value)
        if dpu(cfg, f"{stage}_RELUX_EN"):
            value = domain.clamp(value, dpu(f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT"))
        return value

    def _bs(self, value: Values) -> Values:
        dpu = self.dpu
        if dpu("BS_CFG", "BS_BYPASS"):
            return self.domain.settle(value)
        value = self._alu("BS", value)
        multiplied = not dpu("BS_CFG", "BS_MUL_BYPASS")
        value = self._mul("BS", value) if multiplied else self.domain.settle(value)
        return self._relu("BS", value, self.domain)

    def _stage_bn(self, value: Values) -> Values:
        dpu = self.dpu
        if dpu("BN_CFG", "BN_BYPASS"):
            return value
        multiplied = not dpu("BN_CFG", "BN_MUL_BYPASS")
        if not isinstance(self.domain, Integers):
            value = self._alu("BN", self._mul("BN", value) if multiplied else value)
            return self._relu("BN", self.domain.settle(value), self.domain)
        if multiplied:
            passed = value >= 0 if dpu("BN_CFG", "BN_MUL_PRELU") else np.zeros(value.shape, bool)
            summed = self._alu("BN", np.where(passed, value, value * self._factor("BN")))
            shifts = dpu("BN_MUL_CFG", "BN_MUL_SHIFT_VALUE"), dpu("DATA_FORMAT", "BN_MUL_SHIFT_VALUE_NEG")
            value = np.where(passed, summed, shift_by_sign(summed, *shifts))
        else:
            value = self._alu("BN", value)
        return self._relu("BN", self.domain.settle(value), self.domain)

    # -- EW -------------------------------------------------------------------------------------

    def _element_wise(self, value: Values) -> Values:
        dpu = self.dpu
        if dpu("EW_CFG", "EW_BYPASS"):
            return value
        domain = self.domain
        if self.lut:
            index = fp.to_integers(value, 32) if self.float_domain else value
            value, domain = look_up(dpu, self.tables, index), Integers()
        if self.operation:
            value = self._operation(value, domain)
        return self._relu("EW", value, domain)

    def _operation(self, value: Values, domain: Domain) -> Values:
        dpu = self.dpu
        register = not dpu("EW_CFG", "EW_OP_SRC")
        operand = self._register_operand() if register else self._memory_operand(domain)
        if dpu("EW_CFG", "EW_OP_TYPE"):
            shifts = dpu("EW_CVT_SCALE_VALUE", "EW_TRUNCATE") % 64, dpu("DATA_FORMAT", "EW_TRUNCATE_NEG") % 64
            prelu = bool(dpu("EW_CFG", "EW_MUL_PRELU"))
            if isinstance(domain, Integers):
                return domain.element_multiply(value, operand, *shifts, prelu=prelu, register=register)
            product = domain.element_multiply(value, operand, *shifts, prelu=prelu, register=register)
            return domain.truncate(value, product, *shifts, prelu=prelu)
        algorithm = dpu("EW_CFG", "EW_ALU_ALGO")
        if dpu("EW_CFG", "EW_BINARY_EN") and algorithm in COMPARISONS:
            return domain.compare(algorithm, value, operand)
        out = domain.element_alu(algorithm, value, operand)
        return value if out is None else out

    def _register_operand(self) -> Ints:
        """EW_OP_VALUE of every pixel by its place in the stripe, int64 [pixels, 1]."""
        values = [self.dpu.signed(f"EW_OP_VALUE_{n}", f"EW_OPERAND_{n}") for n in range(8)]
        return np.asarray(values, np.int64)[np.arange(self.width * self.height) % STRIPE % 8][:, None]

    def _memory_operand(self, domain: Domain) -> Ints:
        """Elements of ERDMA after the operand converter, int64 [pixels, channels]."""
        dpu = self.dpu
        if self._starved is not None:
            raise self._starved
        assert self.offered.ew is not None  # checked by `_check_streams`
        operand = self._in_order(self.offered.ew)
        if self.flying and NEVER_INSIDE in self.ctx.options:
            operand = operand.copy()
            operand[:, dpu("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1 :] = 0
        bypassed = bool(dpu("EW_CFG", "EW_OP_CVT_BYPASS"))
        if isinstance(domain, Floats):
            converted = not bypassed and dpu("EW_CFG", "EDATA_SIZE") == HALVES and not self.cube.divides
            return domain.widened(operand) if self.cube.multiplies or converted else operand
        if bypassed:
            return operand
        scale = dpu.signed("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE")
        offset = dpu.signed("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET")
        shift = dpu("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT")
        add_first = dpu("EW_CFG", "EW_CVT_TYPE")
        t = (operand + offset) * scale if add_first else operand * scale + offset
        return saturate(shift_round(t, shift, away=bool(dpu("EW_CFG", "EW_CVT_ROUND"))), 32)

    # -- output ---------------------------------------------------------------------------------

    def _out_cvt(self, value: Values) -> Ints:
        """Output converter: int64 [pixels, channels]; the low bits of the output type are used."""
        out, bits = self.out, self.bits
        if self.float_domain and not self.lut:
            return self._narrowed(value, out) if out in FLOAT_CODES else fp.to_integers(value, bits)
        dpu = self.dpu
        scale = dpu.signed("OUT_CVT_SCALE", "OUT_CVT_SCALE")
        offset = dpu.signed("OUT_CVT_OFFSET", "OUT_CVT_OFFSET")
        shift = dpu("OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64
        away = bool(dpu("OUT_CVT_SHIFT", "CVT_ROUND"))
        if dpu("OUT_CVT_SHIFT", "CVT_TYPE"):
            q = shift_round((value + offset) * scale, shift, away=away)
        else:
            late = "q1_zero_point_after_rounding" in self.ctx.options
            q = (
                (shift_round(value * scale, shift, away=away) + offset)
                if late
                else (shift_to_offset(value * scale, shift, offset, away=away))
            )
        if out not in FLOAT_CODES:
            return saturate(q, bits)
        return self._narrowed(fp.from_integers(saturate(q, 32)), out)

    def _narrowed(self, bits: fp.Bits, out: int) -> Ints:
        """Elements of a float type, with MINUS_EXP subtracted from their exponents."""
        minus = self.dpu("OUT_CVT_SHIFT", "MINUS_EXP") if self.float_domain else 0
        if out == FP16.dpu_code:
            nan = fp.NAN16_OUT | bits.astype(np.int64) >> 16 & 0x8000
            half = np.where(fp.is_nan(bits), nan, fp.narrow16(bits))
            early = self.float_domain and not self.lut
            if early and not self.dpu("OUT_CVT_SCALE", "FP32TOFP16_EN"):
                half = bits.astype(np.int64) & 0xFFFF
            return fp.less_exponent(half, minus, 5, 10)
        if out == BF16.dpu_code:
            return fp.less_exponent(fp.narrow_bf16(bits), minus, 8, 7)
        return fp.less_exponent(bits.astype(np.int64), minus, 8, 23)

    def _write(self, elements: Ints) -> PpuFeed | None:
        """Write to memory and pass on to the PPU, according to OUTPUT_MODE."""
        dpu = self.dpu
        atoms = pack(dpu, padded(self.cube, elements, self.ctx.options), self.bits)
        if dpu("FEATURE_MODE_CFG", "OUTPUT_MODE") & 2:
            if self.cube.packets:
                write_packets(self.ctx, self.cube, atoms)
            elif self.cube.reduces:
                write_maxima(self.ctx, dpu, atoms)
            elif self.out in ELEMENT_BITS:  # a result with the reserved type code is not written
                write_surfaces(self.ctx, dpu, atoms, self.width, self._plan())
        if not self.cube.feeds_ppu:
            return None
        cube = atoms.reshape(atoms.shape[0], self.height, self.width, ATOM)
        return PpuFeed(cube, self.bits, self.cube.stripe_surfaces)
