"""Limits of the hardware and of the compiler that decide whether the NPU computes an operator.

`rkcosim.compiler.constraints` has the sentences of which they are part.
"""

from __future__ import annotations

CONV_KERNEL = 31
"""Largest kernel side of a convolution (WEIGHT_WIDTH has five bits)."""
CONV_STRIDE = 7
"""Largest stride of a convolution [HW 5.4]."""
CONV_DILATION = 32
"""Largest dilation of a convolution [HW 5.4]."""
CONV_PAD = 15
"""Largest padding above and on the left that a convolution supports [HW 5.4]."""
MAX_SIZE = 2047
"""Largest width and height of one task of a convolution [HW 5.4]."""
INSERTS = (1, 2, 4, 8)
"""Distances of input pixels in a transposed convolution [HW 5.6]."""
PPU_KERNEL = 16
"""Largest kernel side and stride of the PPU [HW 9]."""
PPU_PAD = 7
"""Largest padding of the PPU [HW 9]."""
PPU_OPEN_RESULTS = 2048
"""Results of open rows that the PPU holds [HW 9.9]."""
MAX_REPEAT = 8
"""Largest factor of unpooling [HW 8.7]."""
MAX_LINES = 64
"""Largest number of lines that have a task each."""
MAX_NOTCH = 8191
"""Largest number of atoms that the writer skips between lines."""
MAX_PIXELS = 8191
"""Largest number of rows of a task of the DPU."""
MOST_MOVES = 256
"""Largest number of tasks of a transposition; one that needs more runs on the host."""
SMALL = 4096
"""Elements up to which the host computes a Softmax or a normalisation of floats: its tasks would cost as
much.  An operator without products, too, if its inputs are on the host: a job of its own would cost more than
it saves, and sums of the host may exceed the range of fp16."""
MAX_UNALIGNED = 512
"""Largest number of channels of a Softmax that do not fill atoms: its matrices grow with their square."""
MOST_PLACES = 30
"""Largest number of places for each element of a linear resize; a window has one more."""
MOST_DEPTH = 256
"""Largest number of elements of an axis in a product with the matrix of weights of a resize of floats."""
MOST_COPIES = 256
"""Largest number of tasks that copy ranges of rows and columns for a nearest resize."""
MOST_WINDOW = 2048
"""Largest number of elements of a window that become channels for a computed kernel."""
MOST_DENSE = 128
"""Largest number of channels of a depthwise convolution as a dense one: of 1024 multiplications in a cycle 8
are real ones then, and the host has four, by a rough estimate."""
MOST_WEIGHTS = 2**24
"""Largest number of weights of a depthwise convolution as a dense one."""

MOST_ONES = 2**24
"""Weights of a convolution of ones that moves channels; the host takes less time than a larger one."""
