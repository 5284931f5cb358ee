"""Names of the AXI clients and of the diagnostics of a core, by the numbers at its ports.

The same tables as types of Amaranth are in `rkcosim.rtl.layouts`; programs that run an engine or read a
waveform do without Amaranth, so the names are here as well;
tests/unit/test_waves_decode.py compares them.
"""

from __future__ import annotations

READ_CLIENTS = ("FEATURE", "WEIGHT", "MRDMA", "BRDMA", "NRDMA", "ERDMA", "PPU", "PC")
"""Clients by AXI read id (`rkcosim.rtl.layouts.ReadClient`)."""

WRITE_CLIENTS = ("DPU", "PPU")
"""Clients by AXI write id (`rkcosim.rtl.layouts.WriteClient`)."""

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
    "WEIGHT_CODE",
    "CORE_MISSING",
    "NOT_BUILT",
)
"""Diagnostics by code (`rkcosim.rtl.layouts.DiagnosticCode`)."""


def client_name(ident: int, *, write: bool) -> str:
    """Return the name of an AXI client, `id n` for an unknown one."""
    names = WRITE_CLIENTS if write else READ_CLIENTS
    return names[ident] if ident < len(names) else f"id {ident}"


def diagnostic_name(code: int) -> str:
    """Return the name of a diagnostic code, `CODE_n` for an unknown one."""
    return DIAGNOSTICS[code] if code < len(DIAGNOSTICS) else f"CODE_{code}"
