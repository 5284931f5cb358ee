"""What the NPU's own fields and memories allow, for bytes and floats alike."""

from __future__ import annotations

from sw.compiler.graph import Pool, Tensor, Window

PPU_KERNEL = 16
"""Largest kernel side and stride of the PPU (HARDWARE 6)."""
PPU_PAD = 7
PPU_OPEN_RESULTS = 2048
"""Results of open rows that the PPU holds (docs/hardware.md 6.9)."""
CONV_KERNEL = 31
"""Largest kernel side of a convolution (WEIGHT_WIDTH has five bits)."""
CONV_STRIDE = 7
CONV_DILATION = 32
CONV_PAD = 15
"""Padding above and on the left that a convolution does itself (HARDWARE 3.11)."""
INSERTS = (1, 2, 4, 8)
"""Distances of input pixels in a transposed convolution (HARDWARE 3.12)."""


def ppu_does(op: Pool, output: Tensor) -> bool:
    """Whether window and map of a pool fit the PPU."""
    window = op.window
    return (
        max(window.kernel) <= PPU_KERNEL
        and max(window.pads) <= PPU_PAD
        and (max(window.strides) <= PPU_KERNEL or op.whole)
        and window.kernel[0] * output.cube[2] <= PPU_OPEN_RESULTS
    )


def reaches_outside(window: Window, x: Tensor, y: Tensor) -> bool:
    """Whether any window has taps in the padding."""
    ends = [
        (y.cube[1 + axis] - 1) * window.strides[axis] + window.kernel[axis] - window.pads[axis]
        for axis in range(2)
    ]
    return any(window.pads[:2]) or any(end > size for end, size in zip(ends, x.cube[1:], strict=True))
