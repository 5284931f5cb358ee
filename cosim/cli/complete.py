"""Words that the shell may complete after an option.

Completion runs at every press of a key, so nothing heavy is imported: the names of groups stand here
again, and a test compares them with `cosim.conformance.groups`.
"""

from __future__ import annotations

import os

ENGINES = {
    "verilator": "compiled, the fastest",
    "cxxrtl": "compiled without Verilator",
    "amaranth": "Amaranth's simulator, slow",
    "golden": "the numpy model, no cycles",
}

GROUPS = (
    "conv int8, conv int4, conv int16, conv fp16, conv bf16, conv tf32, depthwise int8, depthwise int16, "
    "depthwise fp16, depthwise bf16, argb int8, argb 16 bit, deconvolution, matrix, dilation, large kernels, "
    "large maps, streamed weights, weight reuse, data reuse, row tiles, kernel tiles, flying integers, "
    "flying int4, flying floats, ew integers@ registers, ew integers@ memory, ew floats@ registers, "
    "ew floats@ memory, residual in two streams, lut integers, lut floats, integers to floats, "
    "integers to integers, floats to integers, floats to floats, padded channels, matrix output, "
    "packets, packets of convolutions, unpooling, pool int8, pool int16, pool fp16, pool limits, "
    "pool index, dpu to ppu, slave mode, chains, field limits, registers, reserved fields, "
    "contradictory sizes, reserved codes, contradictions, "
    "hangs, waits, writer waits, unmapped addresses, malformed lists"
)
"""Names of the groups of conformance; @ stands for a comma within a name."""


def engines(incomplete: str) -> list[tuple[str, str]]:
    """Engines, each with a few words about it."""
    return [(name, text) for name, text in ENGINES.items() if name.startswith(incomplete)]


DRAM = (
    "peak_bytes_per_cycle",
    "efficiency",
    "port_bytes_per_cycle",
    "read_latency",
    "write_latency",
    "jitter",
    "read_outstanding",
    "write_outstanding",
    "client_read_outstanding",
    "client_write_outstanding",
    "seed",
    "fault_read",
    "fault_write",
)
"""Settings of the memory's timing (`cosim.engines.library.DramConfig`)."""


def dram(incomplete: str) -> list[str]:
    """Settings of the memory; their values follow."""
    return [f"{name}=" for name in DRAM if name.startswith(incomplete)]


def group_names() -> list[str]:
    """Groups of conformance, in their order."""
    return [name.replace("@", ",") for name in GROUPS.split(", ")]


def groups(incomplete: str) -> list[str]:
    """Groups of conformance; bash inserts a name as it is, so blanks in it are escaped there."""
    in_bash = os.environ.get("_RKCOSIM_COMPLETE", "").endswith("bash")
    names = [name.replace(" ", "\\ ") if in_bash else name for name in group_names()]
    return [name for name in names if name.startswith(incomplete)]


def diagnostic_modes(incomplete: str) -> list[str]:
    """What a run does on a diagnostic."""
    mode = "go\\ on" if os.environ.get("_RKCOSIM_COMPLETE", "").endswith("bash") else "go on"
    return [text for text in ("stop", mode) if text.startswith(incomplete)]


def references(incomplete: str) -> list[str]:
    """Runtimes to compare with."""
    return [name for name in ("litert", "onnxruntime") if name.startswith(incomplete)]


def formats(incomplete: str) -> list[str]:
    """Formats of waveforms."""
    return [name for name in ("vcd", "fst") if name.startswith(incomplete)]
