"""Rules about what the DPU writes where (docs/hardware.md 4.10, 4.11, 5.7)."""

from __future__ import annotations

from sw.regcmd.lint.rule import ERROR, NOTE, WARNING, Check, rule
from sw.regcmd.lint.shapes import PACKET, STRIPE, ceil, collision, started_dpu

_DPU = ("DPU",)
_MODE = "FEATURE_MODE_CFG"


@rule(
    "dpu.surfaces-of-group",
    ERROR,
    "SIZE_E must name the surfaces of a kernel group, or the copies of an unpooled row, else the DPU never "
    "finishes.",
    "docs/hardware.md 4.10, 5.7, H 5.8",
    blocks=_DPU,
)
def _size_e(check: Check) -> None:
    dpu = started_dpu(check)
    said, place = dpu.view("BS_OW_CFG", "SIZE_E_1") + 1, ("DPU", "BS_OW_CFG", "SIZE_E_1")
    if dpu.copies and said != dpu.copies:
        check.say(f"an unpooled row has {dpu.copies} copies, SIZE_E_1 says {said}", *place)
    elif dpu.grouped and said != dpu.group_surfaces:
        check.say(f"a group has {dpu.group_surfaces} surfaces of this type, SIZE_E_1 says {said}", *place)


@rule(
    "dpu.whole-groups",
    ERROR,
    "With the zero point term on, the cube must end with a kernel group, else the DPU never finishes; "
    "without it no board run is known that does otherwise.",
    "docs/hardware.md 4.10",
    blocks=_DPU,
)
def _whole_groups(check: Check) -> None:
    dpu = started_dpu(check)
    if not dpu.grouped or not dpu.surfaces % dpu.group_surfaces:
        return
    message = f"{dpu.surfaces} surfaces are no whole groups of {dpu.group_surfaces}"
    severity = ERROR if dpu.converter else NOTE
    check.say(message, "DPU", "DATA_CUBE_CHANNEL", "CHANNEL", severity=severity)


@rule(
    "dpu.repeats",
    WARNING,
    "Sizes that are given twice are the same in real programs.",
    "docs/hardware.md 4.10, H 2.4",
    blocks=_DPU,
)
def _repeats(check: Check) -> None:
    cube = started_dpu(check)
    dpu = cube.view
    repeats = [
        ("BS_OW_CFG", "SIZE_E_0", "BS_OW_CFG", "SIZE_E_1"),
        ("BS_OW_CFG", "SIZE_E_2", "BS_OW_CFG", "SIZE_E_1"),
        ("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_1", "DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0"),
    ]
    if not cube.packets:
        repeats.append(("WDMA_SIZE_1", "HEIGHT_WDMA", "DATA_CUBE_HEIGHT", "HEIGHT"))
        repeats.append(("WDMA_SIZE_1", "WIDTH_WDMA", "DATA_CUBE_WIDTH", "WIDTH"))
        if ceil(dpu("WDMA_SIZE_0", "CHANNEL_WDMA") + 1, 128 // cube.bits) != cube.surfaces:
            repeats.append(("WDMA_SIZE_0", "CHANNEL_WDMA", "DATA_CUBE_CHANNEL", "CHANNEL"))
    for register, name, other, twin in repeats:
        if dpu(register, name) != dpu(other, twin):
            message = f"{other}.{twin} is {dpu(other, twin)}"
            check.say(message, "DPU", register, name, also=(f"DPU.{other}.{twin}",))
    if dpu("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") > dpu("DATA_CUBE_CHANNEL", "CHANNEL"):
        message = f"more than the {dpu('DATA_CUBE_CHANNEL', 'CHANNEL') + 1} channels of the cube"
        check.say(message, "DPU", "DATA_CUBE_CHANNEL", "ORIG_CHANNEL")


@rule(
    "dpu.nowhere",
    WARNING,
    "OUTPUT_MODE 0 throws every result away.",
    "docs/hardware.md 4.10",
    blocks=_DPU,
)
def _nowhere(check: Check) -> None:
    if not started_dpu(check).output:
        check.say("nothing leaves the DPU", "DPU", _MODE, "OUTPUT_MODE")


@rule(
    "dpu.surfaces",
    ERROR,
    "Output surfaces must be apart by their size at least: atoms written twice lose one of their values.",
    "docs/hardware.md 4.10, H 5.8",
    blocks=_DPU,
)
def _surfaces(check: Check) -> None:
    dpu = started_dpu(check)
    if not dpu.output & 2 or dpu.packets:
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


@rule(
    "dpu.packets",
    ERROR,
    "Packets of eight atoms are made of int16 from memory, or of int16 convolutions as int32, as many as the "
    "sizes of WDMA name.",
    "docs/hardware.md 4.11, H 5.9",
    blocks=_DPU,
)
def _packets(check: Check) -> None:
    cube = started_dpu(check)
    dpu = cube.view
    if not cube.packets:
        for register, name in ((_MODE, "TP_EN"), ("BS_OW_CFG", "TP_ORG_EN")):
            if dpu(register, name):
                check.say("no effect in this mode", "DPU", register, name, severity=WARNING)
        return
    place = ("DPU", "WDMA_SIZE_1", "HEIGHT_WDMA")
    said = dpu("BS_OW_CFG", "SIZE_E_1") + 1
    if said != PACKET:
        severity = ERROR if cube.pixels >= STRIPE else WARNING
        check.say(f"{said} of {PACKET} atoms", "DPU", "BS_OW_CFG", "SIZE_E_1", severity=severity)
    if not cube.flying and cube.surfaces % 4:
        check.say("channels must be whole kernel groups", "DPU", "DATA_CUBE_CHANNEL", "CHANNEL")
    atoms, told = cube.surfaces * cube.pixels, PACKET * cube.packets_told
    run = cube.pixels * (1 if cube.flying else 4)
    if run % cube.packet_block:
        check.say(f"{run} atoms make no blocks of {cube.packet_block}", *place)
    elif atoms != told:
        severity = ERROR if atoms < told else WARNING
        message = f"{told // PACKET} packets named, {atoms // PACKET} made"
        check.say(message, *place, severity=severity)
    if dpu("BS_OW_CFG", "TP_ORG_EN") and dpu(_MODE, "TP_EN"):
        check.say("no effect beside TP_ORG_EN", "DPU", _MODE, "TP_EN", severity=WARNING)
    if cube.output & 1:
        check.say("the PPU gets no packets", "DPU", _MODE, "OUTPUT_MODE", severity=WARNING)
