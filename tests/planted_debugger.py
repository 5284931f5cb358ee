"""A debugger on an RTL with a planted fault; only for processes of their own, because the fault stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.proofs.faults import plant
from tools.proofs.plan import Fault

if TYPE_CHECKING:
    from rkcosim.debug.rtl.session import RtlSession


def planted_session(path: Path) -> RtlSession:
    """Open a model or stream on an RTL whose output converter makes 10 of 9; builds it first."""
    plant(
        Fault("rkcosim.rtl.npu.dpu_cvt", "rounded + after)", "rounded + after + (rounded == 9))", "10 for 9")
    )

    # The RTL is imported behind the fault.
    from rkcosim.debug.opening import open_debugged
    from rkcosim.debug.rtl.session import RtlSession
    from rkcosim.engines.engine import open_engine
    from rkcosim.rtl.core import NpuCore
    from rkcosim.spec.config import RK3588

    def design(*, external_cell: bool) -> NpuCore:
        return NpuCore(RK3588, external_cell=external_cell)

    def opener(name: str | None, **settings: Any) -> Any:
        return open_engine(name, design=design, **settings)

    return RtlSession(open_debugged(path), opener=opener)
