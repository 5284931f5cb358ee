"""DPU of the task-level golden model: CPEND, BS, BN, EW, OUT_CVT and the writer.

Everything here follows docs/hardware.md section 4; integers only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import (
    saturate,
    shift_away,
    shift_by_sign,
    shift_even,
    signed,
)
from cosim.golden.task.cna import ConvShape
from cosim.golden.task.context import Context
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM
from cosim.golden.task.rdma import RdmaData, StageOperands
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
_OUT = {0: (8, np.int8), 1: (16, np.int16), 4: (32, np.int32)}
_RESERVED = (
    ("FEATURE_MODE_CFG", "COMB_USE"),
    ("FEATURE_MODE_CFG", "TP_EN"),
    ("FEATURE_MODE_CFG", "RGP_TYPE"),
    ("FEATURE_MODE_CFG", "NONALIGN"),
    ("DATA_FORMAT", "MC_SURF_OUT"),
    ("DATA_CUBE_HEIGHT", "MINMAX_CTL"),
    ("BS_OW_CFG", "RGP_CNTER"),
    ("BS_OW_CFG", "TP_ORG_EN"),
    ("BS_MUL_CFG", "BS_TRUNCATE_SRC"),
    ("BN_MUL_CFG", "BN_TRUNCATE_SRC"),
)


class Dpu:
    """One task's pass through the DPU.

    Parameters
    ----------
    ctx
        memory and diagnostics of the task.
    dpu
        registers in force.
    offered
        what DPU_RDMA fetched, with every client None when it does not take part.
    conv
        shape, accumulators and window sums from CORE; None when CORE does not take part.
    """

    def __init__(
        self, ctx: Context, dpu: View, offered: RdmaData, conv: tuple[ConvShape, Ints, Ints] | None
    ) -> None:
        self.ctx, self.dpu, self.offered, self.conv = ctx, dpu, offered, conv
        self.width = dpu.get("DATA_CUBE_WIDTH", "WIDTH") + 1
        self.height = dpu.get("DATA_CUBE_HEIGHT", "HEIGHT") + 1
        self.channels = dpu.get("DATA_CUBE_CHANNEL", "CHANNEL") + 1
        self.flying = bool(dpu.get("FEATURE_MODE_CFG", "FLYING_MODE"))
        self.depthwise = dpu.get("FEATURE_MODE_CFG", "CONV_MODE") == 3
        code = dpu.get("DATA_FORMAT", "OUT_PRECISION")
        ctx.require(code in _OUT, "RESERVED_MODE", dpu, "DATA_FORMAT", "OUT_PRECISION", "type not supported")
        self.bits, self.out_type = _OUT.get(code, _OUT[0])
        self.group = 64 if self.depthwise else 32
        if self.flying and not self.depthwise and dpu.get("DATA_FORMAT", "IN_PRECISION") != 0:
            self.group = 16

    def run(self) -> None:
        """Run the task.

        Raises
        ------
        GoldenHang
            when a stream that the DPU waits for never comes, or one that nobody takes is offered.
        """
        self._check()
        value = self._main()
        value = self._bs(value)
        value = self._stage_bn(value)
        value = self._ew(value)
        self._write(self._out_cvt(value))

    def _hang(self, message: str, register: str, name: str | None = None) -> GoldenHang:
        label = register if name is None else f"{register}.{name}"
        return GoldenHang(
            message,
            task=self.ctx.report.index,
            block="DPU",
            register=label,
            value=self.dpu.get(register, name),
        )

    def _check(self) -> None:
        ctx, dpu = self.ctx, self.dpu
        for register, name in _RESERVED:
            ctx.require(
                dpu.get(register, name) == 0, "RESERVED_MODE", dpu, register, name, "mode is not supported"
            )
        for name in ("IN_PRECISION", "PROC_PRECISION"):
            ok = dpu.get("DATA_FORMAT", name) in _OUT
            ctx.require(ok, "RESERVED_MODE", dpu, "DATA_FORMAT", name, "type not supported")
        mode = dpu.get("FEATURE_MODE_CFG", "OUTPUT_MODE")
        ctx.require(
            mode & 1 == 0, "RESERVED_MODE", dpu, "FEATURE_MODE_CFG", "OUTPUT_MODE", "no path to the PPU yet"
        )
        for register, name, want in (
            ("WDMA_SIZE_0", "CHANNEL_WDMA", self.channels - 1),
            ("WDMA_SIZE_1", "HEIGHT_WDMA", self.height - 1),
            ("WDMA_SIZE_1", "WIDTH_WDMA", self.width - 1),
            ("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_1", dpu.get("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")),
        ):
            ok = dpu.get(register, name) == want
            ctx.require(ok, "SIZE_MISMATCH", dpu, register, name, f"the cube says {want}")
        live = not self.flying and not dpu.get("BS_OW_CFG", "OD_BYPASS")
        if live and self._size_e() != self._group_surfaces():
            raise self._hang(
                f"SIZE_E_1 + 1 must be {self._group_surfaces()} while the converter is live",
                "BS_OW_CFG",
                "SIZE_E_1",
            )

    def _size_e(self) -> int:
        return self.dpu.get("BS_OW_CFG", "SIZE_E_1") + 1

    def _group_surfaces(self) -> int:
        return self.group * self.bits // 8 // ATOM

    def _main(self) -> Ints:
        """Main data with CPEND, int64 [pixels, channels]; also checks that all streams match."""
        dpu, offered, pixels = self.dpu, self.offered, self.width * self.height
        clients = {"MRDMA": offered.main, "BRDMA": offered.bs, "NRDMA": offered.bn, "ERDMA": offered.ew}
        if any(data is not None for data in clients.values()):
            size = (offered.width, offered.height, offered.channels)
            if size != (self.width, self.height, self.channels):
                raise self._hang(f"DPU_RDMA's cube {size} differs from the DPU's", "DATA_CUBE_WIDTH", "WIDTH")
        if not self.flying and offered.main is not None:
            raise self._hang("MRDMA offers data that nobody takes", "FEATURE_MODE_CFG", "FLYING_MODE")
        needs_ew = not dpu.get("EW_CFG", "EW_BYPASS") and bool(dpu.get("EW_CFG", "EW_OP_SRC"))
        if needs_ew and offered.ew is None:
            raise self._hang("waits for ERDMA, which is off", "EW_CFG", "EW_OP_SRC")
        if not needs_ew and offered.ew is not None:
            raise self._hang("ERDMA offers data that nobody takes", "EW_CFG", "EW_OP_SRC")
        if self.flying:
            if offered.main is None:
                raise self._hang("waits for MRDMA, which is off", "FEATURE_MODE_CFG", "FLYING_MODE")
            return offered.main
        if self.conv is None:
            raise self._hang("waits for CORE, which is not enabled", "FEATURE_MODE_CFG", "FLYING_MODE")
        shape, acc, total = self.conv
        if shape.pixels != pixels:
            raise self._hang(f"CORE delivers {shape.pixels} pixels of {pixels}", "DATA_CUBE_WIDTH", "WIDTH")
        groups = -(-self.channels // self.group)
        if shape.depthwise != self.depthwise or shape.groups != groups:
            kind = "depthwise" if shape.depthwise else "direct"
            raise self._hang(
                f"CORE delivers {shape.groups} {kind} groups, the DPU wants {groups}",
                "DATA_CUBE_CHANNEL",
                "CHANNEL",
            )
        acc, total = acc[:, : self.channels], total[:, : self.channels]
        if dpu.get("BS_OW_CFG", "OD_BYPASS"):
            return acc
        if dpu.get("BS_OW_CFG", "OW_SRC"):
            return acc + total * self._operands("BS", "BS_OW_CFG", "OW_SRC").cpend
        return acc + total * dpu.signed("BS_OW_OP", "OW_OP")

    def _operands(self, stage: str, register: str, name: str) -> StageOperands:
        """Operands of BRDMA or NRDMA."""
        data = self.offered.bs if stage == "BS" else self.offered.bn
        if data is None:
            client = "BRDMA" if stage == "BS" else "NRDMA"
            raise self._hang(f"waits for {client} operands, which are off", register, name)
        return data

    def _alu(self, stage: str, value: Ints) -> Ints:
        dpu, cfg = self.dpu, f"{stage}_CFG"
        if dpu.get(cfg, f"{stage}_ALU_BYPASS"):
            return value
        if dpu.get(cfg, f"{stage}_ALU_SRC"):
            operand: Ints | int = self._operands(stage, cfg, f"{stage}_ALU_SRC").alu
        else:
            operand = dpu.signed(f"{stage}_ALU_CFG", f"{stage}_ALU_OPERAND")
        algorithm = dpu.get(cfg, f"{stage}_ALU_ALGO")
        ok = algorithm in (2, 4)
        self.ctx.require(ok, "RESERVED_MODE", dpu, cfg, f"{stage}_ALU_ALGO", "neither add nor minus")
        if not ok:
            return value
        return value + operand if algorithm == 2 else value - operand

    def _mul(self, stage: str, value: Ints) -> Ints:
        """Multiply, shift and saturate; with PRELU non-negative values pass."""
        dpu, register = self.dpu, f"{stage}_MUL_CFG"
        if dpu.get(register, f"{stage}_MUL_SRC"):
            operand: Ints | int = self._operands(stage, register, f"{stage}_MUL_SRC").mul
        else:
            operand = dpu.signed(register, f"{stage}_MUL_OPERAND")
        shift = dpu.get(register, f"{stage}_MUL_SHIFT_VALUE")
        negative = dpu.get("DATA_FORMAT", f"{stage}_MUL_SHIFT_VALUE_NEG")
        out = saturate(shift_by_sign(value * operand, shift, negative), 32)
        if dpu.get(f"{stage}_CFG", f"{stage}_MUL_PRELU"):
            out = np.where(value >= 0, saturate(value, 32), out)
        return out

    def _relu(self, stage: str, value: Ints) -> Ints:
        dpu, cfg = self.dpu, f"{stage}_CFG"
        if not dpu.get(cfg, f"{stage}_RELU_BYPASS"):
            value = np.maximum(value, 0)
            if dpu.get(cfg, f"{stage}_RELUX_EN"):
                limit = dpu.signed(f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT")
                value = np.minimum(value, limit)
        return value

    def _bs(self, value: Ints) -> Ints:
        dpu = self.dpu
        if dpu.get("BS_CFG", "BS_BYPASS"):
            return saturate(value, 32)
        value = self._alu("BS", value)
        value = saturate(value, 32) if dpu.get("BS_CFG", "BS_MUL_BYPASS") else self._mul("BS", value)
        return self._relu("BS", value)

    def _stage_bn(self, value: Ints) -> Ints:
        dpu = self.dpu
        if dpu.get("BN_CFG", "BN_BYPASS"):
            return value
        if not dpu.get("BN_CFG", "BN_MUL_BYPASS"):
            value = self._mul("BN", value)
        return self._relu("BN", saturate(self._alu("BN", value), 32))

    def _ew_operand(self) -> Ints:
        """Element-wise operand, int64 [pixels or 1, channels]."""
        dpu = self.dpu
        if not dpu.get("EW_CFG", "EW_OP_SRC"):
            lanes = [dpu.signed(f"EW_OP_VALUE_{lane}", f"EW_OPERAND_{lane}") for lane in range(8)]
            return np.asarray(lanes, np.int64)[np.arange(self.channels) % 8][None, :]
        operand = self.offered.ew
        assert operand is not None  # `_main` has made sure
        if dpu.get("EW_CFG", "EW_OP_CVT_BYPASS"):
            return operand
        scale = dpu.signed("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE")
        offset = dpu.signed("EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET")
        shift = dpu.get("EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT")
        t = (operand + offset) * scale if dpu.get("EW_CFG", "EW_CVT_TYPE") else operand * scale + offset
        t = shift_away(t, shift) if dpu.get("EW_CFG", "EW_CVT_ROUND") else shift_even(t, shift)
        return saturate(t, 32)

    def _ew(self, value: Ints) -> Ints:
        ctx, dpu = self.ctx, self.dpu
        if dpu.get("EW_CFG", "EW_BYPASS"):
            return value
        ctx.require(
            dpu.get("EW_CFG", "EW_LUT_BYPASS") == 1,
            "RESERVED_MODE",
            dpu,
            "EW_CFG",
            "EW_LUT_BYPASS",
            "no LUT yet",
        )
        ctx.require(
            dpu.get("EW_CFG", "EW_BINARY_EN") == 0, "RESERVED_MODE", dpu, "EW_CFG", "EW_BINARY_EN", "reserved"
        )
        if not dpu.get("EW_CFG", "EW_OP_BYPASS"):
            operand = self._ew_operand()
            if dpu.get("EW_CFG", "EW_OP_TYPE"):
                value = self._ew_mul(value, operand)
            else:
                value = self._ew_alu(value, operand)
        return self._relu("EW", value)

    def _ew_mul(self, value: Ints, operand: Ints) -> Ints:
        factor = ((operand + (1 << 15)) % (1 << 16)) - (1 << 15)
        shift = self.dpu.get("EW_CVT_SCALE_VALUE", "EW_TRUNCATE") % 64
        negative = self.dpu.get("DATA_FORMAT", "EW_TRUNCATE_NEG") % 64
        out = saturate(shift_by_sign(value * factor, shift, negative), 32)
        if self.dpu.get("EW_CFG", "EW_MUL_PRELU"):
            out = np.where(value >= 0, value, out)
        return out

    def _ew_alu(self, value: Ints, operand: Ints) -> Ints:
        algorithm = self.dpu.get("EW_CFG", "EW_ALU_ALGO")
        lowest = -(1 << 31)
        if algorithm == 0:
            return np.maximum(value, operand)
        if algorithm == 1:
            return np.minimum(value, operand)
        if algorithm == 2:
            return saturate(value + operand, 32)
        if algorithm == 4:
            return saturate(value - operand, 32)
        if algorithm == 5:
            return np.where(value == lowest, value, np.abs(value))
        if algorithm == 6:
            return np.where(value == lowest, value, -value)
        self.ctx.require(
            False, "RESERVED_MODE", self.dpu, "EW_CFG", "EW_ALU_ALGO", "not an integer operation"
        )
        return value

    def _out_cvt(self, value: Ints) -> NDArray:
        """Output converter and padding channels: [pixels, channels] of the output type."""
        dpu = self.dpu
        scale = dpu.signed("OUT_CVT_SCALE", "OUT_CVT_SCALE")
        offset = dpu.signed("OUT_CVT_OFFSET", "OUT_CVT_OFFSET")
        shift = dpu.get("OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64
        add_first = dpu.get("OUT_CVT_SHIFT", "CVT_TYPE")
        product = (value + offset if add_first else value) * scale
        q = (
            shift_away(product, shift)
            if dpu.get("OUT_CVT_SHIFT", "CVT_ROUND")
            else shift_even(product, shift)
        )
        q = saturate(q if add_first else q + offset, self.bits)
        pend = signed(dpu.get("OFFSET_PEND", "OFFSET_PEND"), self.bits)
        per_atom = ATOM * 8 // self.bits
        lanes = -(-self.channels // per_atom) * per_atom
        out = np.full((q.shape[0], lanes), pend, np.int64)
        real = min(self.channels, dpu.get("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1)
        out[:, :real] = q[:, :real]
        return out.astype(self.out_type)

    def _write(self, out: NDArray) -> None:
        """Write surface by surface (docs/hardware.md 4.10)."""
        dpu, ctx = self.dpu, self.ctx
        if not dpu.get("FEATURE_MODE_CFG", "OUTPUT_MODE") & 2:
            return
        raw = dpu.get("BS_OW_CFG", "OD_BYPASS") == 1 and not self.flying
        in_group = self._group_surfaces() if raw else self._size_e()
        atoms = np.ascontiguousarray(out).view(np.uint8).reshape(self.height, self.width, -1, ATOM)
        surface = np.arange(atoms.shape[2], dtype=np.int64)
        jump = (surface // in_group) * dpu.get("SURFACE_ADD", "SURF_ADD")
        jump = jump + (surface % in_group) * dpu.get("DST_SURF_STRIDE", "DST_SURF_STRIDE")
        line = self.width + dpu.get("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
        y = np.arange(self.height, dtype=np.int64)[None, :, None]
        x = np.arange(self.width, dtype=np.int64)[None, None, :]
        places = ctx.address(dpu, "DST_BASE_ADDR") + ATOM * (jump[:, None, None] + y * line + x)
        ctx.write("dpu", "DPU", "DST_BASE_ADDR", places, atoms.transpose(2, 0, 1, 3).reshape(-1, ATOM))
