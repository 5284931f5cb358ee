"""Rules about the PPU and PPU_RDMA beyond those of the golden model [HW 9]."""

from __future__ import annotations

from rkcosim.golden.task.rules import ERROR, NOTE, WARNING, present
from rkcosim.golden.task.shapes import ceil
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.lint.traffic import collision
from rkcosim.spec.types import OPEN_RESULTS

_PPU = ("PPU",)


@rule("pool.cube", ERROR, "[HW 9.6], [HW 9.7]", blocks=_PPU)
def _cube(check: Check) -> None:
    """The PPU waits for the cube that its registers specify; PPU_RDMA, or the DPU, must deliver that cube."""
    pool, start = present(check.pool), check.here
    rdma, dpu = start.view("PPU_RDMA"), check.dpu
    per = 128 // pool.bits
    if not pool.fed and rdma is not None:
        sizes = {axis: rdma(f"CUBE_IN_{axis}") + 1 for axis in ("WIDTH", "HEIGHT", "CHANNEL")}
        who, block, prefix = "PPU_RDMA delivers", "PPU_RDMA", "CUBE_IN_"
    elif pool.fed and dpu is not None:
        sizes = {"WIDTH": dpu.width, "HEIGHT": dpu.height, "CHANNEL": dpu.channels}
        who, block, prefix = "the DPU delivers", "PPU", "DATA_CUBE_IN_"
        if dpu.bits != pool.bits:
            message = f"the DPU delivers {dpu.bits} bits per element, the PPU expects {pool.bits}"
            check.say(message, "PPU", "DATA_FORMAT", "PROC_PRECISION")
    else:
        return
    for axis, mine in (("WIDTH", pool.width), ("HEIGHT", pool.height), ("CHANNEL", pool.channels)):
        step = per if axis == "CHANNEL" else 1
        if ceil(sizes[axis], step) != ceil(mine, step):
            name = f"{prefix}{axis}"
            twin = f"PPU.DATA_CUBE_IN_{axis}" if block == "PPU_RDMA" else f"DPU.DATA_CUBE_{axis}.{axis}"
            message = f"{who} {axis.lower()} {sizes[axis]}, the PPU expects {mine}"
            check.say(message, block, name, name, also=(twin,))


@rule("pool.rows", ERROR, "[HW 9.9]", blocks=_PPU)
def _rows(check: Check) -> None:
    """The PPU holds 2048 results of open rows: kernel rows times output columns (times surfaces if the DPU
    feeds it)."""
    pool, dpu = present(check.pool), check.dpu
    open_surfaces = 1
    if pool.fed and dpu is not None:
        open_surfaces = min(pool.surfaces, dpu.group_surfaces)
    held = pool.kernel[0] * pool.out_width * open_surfaces
    if held > OPEN_RESULTS:
        check.say(f"{held} results of open rows", "PPU", "DATA_CUBE_OUT_WIDTH")


@rule("pool.output", WARNING, "[HW 9.1], [HW 9.3]", blocks=_PPU)
def _output(check: Check) -> None:
    """Windows that lie completely in the padding show that input, kernel, stride and output do not match."""
    pool = present(check.pool)
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


@rule("pool.reciprocal", NOTE, "[HW 9.3]", blocks=_PPU)
def _reciprocal(check: Check) -> None:
    """An average is multiplied by round(65536 / size) for each axis, or by a 1-6-10 float for fp16."""
    pool = present(check.pool)
    if pool.view("OPERATION_MODE_CFG", "POOLING_METHOD") or pool.type == 2:
        return
    for axis, name in ((1, "RECIP_KERNEL_WIDTH"), (0, "RECIP_KERNEL_HEIGHT")):
        want = (131072 + pool.kernel[axis]) // (2 * pool.kernel[axis])
        if pool.view(name) != want:
            check.say(f"{want} for a window of {pool.kernel[axis]}", "PPU", name)


@rule("pool.surfaces", ERROR, "[HW 9.4]", blocks=_PPU)
def _surfaces(check: Check) -> None:
    """The distance of output surfaces, and of values and positions, must be at least their size: of atoms
    written twice one value is lost."""
    pool = present(check.pool)
    line = pool.out_width + pool.view("OPERATION_MODE_CFG", "NOTCH_ADDR")
    length = (pool.out_height - 1) * line + pool.out_width
    stride = pool.view.signed("DST_SURF_STRIDE")
    if collision([stride * s for s in range(pool.surfaces)], line, pool.out_height, pool.out_width):
        check.say(f"surfaces of {length} atoms are {stride} apart", "PPU", "DST_SURF_STRIDE")
    elif pool.indexed and pool.view("OPERATION_MODE_CFG", "POOLING_METHOD"):
        jump = pool.view.signed("DATA_FORMAT", "INDEX_ADD")
        places = [stride * s + tensor for s in range(pool.surfaces) for tensor in (0, jump)]
        if collision(places, line, pool.out_height, pool.out_width):
            message = f"values and positions of {pool.surfaces} surfaces are {jump} atoms apart"
            check.say(message, "PPU", "DATA_FORMAT", "INDEX_ADD")


@rule("pool.pitch", WARNING, "[HW 9.6]", blocks=("PPU_RDMA",))
def _pitch(check: Check) -> None:
    """Input lines or surfaces whose distance is less than their length overlap."""
    start = check.here
    rdma = start.view("PPU_RDMA")
    assert rdma is not None
    width, height = rdma("CUBE_IN_WIDTH") + 1, rdma("CUBE_IN_HEIGHT") + 1
    line, surface = rdma.signed("SRC_LINE_STRIDE"), rdma.signed("SRC_SURF_STRIDE")
    if height > 1 and line < width:
        check.say(f"lines of {width} atoms", "PPU_RDMA", "SRC_LINE_STRIDE", "SRC_LINE_STRIDE")
    pool = check.pool
    length = (height - 1) * line + width
    if pool is not None and pool.surfaces > 1 and surface < length and not width <= surface <= line:
        check.say(f"surfaces of {length} atoms", "PPU_RDMA", "SRC_SURF_STRIDE", "SRC_SURF_STRIDE")
