"""Versions of the Rocket uapi: the result of DRM_IOCTL_VERSION, and the differences.

The first is the driver in Linux; the others are the versions of the kernel patches for the library
rocket-userspace (facts from its sources and tests; the tables here are in our own words).
"""

from __future__ import annotations

from dataclasses import dataclass

JOB_BATCHED, JOB_NO_DPU_DONE, JOB_PPU_DONE = 1, 2, 4
"""Bits of a job's flags.

The tasks form a chain, run by one kick; a hint about the DPU's completion (RK3576); the end of the last task
is that of the PPU, not of the DPU.
"""

MOST_RANGES = 1024
"""Maximum number of ranges in one PREP_BO_RANGES or FINI_BO_RANGES."""


@dataclass(frozen=True)
class Interface:
    """One version.

    Members
    -------
    version : major, minor, patch level.
    extensible : larger structures are accepted if the unknown part is 0 (else E2BIG), and the error of a
        rejected job is that of the ioctl; before, the rest is ignored and errors are only logged.
    flags : bits that a job's flags may have; 0: jobs have no flags.
    ranges : whether PREP_BO_RANGES and FINI_BO_RANGES exist.
    """

    version: tuple[int, int, int]
    extensible: bool = True
    flags: int = 0
    ranges: bool = False


INTERFACES = {
    "0.0": Interface((0, 0, 0), extensible=False),
    "1.0": Interface((1, 0, 0)),
    "1.1": Interface((1, 1, 0), flags=JOB_BATCHED),
    "1.3": Interface((1, 3, 0), flags=JOB_BATCHED | JOB_NO_DPU_DONE | JOB_PPU_DONE),
    "1.5": Interface((1, 5, 0), flags=JOB_BATCHED | JOB_NO_DPU_DONE | JOB_PPU_DONE, ranges=True),
}
"""Versions by the name used in options."""

DEFAULT = "1.0"


def interface(name: str) -> Interface:
    """The version with a name.

    Raises
    ------
    ValueError
        For a name that is not in `INTERFACES`.
    """
    if name not in INTERFACES:
        raise ValueError(f"the Rocket interface must be one of {', '.join(INTERFACES)}, not {name}")
    return INTERFACES[name]
