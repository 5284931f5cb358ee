"""The same model under other memory, clocks, cores and splits of CBUF."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from cosim.engines.library import DramConfig
from cosim.perf.estimator.estimate import Estimate, estimate_model
from sw.compiler import CompiledModel, compile_model
from sw.compiler.tiling import BANKS, fixed_weight_banks

TRANSFER_BYTES = 8
"""Bytes of a transfer of the RK3588's four 16-bit channels together (HARDWARE 8)."""
REACHED = 0.7
"""Share of the transfers that the vendor's own estimate counts with: 23.65 of 33.8 GB/s (HARDWARE 9.6)."""
CLOCK_MHZ = 1000.0
"""The clock of which one cycle is a nanosecond: the DRAM model's figures are given at it."""
CLOCKS = (200.0, 600.0, 800.0, 1000.0)
SPLITS = (2, 4, 6, 8, 10)
"""Banks of weights that are tried."""


class SpeedError(ValueError):
    """A DRAM speed or clock that makes no sense."""


def parse_speed(text: str) -> float:
    """Bytes a nanosecond that are reached, of `4224MT/s` or `23.65GB/s`.

    Raises
    ------
    SpeedError
        for other text, or a speed out of range.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(MT/s|GB/s)\s*", text, re.IGNORECASE)
    if found is None:
        raise SpeedError(f"DRAM speed must be as 4224MT/s or 23.65GB/s, not {text!r}")
    value = float(found[1])
    speed = value * TRANSFER_BYTES * REACHED / 1000 if found[2].lower() == "mt/s" else value
    if not 0.1 <= speed <= 1000:
        raise SpeedError(f"DRAM speed must be 0.1 to 1000 GB/s, {text!r} is {speed:g}")
    return speed


def memory_at(clock_mhz: float, speed: float | None = None) -> DramConfig:
    """Memory timing in cycles of a clock; DRAM's own time stays, `speed` is GB/s (None: the default's).

    Raises
    ------
    SpeedError
        for a clock out of range.
    """
    if not 10 <= clock_mhz <= 5000:
        raise SpeedError(f"the clock must be 10 to 5000 MHz, not {clock_mhz:g}")
    base = DramConfig()
    ratio = clock_mhz / CLOCK_MHZ
    return replace(
        base,
        peak_bytes_per_cycle=(base.peak_bytes_per_cycle if speed is None else speed) / ratio,
        read_latency=max(round(base.read_latency * ratio), 1),
        write_latency=max(round(base.write_latency * ratio), 1),
    )


@dataclass(frozen=True)
class Variant:
    """A row of the table: `group` of alternatives, what is different, its time, and what there is to say."""

    group: str
    name: str
    cycles: int
    milliseconds: float
    note: str = ""


def variants(
    model: bytes,
    clock_mhz: float,
    speed: float | None,
    cores: int,
    now: Estimate,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Variant]:
    """All alternatives to an estimate of a model's file."""
    compiled = compile_model(model, cores=cores)
    dram = memory_at(clock_mhz, speed)

    def row(group: str, name: str, estimate: Estimate, clock: float = clock_mhz, note: str = "") -> Variant:
        return Variant(group, name, estimate.cycles, estimate.cycles / clock / 1000, note)

    for times, name in ((0.5, "halved"), (0.75, "three quarters"), (2.0, "doubled")):
        other = replace(dram, peak_bytes_per_cycle=dram.peak_bytes_per_cycle * times)
        reached = other.peak_bytes_per_cycle * clock_mhz / CLOCK_MHZ
        yield row("bandwidth", f"{name}, {reached:.3g} GB/s", estimate_model(compiled, dram=other))
    latency = replace(dram, read_latency=2 * dram.read_latency, write_latency=2 * dram.write_latency)
    yield row("bandwidth", "latency doubled", estimate_model(compiled, dram=latency))
    for clock in CLOCKS:
        if clock != clock_mhz:
            found = estimate_model(compiled, dram=memory_at(clock, speed))
            yield row("clock", f"{clock:g} MHz", found, clock)
    if _is_container(model):
        return  # it has been compiled for its cores and splits
    for count in (1, 2, 3):
        if count != cores:
            say(f"compiling for {count} cores")
            found = estimate_model(compile_model(model, cores=count), dram=dram)
            yield row("cores", f"{count} core{'s' if count > 1 else ''}", found)
    yield from _splits(model, cores, now, dram, row, say)


def _splits(
    model: bytes,
    cores: int,
    now: Estimate,
    dram: DramConfig,
    row: Callable[..., Variant],
    say: Callable[[str], None],
) -> Iterator[Variant]:
    """Every convolution with the same banks of weights, where it fits them; and each with its best."""
    best = {layer.index: layer.cycles for layer in now.layers if layer.cycles is not None}
    for weights in SPLITS:
        say(f"compiling with {weights} banks of weights")
        with fixed_weight_banks(weights):
            compiled: CompiledModel = compile_model(model, cores=cores)
        found = estimate_model(compiled, dram=dram)
        tiles = compiled.plan.tiles
        fits = sum(all(tile.weight_banks == weights for tile in of) for of in tiles.values())
        yield row(
            "CBUF banks",
            f"{BANKS - weights} of features, {weights} of weights",
            found,
            note=f"{fits} of {len(tiles)} convolutions fit it",
        )
        for layer in found.layers:
            if layer.cycles is not None and layer.index in best:
                best[layer.index] = min(best[layer.index], layer.cycles)
    gain = sum(layer.cycles - best[layer.index] for layer in now.layers if layer.cycles is not None)
    yield row("CBUF banks", "best of these for each layer", replace(now, cycles=now.cycles - gain))


def _is_container(model: bytes) -> bool:
    from sw.compiler.container import is_container

    return is_container(model)
