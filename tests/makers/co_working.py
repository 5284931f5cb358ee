"""A network of 3 x 3 convolutions divided into rows for several cores, as linked chains, with its results."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rkcosim.driver import Driver, Job, Task
from rkcosim.regcmd import TaskBuilder, build_task_list, task_list_bytes
from rkcosim.spec.layouts import pack_feature, pack_weights, unpack_feature
from tests.makers.small_tasks import ATOM, conv_task, pool_task

CHANNELS = 32
SHIFT = 11
MODES = {2: 1, 3: 2}
"""NN_MODE of layers divided into rows, by the number of cores."""


def layer_of(image: NDArray[np.int8], weights: NDArray[np.int8]) -> NDArray[np.int8]:
    """A 3 x 3 convolution with zeros around the image, scaled by 2**-SHIFT: int8 [32, rows, columns]."""
    _, rows, columns = image.shape
    padded = np.pad(image.astype(np.int64), ((0, 0), (1, 1), (1, 1)))
    total = np.zeros((CHANNELS, rows, columns), np.int64)
    for row in range(3):
        for column in range(3):
            window = padded[:, row : row + rows, column : column + columns]
            total += np.einsum("oc,chw->ohw", weights[:, :, row, column].astype(np.int64), window)
    low, half = total & ((1 << SHIFT) - 1), 1 << (SHIFT - 1)
    rounded = (total >> SHIFT) + ((low > half) | ((low == half) & ((total >> SHIFT) & 1 == 1)))
    return np.clip(rounded, -128, 127).astype(np.int8)


def part_task(
    source: int, weights: int, target: int, size: tuple[int, int], rows: tuple[int, int], mode: int
) -> TaskBuilder:
    """Rows [first, end) of a layer of [32, height, width], with NN_MODE `mode`."""
    height, width = size
    first, end = rows
    start, stop = max(first - 1, 0), min(end + 1, height)
    task = conv_task(
        source + ATOM * width * start, weights, target, stop - start, width, f"rows {rows}", SHIFT
    )
    count, area = end - first, height * width
    task.set("CNA", "CONV_CON2", FEATURE_GRAINS=stop - start, NN_MODE=mode)
    task.set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=count * width)
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=9 * 1024)
    task.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=9 * 32)
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=3, WEIGHT_HEIGHT=3, WEIGHT_KERNELS=32)
    task.set("CNA", "CBUF_CON0", DATA_BANK=2, WEIGHT_BANK=1)
    task.set("CNA", "PAD_CON0", PAD_TOP=int(first == 0), PAD_LEFT=1)
    task.set("CNA", "DMA_CON2", SURF_STRIDE=area - 4 * width)
    task.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=count - 1, DATAOUT_WIDTH=width - 1)
    task.set("DPU", "DST_BASE_ADDR", DST_BASE_ADDR=target // ATOM + first * width)
    task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=area)
    task.set("DPU", "SURFACE_ADD", SURF_ADD=2 * area)
    task.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=count - 1)
    task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=count - 1, WIDTH_WDMA=width - 1)
    return task


@dataclass
class Network:
    """Layers of equal size in the memory of a driver.

    Parameters
    ----------
    driver
        Driver of an engine or of the golden model.
    cuts
        First row after each core's part, of every layer; the last one is the height.
    layers
        Number of layers.
    """

    driver: Driver
    cuts: tuple[int, ...]
    layers: int
    width: int = 12
    seed: int = 1
    weights: list[NDArray[np.int8]] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.image = rng.integers(-128, 128, (CHANNELS, self.height, self.width)).astype(np.int8)
        shape = (CHANNELS, CHANNELS, 3, 3)
        self.weights = [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(self.layers)]
        size = self.image.size
        self.tensors = [self.driver.alloc(size, f"tensor {n}") for n in range(self.layers + 1)]
        self.tensors[0].write(pack_feature(self.image))
        for tensor in self.tensors[1:]:
            tensor.write(rng.integers(0, 256, size, np.uint8))
        self.packed = [self.driver.alloc(w.size, f"weights {n}") for n, w in enumerate(self.weights)]
        for buffer, values in zip(self.packed, self.weights, strict=True):
            buffer.write(pack_weights(values))
        self.scratch = self.driver.alloc(1 << 12, "scratch")

    @property
    def height(self) -> int:
        """Rows of the tensors."""
        return self.cuts[-1]

    @property
    def cores(self) -> int:
        """Number of cores that work together."""
        return len(self.cuts)

    def part(self, layer: int, core: int, mode: int) -> TaskBuilder:
        """Return a core's rows of a layer."""
        first = self.cuts[core - 1] if core else 0
        return self.rows(layer, (first, self.cuts[core]), mode)

    def whole(self, layer: int) -> TaskBuilder:
        """Return a layer that only one core has."""
        return self.rows(layer, (0, self.height), 0)

    def rows(self, layer: int, rows: tuple[int, int], mode: int) -> TaskBuilder:
        """Return rows [first, end) of a layer."""
        places = self.tensors[layer].iova, self.packed[layer].iova, self.tensors[layer + 1].iova
        return part_task(*places, (self.height, self.width), rows, mode)

    def pool(self, core: int) -> TaskBuilder:
        """Return a pooling task over scratch memory, like those after co-working layers in vendor lists."""
        place = self.scratch.iova + 1024 * core
        return pool_task(place, place + 512, 2, 2)

    def job(self, chains: list[list[TaskBuilder]], **more: int) -> Job:
        """Return one job with a linked chain for each core."""
        records: list[Task] = []
        ranges = {}
        for core, chain in enumerate(chains):
            commands = self.driver.alloc(task_list_bytes(chain), f"commands {core}")
            placed = build_task_list(chain, commands.iova)
            commands.write(placed.data)
            ranges[core] = (len(records), len(chain))
            records += [Task.of_entry(entry) for entry in placed.tasks]
        return Job(records, core_mask=(1 << len(chains)) - 1, ranges=ranges, **more)

    def expected(self) -> list[NDArray[np.int8]]:
        """Return every expected tensor."""
        out = [self.image]
        for weights in self.weights:
            out.append(layer_of(out[-1], weights))
        return out

    def found(self) -> list[NDArray[np.int8]]:
        """Return every tensor in memory."""
        return [unpack_feature(t.view().view(np.uint8), self.image.shape, np.int8) for t in self.tensors]

    def wrong(self) -> list[int]:
        """Return the tensors that are wrong."""
        pairs = zip(self.found(), self.expected(), strict=True)
        return [n for n, (found, expected) in enumerate(pairs) if (found != expected).any()]
