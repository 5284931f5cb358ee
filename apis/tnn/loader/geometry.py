"""Windows of convolutions and pooling: padding, and the shapes of their outputs.

Source: Tencent/TNN f0cb0812, source/tnn/layer/conv_layer.cc, deconv_layer.cc and pooling_layer.cc.
"""

from __future__ import annotations

import math

from rkcosim.apis.tnn.loader.bound import Bound, Dims


def window_pads(b: Bound) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return padding before and after the rows, and the columns, of a convolution or pooling.

    Pooling in ceil mode has as much padding at the end as its last window needs.
    """
    size = b.map()[2:]
    kernels, strides = window(b)
    dilations = b.params.get("dialations", (1, 1))
    kind, pads = b.params["pad_type"], []
    for x, kernel, stride, pad, dilation in zip(
        size, kernels, strides, b.params["pads"], dilations, strict=True
    ):
        extent = dilation * (kernel - 1) + 1
        if kind == -1:
            total = x + 2 * pad - extent
            steps = -(-total // stride) if b.params.get("ceil_mode") == 1 else total // stride
            after = steps * stride + extent - x - pad if "pool_type" in b.params else pad
            pads.append((pad, max(after, 0)))
        elif kind in (0, 1):
            out = -(-x // stride) if kind == 0 else -(-(x - extent + 1) // stride)
            along = max((out - 1) * stride + extent - x, 0)
            pads.append((along // 2, along - along // 2))
        else:
            raise b.wrong(f"pad_type {kind} is not supported")
    return pads[0], pads[1]


def window(b: Bound) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return kernel and strides of a convolution or pooling.

    A kernel of 0 is the whole map; one with an axis of `kernel_indexs` is as large as this axis of the input.
    """
    kernels, strides = b.params["kernels"], b.params["strides"]
    size = b.map()[2:]
    given = [kernel or x for kernel, x in zip(kernels, size, strict=True)]
    axes = b.params.get("kernel_indexs", (-1, -1))
    given = [kernel if axis == -1 else b.map()[axis] for kernel, axis in zip(given, axes, strict=True)]
    steps = [stride or 1 for stride in strides]
    return (given[0], given[1]), (steps[0], steps[1])


def _slid(b: Bound) -> tuple[int, int]:
    size, (kernels, strides) = b.map()[2:], window(b)
    dilations = b.params.get("dialations", (1, 1))
    out = []
    for x, kernel, stride, pads, dilation in zip(
        size, kernels, strides, window_pads(b), dilations, strict=True
    ):
        left = x + sum(pads) - dilation * (kernel - 1) - 1
        if left < 0:
            raise b.wrong(f"its window is larger than its input {b.inputs[0]}")
        out.append(left // stride + 1)
    return out[0], out[1]


def convolution(b: Bound) -> list[Dims]:
    """Return the shape of the output of a convolution."""
    n, c, _, _ = b.map()
    p, (kh, kw) = b.params, b.params["kernels"]
    if c % p["group"] or (
        p["input_channel"] > 1 and c not in (p["input_channel"], p["input_channel"] * p["group"])
    ):
        raise b.wrong(f"{c} channels in {p['group']} groups, the file says {p['input_channel']}")
    b.array("filter", p["output_channel"] * (c // p["group"]) * kh * kw)
    return [(n, p["output_channel"], *_slid(b))]


def deconvolution_pads(b: Bound) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return what a transposed convolution cuts off before and after the rows, and the columns."""
    _, _, *size = b.map()
    p, cuts = b.params, []
    for x, kernel, stride, pad, dilation in zip(
        size, p["kernels"], p["strides"], p["pads"], p["dialations"], strict=True
    ):
        extent = dilation * (kernel - 1) + 1
        full = (x - 1) * stride + extent
        if p["pad_type"] == -1:
            cuts.append((pad, pad))
        elif p["pad_type"] in (0, 1, 3):
            out = x * stride + (max(extent - stride, 0) if p["pad_type"] == 1 else 0)
            if full < out:
                text = f"strides larger than the kernel with pad_type {p['pad_type']} are not supported"
                raise b.wrong(text)
            less, more = (full - out) // 2, full - out - (full - out) // 2
            cuts.append((more, less) if p["pad_type"] == 3 else (less, more))
        elif p["pad_type"] == 2:  # FULL: deconv_layer.cc makes x * stride - (stride + extent - 2) rows
            if full < 2 * extent - 1:
                raise b.wrong(f"pad_type 2 leaves nothing of {x} rows or columns")
            cuts.append((extent - 1, extent - 1))
        else:
            raise b.wrong(f"pad_type {p['pad_type']} is not supported")
    return cuts[0], cuts[1]


def deconvolution(b: Bound) -> list[Dims]:
    """Return the shape of the output of a transposed convolution."""
    n, c, *size = b.map()
    p, out = b.params, []
    if c % p["group"]:
        raise b.wrong(f"{c} channels in {p['group']} groups")
    b.array("filter", c * (p["output_channel"] // p["group"]) * math.prod(p["kernels"]))
    for x, kernel, stride, dilation, cut in zip(
        size, p["kernels"], p["strides"], p["dialations"], deconvolution_pads(b), strict=True
    ):
        out.append((x - 1) * stride + dilation * (kernel - 1) + 1 - sum(cut))
    return [(n, p["output_channel"], *out)]


def pooling(b: Bound) -> list[Dims]:
    """Return the shape of the output of pooling."""
    n, c = b.map()[:2]
    pads, kernels = window_pads(b), window(b)[0]
    if any(max(both) >= kernel for both, kernel in zip(pads, kernels, strict=True)):
        raise b.wrong(f"padding {pads} is as large as its window {kernels}")
    if b.params["is_adaptive_pool"]:
        high, wide = b.params["output_shape"]
        return [(n, c, high, wide)]
    return [(n, c, *_slid(b))]
