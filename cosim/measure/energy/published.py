"""The only public figures of power: text generation by language models, beside the energy of their weights.

invisiofficial/rk-llama.cpp, ggml/src/ggml-rknpu2/README.md, commit 39bb8e9: `published.csv` has all rows
whose backend is the NPU.  The power is that of a board while it generates text, less that of the idle board:
NPU, DRAM, the processors that run the rest of the model, and losses of regulators.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass

from rkcosim.measure.energy.counts import ENTRY_BYTES, KERNELS, LayerCounts
from rkcosim.measure.energy.estimate import LayerEnergy, RunEnergy
from rkcosim.measure.energy.table import FOLDER, registers

TYPES: dict[str, dict[str, float]] = {
    "F16": {"mac_16": 1.0},
    "Q8_0": {"mac_int8": 1.0},
    "Q6_K": {"mac_int8": 0.5, "mac_int4": 0.5},
    "Q4_0": {"mac_int4": 1.0},
}
"""Type of the file -> kinds of products that the backend uses for it, with their shares."""

BITS = {"mac_16": 16, "mac_int8": 8, "mac_int4": 4}

CORES = 3
"""Cores that the backend uses."""

CLOCK_MHZ = 1000.0


@dataclass(frozen=True)
class PublishedPower:
    """A published measurement.

    Members
    -------
    model, type : the model and the type of its file.
    weights : weights that a token needs, as in the model's name.
    tokens_per_second : published rate of text generation with the NPU.
    npu_watts, cpu_watts : published power above idle, with the NPU and with the processors alone.
    error_watts : published error of `npu_watts`.
    """

    model: str
    weights: float
    type: str
    tokens_per_second: float
    npu_watts: float
    cpu_watts: float
    error_watts: float

    @property
    def bytes(self) -> float:
        """Bytes of the weights that a token needs."""
        return sum(self.weights * share * BITS[event] / 8 for event, share in TYPES[self.type].items())

    def energy(self) -> RunEnergy:
        """Estimate the energy of a token.

        The weights are read once from DRAM, written to CBUF, read from it and multiplied once; the cores are
        clocked for the whole published time.  Inputs, results and attention are left out.
        """
        cycles = round(CLOCK_MHZ * 1e6 / self.tokens_per_second)
        counts = LayerCounts("token", "decode", cycles)
        slots = self.bytes / ENTRY_BYTES  # 1 KB of weights for 16 slots, one of which has a pixel
        for event, share in TYPES[self.type].items():
            counts.add(event, "array", self.weights * share)
        counts.add("accumulate", "array", slots * KERNELS[1024])
        counts.add("cbuf_write", "CBUF", self.bytes)
        counts.add("cbuf_read", "CBUF", slots * 2 * ENTRY_BYTES)
        kind = "array of floats" if self.type == "F16" else "array of integers"
        counts.add("clock", "array", slots * registers()[kind])
        for block, parts in (("CNA", ("CNA",)), ("DPU", ("DPU",)), ("DMA", ("DMA", "PC"))):
            counts.add("clock", block, CORES * cycles * sum(registers()[part] for part in parts))
        counts.add("dma", "DMA", self.bytes)
        counts.add("dram", "DRAM", self.bytes)
        counts.add("static", "static", cycles * 1000 / CLOCK_MHZ)
        return RunEnergy(self.model, cycles, CLOCK_MHZ, [LayerEnergy(counts)])


def published() -> list[PublishedPower]:
    """Return the published measurements, in the order of the source."""
    with (FOLDER / "published.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        PublishedPower(
            row["model"],
            float(row["weights"]),
            row["type"],
            *(float(row[name]) for name in ("tokens_per_second", "npu_watts", "cpu_watts", "error_watts")),
        )
        for row in rows
    ]
