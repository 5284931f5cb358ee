"""Rules about the DPU and DPU_RDMA beyond those of the golden model ([HW 7], [HW 8])."""

from __future__ import annotations

from rkcosim.golden.task.rules import ERROR, NOTE, WARNING, present
from rkcosim.golden.task.shapes import ceil, cut
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.lint.traffic import collision, packets_share
from rkcosim.spec.types import ATOM

_DPU, _RDMA = ("DPU",), ("DPU_RDMA",)
_MODE = "FEATURE_MODE_CFG"


@rule("dpu.pixels", ERROR, "[HW 7.2], [HW 7.14]", blocks=_DPU)
def _pixels(check: Check) -> None:
    """The DPU waits until it has received all pixels of its cube; CORE must deliver the same number."""
    dpu, conv = present(check.dpu), check.conv
    if dpu.flying or conv is None or not conv.pixels:
        return
    if conv.pixels != dpu.pixels:
        message = f"CORE delivers {conv.pixels} pixels, the DPU's cube has {dpu.width} x {dpu.height}"
        if cut("CNA", "DATA_SIZE3", "DATAOUT_ATOMICS", dpu.pixels) == conv.pixels:
            message += f", which does not fit DATAOUT_ATOMICS: {dpu.pixels} was truncated"
        wide = conv.out_width == dpu.width
        register, name = ("DATA_CUBE_HEIGHT", "HEIGHT") if wide else ("DATA_CUBE_WIDTH", "WIDTH")
        also = ("CNA.DATA_SIZE3.DATAOUT_ATOMICS", "DPU.DATA_CUBE_WIDTH.WIDTH", "DPU.DATA_CUBE_HEIGHT.HEIGHT")
        check.say(message, "DPU", register, name, also=_others(also, f"DPU.{register}.{name}"))
    elif conv.out_width != dpu.width:
        message = f"CNA's rows have {conv.out_width} pixels, the DPU's {dpu.width}"
        place = ("DPU", "DATA_CUBE_WIDTH", "WIDTH")
        check.say(message, *place, severity=WARNING, also=("CNA.DATA_SIZE2.DATAOUT_WIDTH",))


@rule("dpu.group", ERROR, "[HW 7.2], [HW 6.3]", blocks=_DPU)
def _group(check: Check) -> None:
    """The size of channel groups follows from type and mode; a DPU that expects another size never ends."""
    dpu, conv, start = present(check.dpu), check.conv, check.here
    core = start.view("CORE")
    if dpu.flying or conv is None or core is None:
        return
    wide = bool(core("MISC_CFG", "DW_EN"))
    theirs = 8 * conv.octets
    if theirs != dpu.group:
        message = f"CORE delivers groups of {theirs} channels, the DPU expects {dpu.group}"
        mode = dpu.depthwise != wide
        also = ("CORE.MISC_CFG.DW_EN",) if mode else ("CORE.MISC_CFG.PROC_PRECISION",)
        place = (_MODE, "CONV_MODE") if mode else ("DATA_FORMAT", "IN_PRECISION")
        check.say(message, "DPU", *place, also=also)
        return
    counted = ceil(core("DATAOUT_SIZE_1", "DATAOUT_CHANNEL") + 1, dpu.group)
    delivered = max(conv.groups, counted)
    source = "CNA.DATA_SIZE1.DATAIN_CHANNEL" if conv.depthwise else "CNA.WEIGHT_SIZE2.WEIGHT_KERNELS"
    if delivered != dpu.groups:
        message = f"CORE delivers {delivered} groups of {dpu.group}, {dpu.channels} channels are {dpu.groups}"
        by_core = ("CORE.DATAOUT_SIZE_1.DATAOUT_CHANNEL",) if counted >= conv.groups else ()
        by_cna = (source,) if conv.groups == delivered else ()
        check.say(message, "DPU", "DATA_CUBE_CHANNEL", "CHANNEL", also=by_cna + by_core)
    elif counted > conv.groups:
        message = f"{counted} groups, of which {conv.groups} have kernels: the others deliver 0 (assumed)"
        check.say(message, "CORE", "DATAOUT_SIZE_1", "DATAOUT_CHANNEL", severity=NOTE, also=(source,))


def _others(paths: tuple[str, ...], named: str) -> tuple[str, ...]:
    return tuple(path for path in paths if path != named)


@rule("dpu.operand-never-set", WARNING, "[HW 7.5], [HW 1.7]", blocks=_DPU)
def _operand_never_set(check: Check) -> None:
    """An active stage or operation uses an operand register that nothing has written; it is 0 after a
    reset."""
    cube, start = present(check.dpu), check.here
    dpu = start.views["DPU"]
    wanted: list[str] = []
    for stage in ("BS", "BN"):
        cfg, multiplier = f"{stage}_CFG", f"{stage}_MUL_CFG"
        if dpu(cfg, f"{stage}_BYPASS"):
            continue
        if not dpu(cfg, f"{stage}_ALU_BYPASS") and not dpu(cfg, f"{stage}_ALU_SRC"):
            wanted.append(f"{stage}_ALU_CFG")
        if not dpu(cfg, f"{stage}_MUL_BYPASS"):
            wanted.append(multiplier)
        if dpu(cfg, f"{stage}_RELUX_EN") and not dpu(cfg, f"{stage}_RELU_BYPASS"):
            wanted.append(f"{stage}_RELUX_CMP_VALUE")
    if cube.operation and not cube.needs_element:
        wanted += [f"EW_OP_VALUE_{n}" for n in range(min(8, cube.pixels))]
    for register in wanted:
        if not dpu.written(register):
            message = f"never written to group {dpu.group} of DPU"
            check.say(message, "DPU", register, word=start.word, value=dpu.raw(register))


@rule("dpu.scale", WARNING, "[HW 7.10]", blocks=_DPU)
def _scale(check: Check) -> None:
    """With an output scale of 0, every result is the offset."""
    cube = present(check.dpu)
    if (not cube.floats or cube.lut) and not cube.view("OUT_CVT_SCALE", "OUT_CVT_SCALE"):
        check.say("every result is multiplied by 0", "DPU", "OUT_CVT_SCALE", "OUT_CVT_SCALE")


@rule("dpu.channels", NOTE, "[HW 6.3], [HW 7.11.1]", blocks=_DPU)
def _channels(check: Check) -> None:
    """More channels are written than there are kernels: the others have the values of lanes without a
    kernel."""
    dpu, conv = present(check.dpu), check.conv
    if dpu.flying or conv is None:
        return
    real = conv.channels if conv.depthwise else conv.kernels
    said = dpu.view("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1
    if said > max(real, 1) and ceil(said, 16) > ceil(real, 16):
        check.say(f"{said} channels of {real} kernels", "DPU", "DATA_CUBE_CHANNEL", "ORIG_CHANNEL")


@rule("dpu.nowhere", WARNING, "[HW 7.11]", blocks=_DPU)
def _nowhere(check: Check) -> None:
    """With OUTPUT_MODE 0 all results are dropped."""
    if not present(check.dpu).output:
        check.say("nothing leaves the DPU", "DPU", _MODE, "OUTPUT_MODE")


@rule("dpu.surfaces", ERROR, "[HW 7.11]", blocks=_DPU)
def _surfaces(check: Check) -> None:
    """The distance of output surfaces must be at least their size: of atoms written twice one value is
    lost."""
    dpu = present(check.dpu)
    if not dpu.output & 2 or dpu.reduces:
        return
    if dpu.packets:
        pair = packets_share(dpu)
        if pair:
            message = f"packets write the atom at {pair[1] // ATOM} twice"
            also = ("DPU.SURFACE_ADD.SURF_ADD", "DPU.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0")
            check.say(message, "DPU", "DST_SURF_STRIDE", "DST_SURF_STRIDE", also=also)
        return
    places = dpu.written_surfaces
    hit = collision(places, dpu.line, dpu.height, dpu.width)
    if hit is None:
        return
    first, second = hit
    length = (dpu.height - 1) * dpu.line + dpu.width
    message = f"surfaces {first} and {second} of {length} atoms are {places[second] - places[first]} apart"
    if second // dpu.series == first // dpu.series:
        check.say(message, "DPU", "DST_SURF_STRIDE", "DST_SURF_STRIDE")
    else:
        check.say(message, "DPU", "SURFACE_ADD", "SURF_ADD")


@rule("rdma.cube", ERROR, "[HW 8.1], [HW 8.6]", blocks=_RDMA)
def _cube(check: Check) -> None:
    """DPU and DPU_RDMA must process the same cube, otherwise one waits for the other forever."""
    rdma, dpu = present(check.rdma), check.dpu
    if dpu is None:
        return
    severity = ERROR if rdma.anything else WARNING
    width, channels, theirs_of = rdma.width, rdma.channels, dpu.channels
    if rdma.unpooled:
        width *= rdma.unpooled[1]
    if dpu.moves:  # their channels counted in atoms
        channels, theirs_of = ceil(channels, 8), dpu.surfaces
    for register, name, mine, theirs in (
        ("DATA_CUBE_WIDTH", "WIDTH", width, dpu.width),
        ("DATA_CUBE_HEIGHT", "HEIGHT", rdma.height, dpu.height),
        ("DATA_CUBE_CHANNEL", "CHANNEL", channels, theirs_of),
    ):
        if mine != theirs and (name == "CHANNEL" or width * rdma.height != dpu.pixels):
            message = f"{mine} here, {theirs} in the DPU"
            also: tuple[str, ...] = (f"DPU.{register}.{name}",)
            check.say(message, "DPU_RDMA", register, name, severity=severity, also=also)
    if rdma.flying != dpu.flying:
        message = f"the DPU's is {int(dpu.flying)}"
        also = (f"DPU.{_MODE}.FLYING_MODE",)
        check.say(message, "DPU_RDMA", _MODE, "FLYING_MODE", severity=WARNING, also=also)
    if rdma.group != dpu.group and (rdma.main or rdma.element):
        message = f"groups of {rdma.group} channels here, of {dpu.group} in the DPU: the order differs"
        also = ("DPU.DATA_FORMAT.IN_PRECISION", f"DPU.{_MODE}.CONV_MODE", f"DPU_RDMA.{_MODE}.CONV_MODE")
        check.say(message, "DPU_RDMA", _MODE, "IN_PRECISION", severity=WARNING, also=also)


@rule("rdma.main", ERROR, "[HW 8.2], [HW 8.6]", blocks=_DPU)
def _main(check: Check) -> None:
    """MRDMA must be enabled exactly if the DPU reads its main data from memory; otherwise the task hangs."""
    dpu, rdma = present(check.dpu), check.rdma
    if rdma is None or rdma.residual or (rdma.alternate and rdma.element):
        return
    place, also = ("DPU_RDMA", _MODE, "MRDMA_DISABLE"), (f"DPU.{_MODE}.FLYING_MODE",)
    if dpu.flying and not rdma.main:
        check.say("the DPU waits for the main data", *place, also=also)
    if rdma.main and not dpu.flying:
        check.say("a convolution does not use the main data", *place, also=also)


@rule("rdma.element", ERROR, "[HW 7.8], [HW 8.4], [HW 8.6]", blocks=_DPU)
def _element(check: Check) -> None:
    """ERDMA must be enabled exactly if the EW operation reads its operand from memory; otherwise the task
    hangs, or reads without use."""
    dpu, rdma = present(check.dpu), check.rdma
    offered = rdma is not None and not rdma.alternate and (rdma.element or (rdma.shared and rdma.main))
    if dpu.needs_element and not offered:
        also: tuple[str, ...] = ("DPU_RDMA.ERDMA_CFG.ERDMA_DISABLE",)
        check.say("waits for an operand that nothing reads", "DPU", "EW_CFG", "EW_OP_SRC", also=also)
    elif rdma is not None and rdma.shared and (rdma.element != rdma.main):
        missing = ("ERDMA_CFG", "ERDMA_DISABLE") if rdma.main else (_MODE, "MRDMA_DISABLE")
        number = rdma.view(_MODE, "COMB_USE")
        check.say(f"COMB_USE {number} needs both readers", "DPU_RDMA", *missing)
    elif offered and not dpu.needs_element:
        also = ("DPU.EW_CFG.EW_OP_SRC", "DPU.EW_CFG.EW_BYPASS", "DPU.EW_CFG.EW_OP_BYPASS")
        severity = WARNING if dpu.flying else ERROR  # in flying mode the data are dropped
        message = "no operation uses the operand"
        check.say(message, "DPU_RDMA", "ERDMA_CFG", "ERDMA_DISABLE", also=also, severity=severity)


@rule("rdma.operands", ERROR, "[HW 7.5] to [HW 7.7], [HW 8.3]", blocks=_DPU)
def _operands(check: Check) -> None:
    """A stage whose operands come from memory waits for the reader that delivers them."""
    dpu, rdma = present(check.dpu), check.rdma
    view = dpu.view
    for stage, client in (("BS", "BRDMA"), ("BN", "NRDMA")):
        use = 0 if rdma is None else rdma.use[client]
        cfg, wanted = f"{stage}_CFG", []
        if not view(cfg, f"{stage}_BYPASS"):
            if not view(cfg, f"{stage}_ALU_BYPASS") and view(cfg, f"{stage}_ALU_SRC"):
                wanted.append((0, cfg, f"{stage}_ALU_SRC"))
            if not view(cfg, f"{stage}_MUL_BYPASS") and view(f"{stage}_MUL_CFG", f"{stage}_MUL_SRC"):
                wanted.append((2, f"{stage}_MUL_CFG", f"{stage}_MUL_SRC"))
        corrects = dpu.converter or (dpu.flying and not view("BS_OW_CFG", "OD_BYPASS"))
        if stage == "BS" and corrects and view("BS_OW_CFG", "OW_SRC") and not dpu.floats:
            wanted.append((1, "BS_OW_CFG", "OW_SRC"))
        for bit, register, name in wanted:
            if not use & 7:
                off = rdma is not None and rdma.view(f"{client}_CFG", f"{client}_DISABLE")
                also = (f"DPU_RDMA.{client}_CFG.{client}_{'DISABLE' if off else 'DATA_USE'}",)
                check.say(f"waits for {client}, which is off", "DPU", register, name, also=also)
            elif client == "NRDMA" and use & 2 and rdma is not None and not rdma.floats:
                check.say("NRDMA reads nothing for integers if bit 1 of its use is 1", "DPU", register, name)
            elif not use >> bit & 1:
                message = f"{client} does not read this operand ({client}_DATA_USE {use}): it is 0"
                check.say(message, "DPU", register, name, severity=WARNING)


@rule("rdma.element-type", NOTE, "[HW 7.8], [HW 8.4]", blocks=_RDMA)
def _element_type(check: Check) -> None:
    """EW_CFG repeats size and shape of the operand. The shape is not read there; of floats the size decides
    whether the operand converter widens the operand."""
    rdma, dpu = present(check.rdma), check.dpu
    if dpu is None or not rdma.element or not dpu.needs_element:
        return
    for name, twin in (("EDATA_SIZE", "ERDMA_DATA_SIZE"), ("EW_DATA_MODE", "ERDMA_DATA_MODE")):
        if dpu.view("EW_CFG", name) != rdma.view("ERDMA_CFG", twin):
            check.say(f"ERDMA_CFG.{twin} is {rdma.view('ERDMA_CFG', twin)}", "DPU", "EW_CFG", name)
