"""DPU of the task-level golden model: the stages of a task in their order.

Everything here follows docs/hardware.md section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task import dpu_float as fp
from cosim.golden.task.arith import saturate, shift_even, shift_to_offset, shift_up
from cosim.golden.task.context import Context
from cosim.golden.task.core import ConvResult
from cosim.golden.task.dpu_check import STAGE_ALGORITHMS, check_dpu, hang, stop
from cosim.golden.task.dpu_lut import LutTables, look_up
from cosim.golden.task.dpu_packets import STRIPE, check_packets, packet_mode, write_packets
from cosim.golden.task.dpu_stages import Domain, Floats, Integers, Values, shift_round, sign_extend
from cosim.golden.task.dpu_writer import SurfacePlan, pack, write_surfaces
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM, Bytes
from cosim.golden.task.rdma import (
    DEPTHWISE,
    ELEMENT_BITS,
    FLOAT_CODES,
    RdmaData,
    StageOperands,
    group_channels,
)
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
_INT16, _FP16, _BF16 = 1, 2, 3
_SIXTEEN_BITS = (1, 2, 3)
"""DPU codes of the 16-bit types."""
LANES = 8
"""Channels that come together."""
SURFACES_NAMED = 8
"""The most surfaces of a kernel group that SIZE_E can name."""


@dataclass(frozen=True)
class PpuFeed:
    """What the DPU hands to the PPU."""

    atoms: Bytes
    """uint8 [surfaces, rows, columns, 16]."""
    bits: int
    """Of an element."""
    group_surfaces: int
    """Surfaces of a channel group, which come together."""


def feeds_ppu(dpu: View, copies: int) -> bool:
    """Tell whether a task's result goes to the PPU (docs/hardware.md 4.10, 4.11, 5.7)."""
    mode = "FEATURE_MODE_CFG"
    unpooled = bool(copies) and bool(dpu.get(mode, "FLYING_MODE"))
    return bool(dpu.get(mode, "OUTPUT_MODE") & 1) and not unpooled and packet_mode(dpu) is None


def _moves(dpu: View) -> bool:
    """Tell whether a task that is unpooled leaves its atoms as they are (docs/hardware.md 5.7)."""
    stages = all(dpu.get(f"{name}_CFG", f"{name}_BYPASS") for name in ("BS", "BN", "EW"))
    narrow = ELEMENT_BITS.get(dpu.get("DATA_FORMAT", "OUT_PRECISION"), 8) < 32
    return stages and dpu.get("DATA_FORMAT", "IN_PRECISION") == _INT16 and narrow


def _as_moved(dpu: View) -> View:
    """The settings of a task that moves atoms: int16 in and out, a neutral converter."""
    out = ELEMENT_BITS.get(dpu.get("DATA_FORMAT", "OUT_PRECISION"), 8)

    def channels(register: str, name: str) -> int:
        return 8 * -(-(dpu.get(register, name) + 1) * out // (8 * ATOM)) - 1

    channel = channels("DATA_CUBE_CHANNEL", "CHANNEL")
    return dpu.changed(
        {
            ("DATA_FORMAT", "OUT_PRECISION"): _INT16,
            ("DATA_FORMAT", "PROC_PRECISION"): _INT16,
            ("DATA_CUBE_CHANNEL", "CHANNEL"): channel,
            ("DATA_CUBE_CHANNEL", "ORIG_CHANNEL"): channel,
            ("WDMA_SIZE_0", "CHANNEL_WDMA"): channels("WDMA_SIZE_0", "CHANNEL_WDMA"),
            ("OUT_CVT_SCALE", "OUT_CVT_SCALE"): 1,
            ("OUT_CVT_SHIFT", "OUT_CVT_SHIFT"): 0,
            ("OUT_CVT_OFFSET", "OUT_CVT_OFFSET"): 0,
        }
    )


class Dpu:
    """One task's pass through the DPU.

    Making one raises the diagnostics of its settings, `run` does its work.

    Parameters
    ----------
    ctx
        memory and diagnostics of the task.
    dpu
        registers in force.
    tables
        of the LUT.
    comb_use
        COMB_USE of DPU_RDMA in this task.
    copies
        copies of a row that DPU_RDMA's unpooling makes; 0 without it.
    """

    def __init__(
        self, ctx: Context, dpu: View, tables: LutTables, comb_use: int = 0, copies: int = 0
    ) -> None:
        self.flying = bool(dpu.get("FEATURE_MODE_CFG", "FLYING_MODE"))
        self.copies = copies if self.flying else 0
        unknown = bool(self.copies) and not _moves(dpu)
        if self.copies and not unknown:
            dpu = _as_moved(dpu)
        self.ctx, self.dpu, self.tables = ctx, dpu, tables
        self.offered = RdmaData()
        self.width = dpu.get("DATA_CUBE_WIDTH", "WIDTH") + 1
        self.height = dpu.get("DATA_CUBE_HEIGHT", "HEIGHT") + 1
        self.channels = dpu.get("DATA_CUBE_CHANNEL", "CHANNEL") + 1
        self.group = group_channels(dpu, "FEATURE_MODE_CFG", "DATA_FORMAT")
        self.out = dpu.get("DATA_FORMAT", "OUT_PRECISION")
        self.bits = ELEMENT_BITS.get(self.out, 8)
        self.packets = packet_mode(dpu)
        self.serial = self.packets is not None and self.packets.flying
        if self.serial:  # data come surface by surface
            self.group = LANES
        on = not dpu.get("EW_CFG", "EW_BYPASS")
        self.lut = on and not dpu.get("EW_CFG", "EW_LUT_BYPASS")
        self.operation = on and not dpu.get("EW_CFG", "EW_OP_BYPASS")
        self.domain: Domain = Integers()
        self.float_domain = dpu.get("DATA_FORMAT", "PROC_PRECISION") in FLOAT_CODES
        if self.float_domain:
            self.domain = Floats()

        check_dpu(ctx, dpu, comb_use, self.packets is not None)
        mode = "FEATURE_MODE_CFG"
        ctx.require(not unknown, "RESERVED_MODE", dpu, mode, "FLYING_MODE", "unpooling only moves atoms")
        ok = not self.copies or not dpu.get(mode, "OUTPUT_MODE") & 1
        ctx.require(ok, "RESERVED_MODE", dpu, mode, "OUTPUT_MODE", "the PPU gets no unpooled data")
        self._misplaced = self._check_writer()
        self.unfinished: GoldenHang | None = self._misplaced or self._check_product()
        """Why the DPU never ends, although it takes all that it is given."""

    def run(self, offered: RdmaData, conv: ConvResult | None = None) -> PpuFeed | None:
        """Run the task and return what the PPU gets.

        Parameters
        ----------
        offered
            what DPU_RDMA fetched, with every client None when it does not take part.
        conv
            what CORE delivers, None when it does not take part.

        Returns
        -------
        The PPU's data, if it is fed.  A DPU that takes everything and still never ends says why in
        `unfinished`.

        Raises
        ------
        GoldenHang
            when a stream that the DPU waits for never comes.
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

    def _surfaces(self) -> int:
        """Surfaces that a group writes (docs/hardware.md 4.10)."""
        group = self.group
        deep = self.dpu.get("FEATURE_MODE_CFG", "CONV_MODE") == DEPTHWISE
        if deep and self.dpu.get("DATA_FORMAT", "IN_PRECISION") in _SIXTEEN_BITS:
            group = 32
        return max(1, group * self.bits // (8 * ATOM))

    def _in_atoms(self, channels: int) -> int:
        return -(-channels * self.bits // (8 * ATOM))

    @property
    def _fixed(self) -> bool:
        """Whether the writer does not look at SIZE_E (docs/hardware.md 4.10)."""
        unnamed = self._surfaces() > SURFACES_NAMED
        return bool(
            self.dpu.get("BS_OW_CFG", "OD_BYPASS") and (self.dpu.get("DATA_FORMAT", "MC_SURF_OUT") or unnamed)
        )

    def _check_writer(self) -> GoldenHang | None:
        """Tell about sizes with which the writer never ends (docs/hardware.md 4.10, 4.11, 5.7)."""
        ctx, dpu, surfaces = self.ctx, self.dpu, self._in_atoms(self.channels)
        if self.packets is not None:
            return check_packets(ctx, dpu, self.packets, surfaces, self.width * self.height)
        said = dpu.get("BS_OW_CFG", "SIZE_E_1") + 1
        if self.copies and said != self.copies:
            message = f"SIZE_E_1 + 1 must be {self.copies}, the copies of a row"
            return stop(ctx, dpu, message, "BS_OW_CFG", "SIZE_E_1")
        if self.flying or self._fixed or not dpu.get("FEATURE_MODE_CFG", "OUTPUT_MODE") & 2:
            return None
        want = self._surfaces()
        if said != want:
            message = f"SIZE_E_1 + 1 must be {want}, the surfaces of a kernel group"
            return stop(ctx, dpu, message, "BS_OW_CFG", "SIZE_E_1")
        if surfaces % want and not dpu.get("BS_OW_CFG", "OD_BYPASS"):
            message = f"{surfaces} surfaces are no whole kernel groups of {want}"
            return stop(ctx, dpu, message, "DATA_CUBE_CHANNEL", "CHANNEL")
        return None

    def _plan(self) -> SurfacePlan:
        """What is written as surfaces, also by a task that never ends."""
        dpu, want = self.dpu, self._surfaces()
        surfaces, pixels = self._in_atoms(self.channels), self.width * self.height
        written = min(surfaces, self._in_atoms(dpu.get("WDMA_SIZE_0", "CHANNEL_WDMA") + 1))
        said = dpu.get("BS_OW_CFG", "SIZE_E_1") + 1
        if self.flying:
            return SurfacePlan(said, written, pixels, self.copies or 1)
        if self._fixed:
            return SurfacePlan(want, written, pixels)
        if said == want:
            whole = surfaces if dpu.get("BS_OW_CFG", "OD_BYPASS") else surfaces // want * want
            return SurfacePlan(want, min(written, whole), pixels)
        first = 1 if said > want and dpu.get("BS_OW_CFG", "OD_BYPASS") else STRIPE
        complete = self.group * self.bits >= 8 * ATOM  # an atom, with a group's channels
        return SurfacePlan(said, min(said, want, written) if complete else 0, min(first, pixels))

    def _check_product(self) -> GoldenHang | None:
        """Tell about a product of fp16 whose operand goes through the converter (4.7)."""
        dpu, cfg = self.dpu, "EW_CFG"
        half = dpu.get("DATA_FORMAT", "PROC_PRECISION") == _FP16 and not self.lut
        product = self.operation and dpu.get(cfg, "EW_OP_TYPE") and dpu.get(cfg, "EW_OP_SRC")
        if not (half and product) or dpu.get(cfg, "EW_OP_CVT_BYPASS"):
            return None
        message = "a product of fp16 needs the operand converter bypassed"
        return stop(self.ctx, dpu, message, cfg, "EW_OP_CVT_BYPASS", "RESERVED_MODE")

    def _check_group(self, conv: ConvResult | None) -> GoldenHang | None:
        """Tell about a group of CORE that is not the DPU's, which shows whatever else is wrong (4.1)."""
        if conv is None or self.flying:
            return None
        theirs = conv.acc.shape[1] // conv.shape.groups
        if theirs == self.group:
            return None
        message = f"CORE delivers groups of {theirs} channels, the DPU wants {self.group}"
        return stop(self.ctx, self.dpu, message, "DATA_FORMAT", "IN_PRECISION")

    def _hang(self, message: str, register: str, name: str | None = None) -> GoldenHang:
        return hang(self.ctx, self.dpu, message, register, name)

    def _check_streams(self) -> None:
        """Make sure that DPU_RDMA offers what the DPU takes; what it does not take is left over (5.6)."""
        offered = self.offered
        clients = {"MRDMA": offered.main, "BRDMA": offered.bs, "NRDMA": offered.bn, "ERDMA": offered.ew}
        if any(data is not None for data in clients.values()):
            size = (offered.width, offered.height, offered.channels)
            if size != (self.width, self.height, self.channels) and not self._same_atoms(offered):
                raise self._hang(f"DPU_RDMA's cube {size} differs from the DPU's", "DATA_CUBE_WIDTH", "WIDTH")
        if offered.residual_missing:
            message = f"COMB_USE 5 waits for {offered.residual_missing}, which is off"
            raise self._hang(message, "EW_CFG", "EW_OP_SRC")
        left = None
        if not self.flying and offered.main is not None:
            left = self._hang("MRDMA offers data that nobody takes", "FEATURE_MODE_CFG", "FLYING_MODE")
        needs = self.operation and bool(self.dpu.get("EW_CFG", "EW_OP_SRC"))
        if needs and offered.ew is None:
            raise self._hang("waits for ERDMA, which is off", "EW_CFG", "EW_OP_SRC")
        if not needs and offered.ew is not None and not self.flying:
            left = left or self._hang("ERDMA offers data that nobody takes", "EW_CFG", "EW_OP_SRC")
        self.unfinished = self.unfinished or left or offered.endless
        if self.flying and offered.main is None:
            raise self._hang("waits for MRDMA, which is off", "FEATURE_MODE_CFG", "FLYING_MODE")

    def _same_atoms(self, offered: RdmaData) -> bool:
        """Tell whether an unpooled cube that is moved has the DPU's size, its channels counted in atoms."""
        size = (offered.width, offered.height, -(-offered.channels // 8))
        return bool(self.copies) and size == (self.width, self.height, -(-self.channels // 8))

    def _in_order(self, data: Ints) -> Ints:
        """Elements of MRDMA or ERDMA where they arrive, should the two blocks disagree about the group."""
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
            assert self.offered.main is not None  # `_check_streams` has made sure
            cfg = "BS_OW_CFG"
            if not (self.float_domain or self.dpu.get(cfg, "OD_BYPASS")) and self.dpu.get(cfg, "OW_SRC"):
                self._operands("BS", cfg, "OW_SRC")  # waited for, not used (4.3)
            return self.domain.enter(self._in_order(self.offered.main[:, : self.channels]))
        if conv is None:
            raise self._hang("waits for CORE, which is not enabled", "FEATURE_MODE_CFG", "FLYING_MODE")
        shape = conv.shape
        pixels = self.width * self.height
        if shape.pixels != pixels:
            raise self._hang(f"CORE delivers {shape.pixels} pixels of {pixels}", "DATA_CUBE_WIDTH", "WIDTH")
        groups = -(-self.channels // self.group)
        if shape.delivered_groups != groups:
            message = f"CORE delivers {shape.delivered_groups} groups, the DPU wants {groups}"
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
        """What CPEND adds to the sums."""
        if self.dpu.get("BS_OW_CFG", "OD_BYPASS"):
            return 0
        if self.dpu.get("BS_OW_CFG", "OW_SRC"):
            return total * self._operands("BS", "BS_OW_CFG", "OW_SRC").cpend
        return total * self.dpu.signed("BS_OW_OP", "OW_OP")

    # -- BS and BN ------------------------------------------------------------------------------

    def _operands(self, stage: str, register: str, name: str) -> StageOperands:
        """Operands of BRDMA or NRDMA."""
        data = self.offered.bs if stage == "BS" else self.offered.bn
        if data is None:
            client = "BRDMA" if stage == "BS" else "NRDMA"
            raise self._hang(f"waits for {client} operands, which are off", register, name)
        return data

    def _alu(self, stage: str, value: Values) -> Values:
        dpu, cfg = self.dpu, f"{stage}_CFG"
        if dpu.get(cfg, f"{stage}_ALU_BYPASS"):
            return value
        if dpu.get(cfg, f"{stage}_ALU_SRC"):
            operand: Ints | int = self._operands(stage, cfg, f"{stage}_ALU_SRC").alu
        else:
            operand = dpu.signed(f"{stage}_ALU_CFG", f"{stage}_ALU_OPERAND")
        algorithm = dpu.get(cfg, f"{stage}_ALU_ALGO")
        return (
            self.domain.add(value, operand, minus=algorithm == 4) if algorithm in STAGE_ALGORITHMS else value
        )

    def _mul(self, stage: str, value: Values) -> Values:
        """Multiply, shift and saturate; with PRELU only negatives."""
        dpu, register = self.dpu, f"{stage}_MUL_CFG"
        if dpu.get(register, f"{stage}_MUL_SRC"):
            operand: Ints | int = self._operands(stage, register, f"{stage}_MUL_SRC").mul
        else:
            operand = dpu.signed(register, f"{stage}_MUL_OPERAND")
        return self.domain.multiply(
            value,
            operand,
            dpu.get(register, f"{stage}_MUL_SHIFT_VALUE"),
            dpu.get("DATA_FORMAT", f"{stage}_MUL_SHIFT_VALUE_NEG"),
            prelu=bool(dpu.get(f"{stage}_CFG", f"{stage}_MUL_PRELU")),
        )

    def _relu(self, stage: str, value: Values, domain: Domain) -> Values:
        """ReLU unless bypassed, ReLUX when enabled; each on its own."""
        dpu, cfg = self.dpu, f"{stage}_CFG"
        if not dpu.get(cfg, f"{stage}_RELU_BYPASS"):
            value = domain.relu(value)
        if dpu.get(cfg, f"{stage}_RELUX_EN"):
            value = domain.clamp(value, dpu.get(f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT"))
        return value

    def _bs(self, value: Values) -> Values:
        dpu = self.dpu
        if dpu.get("BS_CFG", "BS_BYPASS"):
            return self.domain.settle(value)
        value = self._alu("BS", value)
        multiplied = not dpu.get("BS_CFG", "BS_MUL_BYPASS")
        value = self._mul("BS", value) if multiplied else self.domain.settle(value)
        return self._relu("BS", value, self.domain)

    def _stage_bn(self, value: Values) -> Values:
        dpu = self.dpu
        if dpu.get("BN_CFG", "BN_BYPASS"):
            return value
        if not dpu.get("BN_CFG", "BN_MUL_BYPASS"):
            value = self._mul("BN", value)
        return self._relu("BN", self.domain.settle(self._alu("BN", value)), self.domain)

    # -- EW -------------------------------------------------------------------------------------

    def _element_wise(self, value: Values) -> Values:
        dpu = self.dpu
        if dpu.get("EW_CFG", "EW_BYPASS"):
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
        register = not dpu.get("EW_CFG", "EW_OP_SRC")
        operand = self._register_operand() if register else self._memory_operand(domain)
        if dpu.get("EW_CFG", "EW_OP_TYPE"):
            return domain.element_multiply(
                value,
                operand,
                dpu.get("EW_CVT_SCALE_VALUE", "EW_TRUNCATE") % 64,
                dpu.get("DATA_FORMAT", "EW_TRUNCATE_NEG") % 64,
                prelu=bool(dpu.get("EW_CFG", "EW_MUL_PRELU")),
                register=register,
            )
        out = domain.element_alu(dpu.get("EW_CFG", "EW_ALU_ALGO"), value, operand)
        return value if out is None else out

    def _register_operand(self) -> Ints:
        """EW_OP_VALUE of every channel's lane, int64 [1, channels]."""
        lanes = [self.dpu.signed(f"EW_OP_VALUE_{lane}", f"EW_OPERAND_{lane}") for lane in range(8)]
        return np.asarray(lanes, np.int64)[np.arange(self.channels) % 8][None, :]

    def _memory_operand(self, domain: Domain) -> Ints:
        """ERDMA's elements through the operand converter, int64 [pixels, channels]."""
        dpu = self.dpu
        assert self.offered.ew is not None  # `_check_streams` has made sure
        operand = self._in_order(self.offered.ew)
        if dpu.get("EW_CFG", "EW_OP_CVT_BYPASS") or isinstance(domain, Floats):
            return operand
        scale = dpu.signed("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE")
        offset = dpu.signed("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET")
        shift = dpu.get("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT")
        add_first = dpu.get("EW_CFG", "EW_CVT_TYPE")
        t = (operand + offset) * scale if add_first else operand * scale + offset
        return saturate(shift_round(t, shift, away=bool(dpu.get("EW_CFG", "EW_CVT_ROUND"))), 32)

    # -- output ---------------------------------------------------------------------------------

    def _out_cvt(self, value: Values) -> Ints:
        """Output converter: int64 [pixels, channels], of which the low bits of the output type count."""
        out, bits = self.out, self.bits
        if self.float_domain and not self.lut:
            return self._narrowed(value, out) if out in FLOAT_CODES else fp.to_integers(value, bits)
        dpu = self.dpu
        scale = dpu.signed("OUT_CVT_SCALE", "OUT_CVT_SCALE")
        offset = dpu.signed("OUT_CVT_OFFSET", "OUT_CVT_OFFSET")
        shift = dpu.get("OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64
        away = bool(dpu.get("OUT_CVT_SHIFT", "CVT_ROUND"))
        if dpu.get("OUT_CVT_SHIFT", "CVT_TYPE"):
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
        """Elements of a float type, MINUS_EXP taken off their exponents."""
        minus = self.dpu.get("OUT_CVT_SHIFT", "MINUS_EXP") if self.float_domain else 0
        if out == _FP16:
            half = np.where(fp.is_nan(bits), fp.NAN16_OUT, fp.narrow16(bits))
            return fp.less_exponent(half, minus, 5, 10)
        if out == _BF16:
            return fp.less_exponent(fp.narrow_bf16(bits), minus, 8, 7)
        return fp.less_exponent(bits.astype(np.int64), minus, 8, 23)

    def _write(self, elements: Ints) -> PpuFeed | None:
        """Write to memory and hand over to the PPU, as OUTPUT_MODE says."""
        dpu = self.dpu
        atoms = pack(dpu, elements, self.bits)
        if dpu.get("FEATURE_MODE_CFG", "OUTPUT_MODE") & 2:
            if self.packets is not None:
                write_packets(self.ctx, dpu, self.packets, atoms)
            elif self.out in ELEMENT_BITS:  # a result of no type is not written
                write_surfaces(self.ctx, dpu, atoms, self.width, self._plan())
        if not feeds_ppu(dpu, self.copies):
            return None
        cube = atoms.reshape(atoms.shape[0], self.height, self.width, ATOM)
        return PpuFeed(cube, self.bits, max(1, self.group * self.bits // (8 * ATOM)))
