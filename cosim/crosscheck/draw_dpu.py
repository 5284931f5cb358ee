"""Random settings of DPU and DPU_RDMA, and their registers for a tile of the cube."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cosim.crosscheck.arena import ATOM, Arena
from cosim.crosscheck.program import Task

_BYTES = {0: 1, 1: 2, 4: 4}
_TYPES = {0: np.int8, 1: np.int16, 4: np.int32}
_EDATA = {1: 1, 2: 2, 4: 3}
"""Element bytes to EDATA_SIZE / ERDMA_DATA_SIZE."""


@dataclass
class Tile:
    """Part of a cube: output rows [row, row + rows), channels [channel, channel + channels)."""

    row: int
    rows: int
    channel: int
    channels: int


@dataclass
class DpuDraw:
    """Settings of the DPU for a whole cube; `emit` writes the registers of one tile."""

    width: int
    height: int
    channels: int
    depthwise: bool
    flying: bool
    main: int
    """Precision code of the main data (0 int8, 1 int16, 4 int32)."""
    out: int
    group: int
    surface: int = 0
    notch: int = 0
    surface_add: int = 0
    group_surfaces: int = 1
    address: int = 0
    fields: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    rdma: bool = False
    bs: tuple[int, int] | None = None
    """(address, bytes per block of 8 channels) of BRDMA's table."""
    bn: tuple[int, int] | None = None
    ew: tuple[int, int, int, int, int] | None = None
    """(address, element bytes, line pitch, surface pitch, mode) of ERDMA."""
    mr: tuple[int, int, int, int] | None = None
    """(address, element bytes, line pitch, surface pitch) of MRDMA."""
    orig: int = 0
    notes: list[str] = field(default_factory=list)

    def set(self, block: str, register: str, **values: int) -> None:
        """Remember field values common to all tiles."""
        self.fields.setdefault((block, register), {}).update(values)

    def emit(self, task: Task, tile: Tile | None = None) -> None:
        """Write the registers of a tile (the whole cube by default) into a task."""
        tile = tile or Tile(0, self.height, 0, self.channels)
        for (block, register), values in self.fields.items():
            task.set(block, register, **values)
        first = tile.channel * _BYTES[self.out] // ATOM
        jump = (first // self.group_surfaces) * self.surface_add + (
            first % self.group_surfaces
        ) * self.surface
        line = self.width + self.notch
        task.address("DPU", "DST_BASE_ADDR", self.address + ATOM * (jump + tile.row * line))
        task.put("DPU", "DST_SURF_STRIDE", self.surface)
        task.set("DPU", "SURFACE_ADD", SURF_ADD=self.surface_add)
        task.set("DPU", "DATA_CUBE_WIDTH", WIDTH=self.width - 1)
        task.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=tile.rows - 1)
        orig = min(max(self.orig - tile.channel, 1), tile.channels)
        task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=tile.channels - 1, ORIG_CHANNEL=orig - 1)
        task.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=self.notch, NOTCH_ADDR_1=self.notch)
        task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=tile.channels - 1)
        task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=tile.rows - 1, WIDTH_WDMA=self.width - 1)
        if self.rdma:
            self._emit_rdma(task, tile)

    def _emit_rdma(self, task: Task, tile: Tile) -> None:
        task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=self.width - 1)
        task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=tile.rows - 1)
        task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=tile.channels - 1)
        if self.bs:
            task.address("DPU_RDMA", "BS_BASE_ADDR", self.bs[0] + tile.channel // 8 * self.bs[1])
        if self.bn:
            task.address("DPU_RDMA", "BN_BASE_ADDR", self.bn[0] + tile.channel // 8 * self.bn[1])
        if self.mr:
            base, size, line, surface = self.mr
            first = tile.channel * size // ATOM
            task.address("DPU_RDMA", "SRC_BASE_ADDR", base + ATOM * (first * surface + tile.row * line))
            task.set("DPU_RDMA", "SRC_DMA_CFG", LINE_NOTCH_ADDR=line - self.width)
            task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=surface - line * tile.rows)
        if self.ew:
            base, size, line, surface, mode = self.ew
            first = tile.channel * size // ATOM
            rows = tile.row * line if mode == 1 else 0
            task.address("DPU_RDMA", "EW_BASE_ADDR", base + ATOM * (first * surface + rows))
            task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", EW_LINE_NOTCH_ADDR=line - self.width if mode == 1 else 0)
            extra = min(surface // 2, 5) if mode == 1 else 0
            task.put("DPU_RDMA", "EW_SURF_STRIDE", surface - extra)
            task.put("DPU_RDMA", "EW_SURF_NOTCH", extra)


class DpuDrawer:
    """Draws DPU settings.

    Parameters
    ----------
    rng
        source of every choice.
    arena
        where destination and operands go.
    """

    def __init__(self, rng: np.random.Generator, arena: Arena) -> None:
        self.rng, self.arena = rng, arena

    def chance(self, p: float) -> bool:
        """Return True with probability p."""
        return bool(self.rng.random() < p)

    def integer(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return int(self.rng.integers(low, high, endpoint=True))

    def draw(
        self,
        width: int,
        height: int,
        channels: int,
        spread: float,
        *,
        depthwise: bool = False,
        main: int | None = None,
        out: int | None = None,
        element: bool | None = None,
    ) -> DpuDraw:
        """Draw settings.

        Parameters
        ----------
        width, height, channels
            the cube.
        spread
            typical magnitude of the main data.
        main
            precision code of MRDMA data; None when the main data come from CORE.
        out
            precision code of the output; random by default, mostly int8.
        element
            True or False demands or forbids an ERDMA operand.
        """
        flying = main is not None
        if out is None:
            out = int(self.rng.choice([0, 0, 0, 1, 4])) if not flying else int(self.rng.choice([0, 1, 4]))
        group = 64 if depthwise else 32 if not flying or main == 0 else 16
        d = DpuDraw(width, height, channels, depthwise, flying, main or 0, out, group)
        d.orig = channels if self.chance(0.7) else self.integer(1, channels)
        self._destination(d)
        self._modes(d)
        spread = self._cpend(d, spread)
        spread = self._stage(d, "BS", "BRDMA", spread)
        spread = self._stage(d, "BN", "NRDMA", spread)
        spread = self._element(d, spread, element)
        self._output(d, spread)
        if flying:
            self._main(d)
        self._rdma(d)
        return d

    def _destination(self, d: DpuDraw) -> None:
        size = _BYTES[d.out]
        surfaces = -(-d.channels * size // ATOM)
        full = d.group * size // ATOM
        d.group_surfaces = full if not d.flying or self.chance(0.5) else self.integer(1, 8)
        if d.width == 1 and d.group_surfaces == full and self.chance(0.5):  # rows of a matrix (H5.8)
            d.surface, d.notch = 1, surfaces - 1 + self.integer(0, 2)
            d.surface_add = d.group_surfaces
            span = d.height * (1 + d.notch)
            d.notes.append("NHWC out")
        else:
            d.notch = self.integer(0, 3) if self.chance(0.4) else 0
            line = d.width + d.notch
            d.surface = line * d.height + (self.integer(0, 5) if self.chance(0.4) else 0)
            d.surface_add = d.group_surfaces * d.surface + (self.integer(0, 5) if self.chance(0.3) else 0)
            span = (-(-surfaces // d.group_surfaces)) * d.surface_add + d.surface
        d.address = self.arena.alloc(span * ATOM, "output")

    def _modes(self, d: DpuDraw) -> None:
        d.set(
            "DPU",
            "FEATURE_MODE_CFG",
            BURST_LEN=15,
            CONV_MODE=3 if d.depthwise else 0,
            OUTPUT_MODE=2,
            FLYING_MODE=int(d.flying),
        )
        d.set("DPU", "DATA_FORMAT", OUT_PRECISION=d.out, IN_PRECISION=d.main, PROC_PRECISION=d.main)
        if d.orig < d.channels or self.chance(0.3):
            d.set("DPU", "OFFSET_PEND", OFFSET_PEND=self.integer(0, 0x7F if d.out == 0 else 0x7FFF))

    def _cpend(self, d: DpuDraw, spread: float) -> float:
        # Depthwise int32 has 16 surfaces a group, more than SIZE_E can say: only without the converter.
        size_e = min(d.group_surfaces, 8) - 1
        live = not d.flying and d.group_surfaces <= 8 and self.chance(0.5)
        d.set("DPU", "BS_OW_CFG", SIZE_E_0=size_e, SIZE_E_1=size_e, SIZE_E_2=size_e, OD_BYPASS=int(not live))
        if not live:
            return spread
        if self.chance(0.5):
            d.set("DPU", "BS_OW_CFG", OW_SRC=1)
            d.notes.append("CPEND table")
        else:
            d.set("DPU", "BS_OW_OP", OW_OP=self.integer(-130, 130) % 65536)
            d.notes.append("CPEND")
        return spread * 2

    def _factor(self, spread: float, table: bool) -> tuple[int, int, float]:
        """Draw a signed multiplier and a shift so that the result stays a useful size.

        With `table` the multipliers come from memory, of any size, and the shift fits a typical one.
        """
        factor = 16384 if table else self.integer(1, 32767) * (1 if self.chance(0.8) else -1)
        if not table and self.chance(0.05):
            factor = -32768
        aim = 2.0 ** self.rng.uniform(4, 24)
        shift = int(np.clip(round(np.log2(max(abs(factor) * spread / aim, 1.0))), 0, 63))
        return factor, shift, max(abs(factor) * spread / 2.0**shift, 1.0)

    def _stage(self, d: DpuDraw, stage: str, client: str, spread: float) -> float:
        """Draw BS or BN."""
        cfg, mul_cfg = f"{stage}_CFG", f"{stage}_MUL_CFG"
        need_cpend = stage == "BS" and d.fields.get(("DPU", "BS_OW_CFG"), {}).get("OW_SRC", 0)
        alu_table = mul_table = False
        if self.chance(0.2 if stage == "BS" else 0.5):
            d.set("DPU", cfg, **{f"{stage}_BYPASS": 1})
        else:
            alu, mul = self.chance(0.7), self.chance(0.6)
            alu_table, mul_table = alu and self.chance(0.6), mul and self.chance(0.5)
            relu = self.chance(0.4)
            d.set(
                "DPU",
                cfg,
                **{
                    f"{stage}_ALU_BYPASS": int(not alu),
                    f"{stage}_ALU_ALGO": 2 if self.chance(0.7) else 4,
                    f"{stage}_ALU_SRC": int(alu_table),
                    f"{stage}_MUL_BYPASS": int(not mul),
                    f"{stage}_MUL_PRELU": int(mul and self.chance(0.2)),
                    f"{stage}_RELU_BYPASS": int(not relu),
                    f"{stage}_RELUX_EN": int(relu and self.chance(0.5)),
                },
            )
            operand = self.integer(-int(spread) - 4, int(spread) + 4)
            d.set("DPU", f"{stage}_ALU_CFG", **{f"{stage}_ALU_OPERAND": operand % (1 << 32)})
            if mul:
                factor, shift, after = self._factor(spread, mul_table)
                negative = shift if self.chance(0.7) else min(63, shift + self.integer(0, 3))
                d.set("DPU", mul_cfg, **{f"{stage}_MUL_OPERAND": factor % 65536})
                d.set(
                    "DPU", mul_cfg, **{f"{stage}_MUL_SHIFT_VALUE": shift, f"{stage}_MUL_SRC": int(mul_table)}
                )
                d.set("DPU", "DATA_FORMAT", **{f"{stage}_MUL_SHIFT_VALUE_NEG": negative})
                spread = after
            limit = int(min(spread, 2**31 - 1) * self.rng.uniform(0.2, 1.5))
            d.set("DPU", f"{stage}_RELUX_CMP_VALUE", **{f"{stage}_RELUX_CMP_DAT": min(limit, 2**31 - 1)})
            d.notes.append(f"{stage} {'add ' if alu else ''}{'mul ' if mul else ''}{'relu' if relu else ''}")
        use = (1 if alu_table else 0) | (2 if need_cpend else 0) | (4 if mul_table else 0)
        if use or self.chance(0.1):
            allowed = 7 if stage == "BS" else 5
            use |= self.integer(0, 7) & allowed if self.chance(0.4) else 0
            self._table(d, stage, client, use, spread)
        return min(spread, 2.0**31)

    def _table(self, d: DpuDraw, stage: str, client: str, use: int, spread: float) -> None:
        if not use:
            return
        blocks = -(-d.channels // 8)
        parts = []
        bound = int(min(spread, 2**30)) + 8
        if use & 1:
            parts.append(self.rng.integers(-bound, bound, (blocks, 8)).astype(np.int32).view(np.uint8))
        if use & 2:
            parts.append(self.rng.integers(-130, 130, (blocks, 8)).astype(np.int16).view(np.uint8))
        if use & 4:
            parts.append(self.rng.integers(-32768, 32768, (blocks, 8)).astype(np.int16).view(np.uint8))
        table = np.concatenate([p.reshape(blocks, -1) for p in parts], axis=1)
        place = (self.arena.place(table, f"{client} table"), table.shape[1])
        if stage == "BS":
            d.bs = place
        else:
            d.bn = place
        d.set("DPU_RDMA", f"{client}_CFG", **{f"{client}_DATA_USE": use})
        d.rdma = True
        d.notes.append(f"{client} use {use}")

    def _element(self, d: DpuDraw, spread: float, element: bool | None) -> float:
        """Draw EW with registers or ERDMA as operand."""
        memory = element if element is not None else False
        if not memory and self.chance(0.7):
            d.set("DPU", "EW_CFG", EW_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_RELU_BYPASS=1)
            d.set("DPU", "EW_CFG", EW_OP_BYPASS=1)
            return spread
        multiply = self.chance(0.25)
        relu = self.chance(0.4)
        algorithm = int(self.rng.choice([0, 1, 2, 2, 2, 4, 5, 6]))
        convert = memory and self.chance(0.7)
        d.set(
            "DPU",
            "EW_CFG",
            EW_LUT_BYPASS=1,
            EW_OP_SRC=int(memory),
            EW_OP_TYPE=int(multiply),
            EW_ALU_ALGO=algorithm,
            EW_OP_CVT_BYPASS=int(not convert),
            EW_CVT_TYPE=self.integer(0, 1),
            EW_CVT_ROUND=self.integer(0, 1),
            EW_EQUAL_EN=int(algorithm < 2),
            EW_MUL_PRELU=int(multiply and self.chance(0.3)),
            EW_RELU_BYPASS=int(not relu),
            EW_RELUX_EN=int(relu and self.chance(0.5)),
        )
        d.set(
            "DPU",
            "EW_RELUX_CMP_VALUE",
            EW_RELUX_CMP_DAT=int(min(spread, 2**31 - 1) * self.rng.uniform(0.2, 1)),
        )
        d.notes.append(f"EW {'mul' if multiply else algorithm} {'ERDMA' if memory else 'register'}")
        size = 1
        if memory:
            size = self._operand(d)
            offset = self.integer(-200, 200)
            scale = self.integer(1, 32767) * (1 if self.chance(0.8) else -1)
            typical = {1: 70.0, 2: 16000.0, 4: 2.0**20}[size]
            aim = min(max(spread, 4.0), 2.0**28) * 2.0 ** self.rng.uniform(-3, 1)
            shift = int(np.clip(round(np.log2(max(abs(scale) * typical / aim, 1.0))), 0, 63))
            d.set("DPU", "EW_CVT_OFFSET_VALUE", EW_OP_CVT_OFFSET=offset % (1 << 32))
            d.set("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=scale % 65536, EW_OP_CVT_SHIFT=shift)
        else:
            bound = 2**15 - 1 if multiply else int(min(spread, 2**30)) + 2
            for lane in range(8):
                value = self.integer(-bound, bound) % (1 << 32)
                d.set("DPU", f"EW_OP_VALUE_{lane}", **{f"EW_OPERAND_{lane}": value})
        if multiply:
            shift = int(np.clip(self.integer(-2, 8) + 8 * size, 0, 63))
            d.set("DPU", "EW_CVT_SCALE_VALUE", EW_TRUNCATE=shift)
            d.set("DPU", "DATA_FORMAT", EW_TRUNCATE_NEG=shift if self.chance(0.7) else shift + 1)
        return min(spread * 2, 2.0**31)

    def _operand(self, d: DpuDraw) -> int:
        """Place an ERDMA operand; return its element size."""
        code = d.main if d.flying else int(self.rng.choice([0, 0, 1, 4]))
        size = _BYTES[code]
        mode = 1 if self.chance(0.75) else 0
        surfaces = -(-d.channels * size // ATOM)
        if mode == 1:
            line = d.width + (self.integer(0, 3) if self.chance(0.4) else 0)
            surface = line * d.height + (self.integer(0, 6) if self.chance(0.4) else 0)
        else:
            line, surface = 0, self.integer(1, 4)
        data = self.rng.integers(0, 256, (surfaces * surface + d.width * d.height) * ATOM, np.uint8)
        if size == 4:  # keep most int32 operands from saturating everything
            data.view(np.int32)[:] >>= self.integer(0, 24)
        d.ew = (self.arena.place(data, "ERDMA operand"), size, line, surface, mode)
        d.set("DPU", "EW_CFG", EW_DATA_MODE=mode, EDATA_SIZE=_EDATA[size])
        d.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=mode, ERDMA_DATA_SIZE=_EDATA[size], ERDMA_DISABLE=0)
        d.rdma = True
        return size

    def _main(self, d: DpuDraw) -> None:
        size = _BYTES[d.main]
        surfaces = -(-d.channels * size // ATOM)
        line = d.width + (self.integer(0, 3) if self.chance(0.4) else 0)
        surface = line * d.height + (self.integer(0, 6) if self.chance(0.4) else 0)
        data = self.rng.integers(0, 256, (surfaces * surface + line) * ATOM, np.uint8)
        if size == 4:
            data.view(np.int32)[:] >>= self.integer(0, 16)
        d.mr = (self.arena.place(data, "MRDMA input"), size, line, surface)
        d.rdma = True

    def _output(self, d: DpuDraw, spread: float) -> None:
        bits = 8 * _BYTES[d.out]
        scale = 1 if self.chance(0.15) else self.integer(1, 32767) * (1 if self.chance(0.85) else -1)
        aim = 2.0 ** (bits - 1) * self.rng.uniform(0.2, 2.0)
        shift = int(np.clip(round(np.log2(max(abs(scale) * spread / aim, 1.0))), 0, 63))
        if self.chance(0.05):
            shift = self.integer(0, 63)
        offset = self.integer(-128, 127) if self.chance(0.7) else 0
        d.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=scale % 65536)
        d.set("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=offset % (1 << 32))
        d.set(
            "DPU",
            "OUT_CVT_SHIFT",
            OUT_CVT_SHIFT=shift,
            CVT_TYPE=int(self.chance(0.2)),
            CVT_ROUND=int(self.chance(0.4)),
        )

    def _rdma(self, d: DpuDraw) -> None:
        if not d.rdma and self.chance(0.3):
            d.rdma = True
            d.notes.append("idle RDMA")
        if not d.rdma:
            return
        d.set(
            "DPU_RDMA",
            "FEATURE_MODE_CFG",
            IN_PRECISION=d.main,
            PROC_PRECISION=d.main,
            BURST_LEN=15,
            CONV_MODE=3 if d.depthwise else 0,
            MRDMA_DISABLE=int(d.mr is None),
            FLYING_MODE=int(d.flying),
        )
        d.set("DPU_RDMA", "WEIGHT", E_WEIGHT=1, N_WEIGHT=1, B_WEIGHT=1, M_WEIGHT=1)
        if not d.ew:
            d.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
