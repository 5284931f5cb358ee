"""Names of what the decoders look at, and what the bits and numbers on those pins mean.

The hardware's own tables are in `rtl.core` and `rtl.layouts`, which import Amaranth; reading a waveform
must not need that, so they are repeated here and tests/unit/test_waves_pins.py holds them together.
"""

from __future__ import annotations

EVENTS = (
    "task_start",
    "task_done",
    "mac_slot",
    "mac_real",
    "stall_feature",
    "stall_weight",
    "stall_acc",
    "dpu_octet",
    "ppu_atom",
    "stripe",
    "stall_dpu",
    "stall_write",
)
"""Bits of a core's `events` port, from bit 0 up (`rtl.core.EVENTS`)."""

STALLS = {
    "stall_feature": "CNA waits for features",
    "stall_weight": "CNA waits for weights",
    "stall_acc": "CORE's accumulators are full",
    "stall_dpu": "CORE has results that the DPU does not take",
    "stall_write": "the writer of the DPU or PPU waits for the DMA",
}
"""What each stall bit of `events` says."""

READ_CLIENTS = ("FEATURE", "WEIGHT", "MRDMA", "BRDMA", "NRDMA", "ERDMA", "PPU", "PC")
"""By AXI read id (`rtl.layouts.ReadClient`)."""

WRITE_CLIENTS = ("DPU", "PPU")
"""By AXI write id (`rtl.layouts.WriteClient`)."""

DIAGNOSTICS = (
    "NONE",
    "UNKNOWN_WRITE",
    "BANK_SUM",
    "FEATURE_FOOTPRINT",
    "WEIGHT_FOOTPRINT",
    "RESERVED_MODE",
    "UNALIGNED_ADDRESS",
    "SIZE_MISMATCH",
    "WRONG_CORE",
    "READ_ERROR",
    "WRITE_ERROR",
    "UNDECODED_ACCESS",
    "BAD_COMMAND",
    "EMPTY_SIZE",
    "REUSE_FOOTPRINT",
)
"""By code (`rtl.layouts.DiagnosticCode`)."""

BEAT_BYTES = 32
"""Bytes of a beat of the AXI data bus."""

CORES = 3
"""Cores of the chip: scopes `core0` to `core2` of a waveform."""


def event_bit(name: str) -> int:
    """Mask of an event in the `events` port."""
    return 1 << EVENTS.index(name)


def client_name(ident: int, *, write: bool) -> str:
    """Name of an AXI client, `id n` for one that is not known."""
    names = WRITE_CLIENTS if write else READ_CLIENTS
    return names[ident] if ident < len(names) else f"id {ident}"


def diagnostic_name(code: int) -> str:
    """Name of a diagnostic code, `CODE_n` for one that is not known."""
    return DIAGNOSTICS[code] if code < len(DIAGNOSTICS) else f"CODE_{code}"
