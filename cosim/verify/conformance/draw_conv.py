"""Draws of convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rkcosim.spec.types import ATOM, BANK_BYTES, BANKS, INT8, ElementType
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.arena import Arena
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.conv import Conv

BUDGETS = (1200, 1200, 1200, 1200, 2400, 6000)


@dataclass(frozen=True)
class ConvWish:
    """Requirements of a group on its convolutions; everything else is drawn."""

    type: ElementType
    depthwise: bool = False
    argb: bool = False
    deconv: bool = False
    dilated: bool = False
    large: bool = False
    """Kernels, strides, pads and channels up to the limits of their fields."""
    row_major: bool = False
    """GROUP_LINE_OFF with rows of a matrix as features."""
    streamed: bool = False
    """Weights larger than their banks."""
    wide: bool = False
    """A large feature map that uses every data bank."""
    resident: bool = False
    """All weights fit their banks (for reuse)."""
    packed: bool = False
    """A shape for which the format of compressed weights is known: a multiple of 64 bytes."""
    missing_groups: bool = False
    """CORE counts more groups than there are kernels for."""
    budget: int = 0


def draw_conv(ch: Chooser, arena: Arena, wish: ConvWish) -> Conv:
    """Draw a layer with its memory.

    Raises
    ------
    Refused
        if the draw breaks a rule of the hardware or the cycle budget.
    """
    c = _shape(ch, wish)
    budget = wish.budget or ch.pick("conv.budget", BUDGETS)
    if c.cycles() > budget:
        c.out = (max(1, c.out[0] * budget // c.cycles()), c.out[1])
    if c.cycles() > budget:
        c.out = (c.out[0], max(1, min(c.out[1], 16)))
    if c.cycles() > 2 * budget:
        raise Refused(f"{c.cycles()} cycles are over the budget")
    _banks(ch, c, wish)
    _layout(ch, arena, c, wish)
    c.grains = ch.corner("conv.grains", 0, c.height + 3) if ch.chance("conv.few_grains", 0.9) else 1023
    c.qd = int(ch.chance("conv.qd", 0.8))
    if ch.chance("conv.clip", 0.35):
        c.clip = (ch.corner("conv.truncate", 0, 31), ch.integer("conv.round", 0, 1))
    if wish.argb or (c.type is INT8 and ch.chance("conv.converter", 0.15)):
        _converter(ch, c)
    _fill(ch, arena, c)
    _pad_value(ch, c)
    return c


def _count(ch: Chooser, label: str, unit: int, group: int, groups: int) -> int:
    """Draw a channel or kernel count: any number, whole atoms, or whole groups."""
    kind = ch.integer(f"{label} kind", 0, 5)
    if kind < 2:
        return ch.integer(label, 1, group)
    if kind == 2:
        return unit * ch.integer(label, 1, max(1, 2 * group // unit))
    if kind == 3:
        return group * ch.integer(label, 1, groups)
    return ch.integer(label, 1, groups * group)


def _kernel(ch: Chooser, wish: ConvWish) -> tuple[int, int]:
    if wish.large:
        if wish.depthwise and ch.chance("conv.wide_kernel", 0.4):  # a half of 16 bits nearly fills its bank
            return ch.integer("conv.kernel_y", 11, 16), ch.integer("conv.kernel_x", 11, 16)
        if ch.chance("conv.long_kernel", 0.5):
            side = ch.corner("conv.kernel", 1, 31), ch.integer("conv.kernel_other", 1, 3)
            return side if ch.chance("conv.kernel_upright", 0.5) else (side[1], side[0])
        return ch.integer("conv.kernel_y", 1, 11), ch.integer("conv.kernel_x", 1, 11)
    sides = (1, 1, 2, 3, 3, 3, 4, 5, 6) if not wish.streamed else (1, 3, 3)
    rows = ch.pick("conv.kernel_y", sides)
    return rows, rows if ch.chance("conv.kernel_square", 0.6) else ch.pick("conv.kernel_x", sides)


def _shape(ch: Chooser, wish: ConvWish) -> Conv:
    t = wish.type
    kernel = _kernel(ch, wish)
    stride = dilation = (1, 1)
    if not wish.deconv or ch.chance("conv.deconv_stride", 0.15):
        if wish.large:
            stride = ch.corner("conv.stride_y", 1, 7), ch.corner("conv.stride_x", 1, 7)
        elif ch.chance("conv.strided", 0.4):
            stride = ch.integer("conv.stride_y", 1, 3), ch.integer("conv.stride_x", 1, 3)
    if wish.dilated:
        dilation = ch.corner("conv.dilation_y", 1, 32), ch.corner("conv.dilation_x", 1, 32)
    elif ch.chance("conv.dilated", 0.15):
        dilation = ch.integer("conv.dilation_y", 1, 3), ch.integer("conv.dilation_x", 1, 3)
    deconv = None
    if wish.deconv:
        deconv = ch.pick("conv.deconv_y", (2, 1, 2, 4, 8)), ch.pick("conv.deconv_x", (2, 1, 2, 4, 8))
    reach = [(kernel[i] - 1) * dilation[i] + 1 for i in (0, 1)]
    pad = [0, 0]
    for axis, name in enumerate("yx"):
        if ch.chance(f"conv.pad_{name}_on", 0.6):
            most = 15 if ch.chance(f"conv.pad_{name}_any", 0.1) else min(15, reach[axis] - 1)
            pad[axis] = ch.integer(f"conv.pad_{name}", 0, most)
    least, most = (24, 80) if wish.wide else (1, 28 if wish.argb else 16)
    size = [ch.integer(f"conv.size_{name}", least, most) for name in "yx"]
    if ch.chance("conv.flat", 0.15):
        size[ch.integer("conv.flat_axis", 0, 1)] = 1
    if wish.row_major:
        size[0] = 1
        if ch.chance("conv.matrix_column", 0.5):
            size.reverse()
    out = []
    for axis, name in enumerate("yx"):
        real = (size[axis] - 1) * (deconv[axis] if deconv else 1) + 1
        trailing = 0
        if ch.chance(f"conv.trailing_{name}_on", 0.6):
            most = 40 if ch.chance(f"conv.trailing_{name}_any", 0.05) else min(15, reach[axis] - 1)
            trailing = ch.integer(f"conv.trailing_{name}", 0, most)
        room = real + pad[axis] + trailing - reach[axis]
        if room < 0:  # the kernel may reach beyond the image; outside is padding
            room = 0
        out.append(room // stride[axis] + 1)
    return Conv(
        t,
        wish.depthwise,
        ch.integer("conv.argb", 1, 4) if wish.argb else 0,
        size[0],
        size[1],
        *_channels(ch, wish),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        deconv=deconv,
        pad=(pad[0], pad[1]),
        out=(out[0], out[1]),
    )


def _channels(ch: Chooser, wish: ConvWish) -> tuple[int, int]:
    t = wish.type
    if wish.packed:
        wide = not wish.argb and ch.chance("conv.packed_wide", 0.4)
        channels = ch.integer("conv.channels", 17, 80) if wide else ch.integer("conv.channels", 1, 16)
        return 16 if wish.argb else channels, 4 * ch.integer("conv.packed_kernels", 1, 9)
    if wish.depthwise:
        return _count(ch, "conv.channels", t.per_atom, 64, 3), 1
    if wish.argb:
        channels = t.per_atom if ch.chance("conv.one_atom", 0.8) else ch.integer("conv.channels", 4, 24)
        return channels, _count(ch, "conv.kernels", 2, t.kernels, 3)
    if wish.streamed:
        return (
            t.channels * ch.integer("conv.channel_groups", 4, 20) - ch.integer("conv.channels_less", 0, 15),
            ch.integer("conv.kernels", t.kernels + 1, 4 * t.kernels),
        )
    if wish.wide:
        return _count(ch, "conv.channels", t.per_atom, t.channels, 2), ch.integer(
            "conv.kernels", 1, t.kernels
        )
    if wish.large and ch.chance("conv.many_channels", 0.3):
        return ch.corner("conv.channels", 1, 40 * t.channels), ch.integer("conv.kernels", 1, 8)
    return _count(ch, "conv.channels", t.per_atom, t.channels, 4), _count(ch, "conv.kernels", 2, t.kernels, 3)


def _banks(ch: Chooser, c: Conv, wish: ConvWish) -> None:
    """Choose the pitch of a row in CBUF and divide the banks."""
    if c.argb:
        c.line = -(-c.width // 16) * 16 if ch.chance("conv.line16", 0.6) else c.width
        if ch.chance("conv.line_more", 0.3):
            c.line += ch.integer("conv.line_extra", 0, 5)
        if ch.chance("conv.line_fills", 0.15):  # as many bytes as whole banks have, or a little less
            c.line = ch.integer("conv.filled", 1, 3) * BANK_BYTES // (c.height * c.pixel_bytes)
            c.line = max(c.width, c.line - ch.integer("conv.line_less", 0, 2))
    else:
        c.entries = c.row_entries + (
            ch.integer("conv.entries_extra", 0, 40) if ch.chance("conv.entries", 0.15) else 0
        )
        if c.entries >= 1 << 15:
            raise Refused("a row has too many entries")
    data = c.data_banks
    room = c.group_bytes
    if c.depthwise and c.type.bits == 16 and c.channels > 32:  # the blocks of a half and one more (3.3)
        room = max(room, 64 * c.taps + 64)
    least = max(1, -(-room // BANK_BYTES))
    whole = max(1, -(-c.weight_bytes(c.kernels) // BANK_BYTES))
    if wish.streamed:
        if c.out[0] * c.out[1] <= 16 and ch.chance("conv.group_over_banks", 0.5):
            least = 1  # with one stripe, even a kernel group may be larger than its banks (2.4)
        most = min(BANKS - data, whole - 1)
    elif wish.resident:
        least, most = whole, BANKS - data
    else:
        most = BANKS - data
    if data > BANKS - 1 or least > most:
        raise Refused(f"{data} data banks and {least} weight banks do not fit")
    c.weight_bank = ch.integer("conv.weight_bank", least, min(most, least + 1 if wish.streamed else 11))
    if ch.chance("conv.few_weight_banks", 0.15):
        c.weight_bank = least
    most = data if wish.wide else BANKS - c.weight_bank
    c.data_bank = most if ch.chance("conv.all_banks", 0.7) else ch.integer("conv.data_bank", data, most)


def _layout(ch: Chooser, arena: Arena, c: Conv, wish: ConvWish) -> None:
    """Choose pitches; reserve and fill the features' memory."""
    if c.argb:
        c.surface = c.line * c.height
        if ch.chance("conv.any_entries", 0.3):
            c.idle_entries = ch.word("conv.argb_entries", 15)
        raw = values.elements(ch, "features", c.type, c.line * c.height * c.argb)
        c.data = arena.place(raw, "features")
        return
    surfaces, rows = c.surfaces, c.height - 1
    c.group_line_off = wish.row_major or ch.chance("conv.group_line_off", 0.3)
    form = ch.integer("conv.memory", 0, 9)
    if c.group_line_off and (form == 9 or (wish.row_major and form > 3)):
        # Rows that contain all surfaces of their pixels: SURF_STRIDE is 0 (1.2)
        c.line, c.surface = surfaces * c.width + ch.integer("conv.line_extra", 0, 2), c.width
    else:
        c.line = c.width + (ch.integer("conv.line_extra", 0, 4) if form > 4 else 0)
        if form == 8 and ch.chance("conv.overlap", 0.2):
            c.line = ch.integer("conv.line", 0, c.width)  # lines may overlap or coincide
        c.surface = c.line * c.height + (ch.integer("conv.surface_extra", 0, 7) if form > 4 else 0)
        if form == 7 and ch.chance("conv.downwards", 0.3):
            c.surface = -c.surface
        if form == 6 and (c.width == 1 or ch.chance("conv.side_by_side", 0.3)):  # rows of all surfaces
            c.line, c.surface = surfaces * c.width + ch.integer("conv.row_extra", 0, 2), c.width
    # a pitch that is not used
    if c.height == 1 and ch.chance("conv.far_lines", 0.2):
        c.line = ch.word("conv.far_line", 28 if c.group_line_off else 26)
    if surfaces == 1 and ch.chance("conv.far_surfaces", 0.2):
        c.surface = ch.word("conv.far_surface", 28) or 1
    last = (surfaces - 1) * c.surface
    low, high = min(last, 0), max(last, 0) + rows * c.line + c.width
    raw = values.elements(ch, "features", c.type, (high - low) * c.type.per_atom)
    c.data = arena.place(raw, "features") - low * ATOM


def _converter(ch: Chooser, c: Conv) -> None:
    add_first = ch.integer("cvt.type", 0, 1)
    bypass = c.type.is_float or ch.chance("cvt.bypass", 0.15)
    if bypass and ch.chance("cvt.untouched", 0.6):
        return
    top = 1 << c.type.bits - 1
    truncate = [ch.corner(f"cvt.truncate{i}", 0, 31) for i in range(4)]
    c.cvt = {
        "CVT_BYPASS": int(bypass),
        "CVT_TYPE": add_first,
        "ROUND_TYPE": ch.integer("cvt.round", 0, 1),
        "DATA_SIGN": ch.integer("cvt.sign", 0, 1),
        **{f"CVT_TRUNCATE_{i}": value for i, value in enumerate(truncate)},
    }
    every = ch.chance("cvt.every", 0.7)
    c.cvt["PER_CHANNEL_CVT_EN"] = 0xFFFF if every else ch.word("cvt.enable", 32)
    for i, shift in enumerate(truncate):
        scale = int(np.clip((1 << shift) * ch.real(f"cvt.scale{i}", -1.3, 1.3), -32768, 32767))
        if ch.chance(f"cvt.corner{i}", 0.2):
            scale = ch.corner(f"cvt.any_scale{i}", -32768, 32767, 1)
        reach = min(2 * top, 32767) if add_first else 32767
        offset = ch.corner(f"cvt.offset{i}", -reach, reach, 0)
        c.cvt |= {f"CVT_SCALE{i}": scale, f"CVT_OFFSET{i}": offset}


def _fill(ch: Chooser, arena: Arena, c: Conv) -> None:
    """Draw the weights, and set the typical magnitude of a result."""
    size = -(-c.weight_bytes(c.kernels) // ATOM) * ATOM
    raw = values.elements(ch, "weights", c.type, size * 8 // c.type.bits)
    c.weights = arena.place(raw, "weights")
    lanes = c.taps * (1 if c.depthwise else c.argb or c.channels)
    if c.type.is_float:
        c.spread = float(np.sqrt(lanes))
    else:
        c.spread = max(1.0, 4.0 ** (c.type.bits - 1.6) * float(np.sqrt(lanes)) / 2.0 ** c.clip[0])
        c.spread = min(c.spread, 2.0**31)


def _pad_value(ch: Chooser, c: Conv) -> None:
    if not ch.chance("conv.pad_value_on", 0.75):
        return
    if c.type.is_float:
        bits = values.float_bits(ch, "conv.pad", c.type)
        c.pad_value = bits if c.type.bits == 32 else bits | ch.integer("conv.pad_upper", 0, 65535) << 16
    elif ch.chance("conv.pad_same", 0.4):
        c.pad_value = ch.integer("conv.pad_byte", 0, 255) * 0x01010101
    else:  # only the low bits count, or two bytes in a depthwise task (3.6)
        c.pad_value = ch.integer("conv.pad_word", 0, (1 << 32) - 1)
