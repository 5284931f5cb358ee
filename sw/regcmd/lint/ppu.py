"""Rules about the PPU and PPU_RDMA (docs/hardware.md 6)."""

from __future__ import annotations

from sw.regcmd.lint.rule import ERROR, NOTE, WARNING, Check, rule
from sw.regcmd.lint.shapes import ATOM, POOL_BITS, Pool, ceil, collision, dpu_of, pool_of

_PPU = ("PPU",)
_PAIRS = ((0, 1), (1, 2), (2, 2))
ROW_CAPACITY = 2048


def _pool(check: Check) -> Pool:
    pool = pool_of(check)
    assert pool is not None
    return pool


@rule(
    "pool.cube",
    ERROR,
    "The PPU waits for the cube that its registers name; PPU_RDMA, or the DPU, must deliver that one.",
    "docs/hardware.md 6.6, 6.7",
    blocks=_PPU,
)
def _cube(check: Check) -> None:
    pool, start = _pool(check), check.start
    assert start is not None
    rdma, dpu = start.view("PPU_RDMA"), dpu_of(check)
    per = 128 // pool.bits
    if not pool.fed and rdma is not None:
        sizes = {axis: rdma(f"CUBE_IN_{axis}") + 1 for axis in ("WIDTH", "HEIGHT", "CHANNEL")}
        who, block, prefix = "PPU_RDMA delivers", "PPU_RDMA", "CUBE_IN_"
    elif pool.fed and dpu is not None:
        sizes = {"WIDTH": dpu.width, "HEIGHT": dpu.height, "CHANNEL": dpu.channels}
        who, block, prefix = "the DPU delivers", "PPU", "DATA_CUBE_IN_"
        if dpu.bits != pool.bits:
            message = f"the DPU delivers {dpu.bits} bits an element, the PPU takes {pool.bits}"
            check.say(message, "PPU", "DATA_FORMAT", "PROC_PRECISION")
    else:
        return
    for axis, mine in (("WIDTH", pool.width), ("HEIGHT", pool.height), ("CHANNEL", pool.channels)):
        step = per if axis == "CHANNEL" else 1
        if ceil(sizes[axis], step) != ceil(mine, step):
            name = f"{prefix}{axis}"
            twin = f"PPU.DATA_CUBE_IN_{axis}" if block == "PPU_RDMA" else f"DPU.DATA_CUBE_{axis}.{axis}"
            message = f"{who} {axis.lower()} {sizes[axis]}, the PPU wants {mine}"
            check.say(message, block, name, name, also=(twin,))


@rule(
    "pool.type",
    ERROR,
    "The PPU knows int8, int16 and fp16, read by PPU_RDMA as 8 or 16 bits, and three methods.",
    "docs/hardware.md 6.1, 6.5",
    blocks=_PPU,
)
def _type(check: Check) -> None:
    pool, start = _pool(check), check.start
    assert start is not None
    ppu, rdma, mode = pool.view, start.view("PPU_RDMA"), "OPERATION_MODE_CFG"
    if pool.type not in POOL_BITS:
        check.say("no such type, counts as int8", "PPU", "DATA_FORMAT", "PROC_PRECISION")
    elif rdma is not None and not pool.fed and (pool.type, rdma("DATA_FORMAT", "IN_PRECISION")) not in _PAIRS:
        message = f"the PPU's type has {pool.bits} bits; counts as int8"
        check.say(message, "PPU_RDMA", "DATA_FORMAT", "IN_PRECISION")
    if ppu(mode, "POOLING_METHOD") == 3:
        check.say("no such method, counts as min", "PPU", mode, "POOLING_METHOD")
    if pool.indexed and ppu(mode, "POOLING_METHOD") == 0:
        check.say("an average has no position", "PPU", mode, "INDEX_EN")
    dpu = dpu_of(check)
    if pool.fed and dpu is not None and ppu("DATA_FORMAT", "DPU_FLYIN") != int(dpu.flying):
        message = f"the DPU's FLYING_MODE is {int(dpu.flying)}"
        check.say(message, "PPU", "DATA_FORMAT", "DPU_FLYIN", severity=WARNING)


@rule(
    "pool.reserved",
    WARNING,
    "Non-aligned output and surface series have no known behaviour, real programs leave them 0.",
    "docs/hardware.md 6.6",
    blocks=_PPU,
)
def _reserved(check: Check) -> None:
    for name in ("NONALIGN", "SURF_LEN", "MC_SURF_OUT"):
        if _pool(check).view("MISC_CTRL", name):
            check.say("mode without a known behaviour", "PPU", "MISC_CTRL", name)


@rule(
    "pool.channels",
    WARNING,
    "A pool has as many channels behind it as ahead of it.",
    "docs/hardware.md 6.1",
    blocks=_PPU,
)
def _channels(check: Check) -> None:
    ppu = _pool(check).view
    if ppu("DATA_CUBE_OUT_CHANNEL") != ppu("DATA_CUBE_IN_CHANNEL"):
        check.say(f"the input's is {ppu('DATA_CUBE_IN_CHANNEL')}", "PPU", "DATA_CUBE_OUT_CHANNEL")


@rule(
    "pool.rows",
    ERROR,
    "The PPU holds 2048 results of open rows: kernel rows times output columns (times surfaces when "
    "the DPU feeds it).",
    "docs/hardware.md 6.9, H 6.2",
    blocks=_PPU,
)
def _rows(check: Check) -> None:
    pool, dpu = _pool(check), dpu_of(check)
    open_surfaces = 1
    if pool.fed and dpu is not None:
        open_surfaces = min(pool.surfaces, dpu.group_surfaces)
    held = pool.kernel[0] * pool.out_width * open_surfaces
    if held > ROW_CAPACITY:
        check.say(f"{held} results of open rows", "PPU", "DATA_CUBE_OUT_WIDTH")


@rule(
    "pool.output",
    WARNING,
    "Windows that lie in the padding altogether: input, kernel, stride and output do not belong together.",
    "docs/hardware.md 6.1, H 6.1",
    blocks=_PPU,
)
def _output(check: Check) -> None:
    pool = _pool(check)
    for axis, name, size, count in (
        (0, "DATA_CUBE_OUT_HEIGHT", pool.height, pool.out_height),
        (1, "DATA_CUBE_OUT_WIDTH", pool.width, pool.out_width),
    ):
        last = (count - 1) * pool.stride[axis] - pool.pads[axis]
        if last >= size:
            check.say(f"the last window starts at {last} of {size}: nothing but padding", "PPU", name)
        if pool.pads[axis] >= pool.kernel[axis]:
            pad = "PAD_LEFT" if axis else "PAD_TOP"
            message = "as much padding as the window: the first one holds nothing else"
            check.say(message, "PPU", "POOLING_PADDING_CFG", pad)


@rule(
    "pool.reciprocal",
    NOTE,
    "An average multiplies by round(65536 / size) of each axis, or by a 1-6-10 float for fp16.",
    "docs/hardware.md 6.3, H 6.1",
    blocks=_PPU,
)
def _reciprocal(check: Check) -> None:
    pool = _pool(check)
    if pool.view("OPERATION_MODE_CFG", "POOLING_METHOD") or pool.type == 2:
        return
    for axis, name in ((1, "RECIP_KERNEL_WIDTH"), (0, "RECIP_KERNEL_HEIGHT")):
        want = (131072 + pool.kernel[axis]) // (2 * pool.kernel[axis])
        if pool.view(name) != want:
            check.say(f"{want} for a window of {pool.kernel[axis]}", "PPU", name)


@rule(
    "pool.surfaces",
    ERROR,
    "Output surfaces must be apart by their size at least.",
    "docs/hardware.md 6.4",
    blocks=_PPU,
)
def _surfaces(check: Check) -> None:
    pool = _pool(check)
    line = pool.out_width + pool.view("OPERATION_MODE_CFG", "NOTCH_ADDR")
    length = (pool.out_height - 1) * line + pool.out_width
    stride = pool.view.signed("DST_SURF_STRIDE")
    if collision([stride * s for s in range(pool.surfaces)], line, pool.out_height, pool.out_width):
        check.say(f"surfaces of {length} atoms are {stride} apart", "PPU", "DST_SURF_STRIDE")


@rule(
    "pool.pitch",
    WARNING,
    "Input lines and surfaces that are closer than they are long share data.",
    "docs/hardware.md 6.6",
    blocks=("PPU_RDMA",),
)
def _pitch(check: Check) -> None:
    start = check.start
    assert start is not None
    rdma = start.view("PPU_RDMA")
    assert rdma is not None
    width, height = rdma("CUBE_IN_WIDTH") + 1, rdma("CUBE_IN_HEIGHT") + 1
    line, surface = rdma.signed("SRC_LINE_STRIDE"), rdma.signed("SRC_SURF_STRIDE")
    if height > 1 and line < width:
        check.say(f"lines of {width} atoms", "PPU_RDMA", "SRC_LINE_STRIDE", "SRC_LINE_STRIDE")
    pool = pool_of(check)
    length = (height - 1) * line + width
    if pool is not None and pool.surfaces > 1 and surface < length and not width <= surface <= line:
        check.say(f"surfaces of {length} atoms", "PPU_RDMA", "SRC_SURF_STRIDE", "SRC_SURF_STRIDE")


@rule(
    "pool.address",
    ERROR,
    "What PPU_RDMA reads starts at a multiple of 16; the low bits are dropped.",
    "docs/hardware.md 6.6, H 1.12",
    blocks=("PPU_RDMA",),
)
def _address(check: Check) -> None:
    start = check.start
    assert start is not None
    rdma = start.view("PPU_RDMA")
    pool = pool_of(check)
    if rdma is not None and not (pool is not None and pool.fed) and rdma("SRC_BASE_ADDR") % ATOM:
        check.say("not a multiple of 16", "PPU_RDMA", "SRC_BASE_ADDR", "SRC_BASE_ADDR")
