"""Estimates of the same model with other memory, clocks, cores and divisions of CBUF, and on larger NPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rkcosim.base.files import is_container
from rkcosim.compiler.batch import BatchModel
from rkcosim.compiler.tiling import BANKS, banks_of, fixed_weight_banks
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.estimator.estimate import Estimate, estimate_model
from rkcosim.measure.perf.estimator.hardware import Hardware
from rkcosim.measure.perf.page import read_stored
from rkcosim.rknn_file import is_rknn
from rkcosim.rknn_file.opening import open_model
from rkcosim.spec.types import BANK_BYTES

TRANSFER_BYTES = 8
"""Bytes per transfer of the RK3588's four 16-bit channels together [HW 11]."""
REACHED = 0.7
"""Share of the transfer rate that the vendor's estimate assumes: 23.65 of 33.8 GB/s [HW 12.6]."""
CLOCK_MHZ = 1000.0
"""The clock at which a cycle is one nanosecond; the DRAM model's figures are given for it."""
JUDGED = Path(__file__).with_name("whatif.json")
"""How far rows are from the RTL with the change; written by `python -m benchmarks.rtl_changes`."""
CORES = 3
"""Cores of the RK3588's NPU."""
TWICE = Hardware(array=2, tables=2, lanes=2)
PARTS = {
    "array: 2 weight tiles a cycle (2048 MACs of int8)": Hardware(array=2),
    "tables: 4 elements a cycle": Hardware(tables=2),
    "CORE and DPU: 16 elements a cycle": Hardware(lanes=2),
    "array, tables, CORE and DPU twice": TWICE,
}
"""Larger NPUs by the names of their rows."""
CBUF_TWICE = "CBUF: 768 KiB (12 banks of 64 KiB)"
ALL_TWICE = "all of these and the bandwidth twice"
CLOCKS = (200.0, 600.0, 800.0, 1000.0)
SPLITS = (2, 4, 6, 8, 10)
"""Numbers of banks for weights that are tried."""


def said_judgement() -> str:
    """Return in words how far the rows are from the RTL with the change."""
    found = read_stored(JUDGED, 1, "write it again: python -m benchmarks.rtl_changes")
    return (
        f"these rows against the RTL with the change: at most {found['largest']:.2%} apart in "
        f"{found['count']} runs (memory, cores, CBUF, tables); there is no RTL of a larger array or DPU, or "
        "of more than 3 cores"
    )


class SpeedError(ValueError):
    """The DRAM speed or clock is malformed or out of range."""


def parse_speed(text: str) -> float:
    """Return the reached bytes per nanosecond for a text such as `4224MT/s` or `23.65GB/s`.

    Raises
    ------
    SpeedError
        If the text has another form, or the speed is out of range.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(MT/s|GB/s)\s*", text, re.IGNORECASE)
    if found is None:
        raise SpeedError(f"a DRAM speed has the form 4224MT/s or 23.65GB/s, not {text!r}")
    value = float(found[1])
    speed = value * TRANSFER_BYTES * REACHED / 1000 if found[2].lower() == "mt/s" else value
    if not 0.1 <= speed <= 1000:
        raise SpeedError(f"the DRAM speed must be 0.1 to 1000 GB/s, but {text!r} is {speed:g}")
    return speed


def memory_at(clock_mhz: float, speed: float | None = None) -> DramConfig:
    """Return the memory timing in cycles of a clock; DRAM's time in seconds does not depend on the clock.

    Parameters
    ----------
    clock_mhz : clock of the NPU.
    speed : GB/s that all cores together reach; one core's limit is assumed to change in proportion.  None:
        the default.

    Raises
    ------
    SpeedError
        If the clock is out of range.
    """
    base = DramConfig()
    if speed is not None:
        base = base.faster(speed / base.peak_bytes_per_cycle)
    return at_clock(base, clock_mhz)


def at_clock(memory: DramConfig | None, clock_mhz: float) -> DramConfig:
    """Return a memory timing that is given in cycles of 1 GHz (None: the default) in cycles of a clock.

    Raises
    ------
    SpeedError
        If the clock is out of range.
    """
    if not isinstance(clock_mhz, int | float) or not 10 <= clock_mhz <= 5000:
        raise SpeedError(f"the clock must be 10 to 5000 MHz, not {clock_mhz!r}")
    return (memory or DramConfig()).at_clock(clock_mhz / CLOCK_MHZ)


@dataclass(frozen=True)
class Variant:
    """A row of the table: `group` of alternatives, the difference, its time, and a note."""

    group: str
    name: str
    cycles: int
    milliseconds: float
    note: str = ""


def variants(
    model: bytes,
    clock_mhz: float,
    memory: DramConfig | None,
    cores: int,
    now: Estimate,
) -> Iterator[Variant]:
    """Yield all alternatives to an estimate of a model's file; `memory` is in cycles of 1 GHz."""
    compiled = open_model(model, cores=cores)
    dram = at_clock(memory, clock_mhz)

    def row(group: str, name: str, estimate: Estimate, clock: float = clock_mhz, note: str = "") -> Variant:
        return Variant(group, name, estimate.cycles, estimate.cycles / clock / 1000, note)

    for times, name in ((0.5, "halved"), (0.75, "three quarters"), (2.0, "doubled")):
        other = dram.faster(times)
        reached = other.bandwidth(cores) * clock_mhz / CLOCK_MHZ
        yield row("bandwidth", f"{name}, {reached:.3g} GB/s", estimate_model(compiled, dram=other))
    latency = replace(dram, read_latency=2 * dram.read_latency, write_latency=2 * dram.write_latency)
    yield row("bandwidth", "latency doubled", estimate_model(compiled, dram=latency))
    for clock in CLOCKS:
        if clock != clock_mhz:
            found = estimate_model(compiled, dram=at_clock(memory, clock))
            yield row("clock", f"{clock:g} MHz", found, clock)
    for name, hardware in PARTS.items():
        yield row("parts", name, estimate_model(compiled, dram=dram, hardware=hardware))
    if is_container(model) or is_rknn(model):
        return  # the number of cores and the division of CBUF of a compiled model are fixed
    with banks_of(2 * BANK_BYTES):
        larger = open_model(model, cores=cores)
        yield row("parts", CBUF_TWICE, estimate_model(larger, dram=dram))
        yield row("parts", ALL_TWICE, estimate_model(larger, dram=dram.faster(2.0), hardware=TWICE))
    if cores == 1 and not isinstance(compiled, BatchModel):
        for copies in (CORES, 2 * CORES):
            found = estimate_model(compiled, dram=dram, copies=copies)
            each = replace(found, cycles=round(found.cycles / copies))
            yield row("together", f"{copies} inferences on {copies} cores, time divided by {copies}", each)
    for count in (1, 2, 3):
        if count != cores:
            found = estimate_model(open_model(model, cores=count), dram=dram)
            yield row("cores", f"{count} core{'s' if count > 1 else ''}", found)
    yield from _splits(model, cores, now, dram, row)


def _splits(
    model: bytes,
    cores: int,
    now: Estimate,
    dram: DramConfig,
    row: Callable[..., Variant],
) -> Iterator[Variant]:
    """Yield every convolution with the same number of banks for weights if possible; and the best of each."""
    best = {layer.index: layer.cycles for layer in now.layers if layer.cycles is not None}
    for weights in SPLITS:
        with fixed_weight_banks(weights):
            compiled = open_model(model, cores=cores)
        found = estimate_model(compiled, dram=dram)
        tiles = compiled.plan.tiles
        fits = sum(all(tile.weight_banks == weights for tile in of) for of in tiles.values())
        yield row(
            "CBUF banks",
            f"{BANKS - weights} for features, {weights} for weights",
            found,
            note=f"{fits} of {len(tiles)} convolutions fit it",
        )
        for layer in found.layers:
            if layer.cycles is not None and layer.index in best:
                best[layer.index] = min(best[layer.index], layer.cycles)
    gain = sum(layer.cycles - best[layer.index] for layer in now.layers if layer.cycles is not None)
    fewer = now.cycles - gain * now.samples
    yield row("CBUF banks", "best of these for each layer", replace(now, cycles=fewer))
