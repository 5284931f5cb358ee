"""Geometry of one NPU core: parameters, and the values that follow from them.

The fields of `NpuConfig` are the parameters, its properties the derived values.  `RK3588` is the only
geometry for which results are reported; `SMALL` has a shallow CBUF and serves block tests.
"""

from __future__ import annotations

from dataclasses import dataclass

ATOM_BYTES = 16
"""Bytes of one atom: C2 channels of one pixel [HW 3.1]."""

ENTRY_BYTES = 64
"""Bytes of one CBUF entry, four atoms ([HW 4.4], [HW 13.2])."""

AXI_BYTES = 32
"""Bytes of one AXI data beat [HW 13.22]."""


@dataclass(frozen=True, kw_only=True)
class NpuConfig:
    """Parameters of the geometry of one core.

    Raises
    ------
    ValueError
        If two parameters contradict each other; the message has both numbers.
    """

    name: str
    cores: int = 3
    cbuf_banks: int = 12
    cbuf_bank_bytes: int = 32 * 1024
    stripe_pixels: int = 16
    """Output pixels of one stripe [HW 13.21]."""
    read_fifo_beats: int = 256
    """Beats that a streaming read client may have outstanding (covers the DRAM latency)."""
    write_outstanding: int = 15
    read_outstanding: int = 255
    floats: bool = True
    """Whether the core has floating-point arithmetic.  The NPU of the RK3588 has; without it a core is much
    smaller, and a task that uses a floating-point type raises the diagnostic NOT_BUILT."""

    def __post_init__(self) -> None:
        if self.cbuf_bank_bytes % (2 * ENTRY_BYTES):
            raise ValueError(
                f"cbuf_bank_bytes must be a multiple of {2 * ENTRY_BYTES}, not {self.cbuf_bank_bytes}"
            )
        if self.stripe_pixels != 16:
            raise ValueError(f"stripe_pixels must be 16, not {self.stripe_pixels}")

    @property
    def bank_entries(self) -> int:
        """64-byte entries of one CBUF bank (512 in the RK3588)."""
        return self.cbuf_bank_bytes // ENTRY_BYTES

    @property
    def cbuf_entries(self) -> int:
        """64-byte entries of the whole CBUF (6144 in the RK3588)."""
        return self.cbuf_banks * self.bank_entries

    @property
    def macs_int8(self) -> int:
        """int8 multiply-accumulates per cycle: 32 channels x 32 kernels."""
        return 32 * 32


RK3588 = NpuConfig(name="rk3588")
SMALL = NpuConfig(name="small", cbuf_bank_bytes=2 * 1024, read_fifo_beats=32)
