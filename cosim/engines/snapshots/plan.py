"""Snapshots for the next engine that is opened: one to resume, some to save."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rkcosim.engines.protocol import SnapshotError
from rkcosim.engines.snapshots.contents import read_snapshot
from rkcosim.engines.snapshots.file import SnapshotFile
from rkcosim.engines.snapshots.orders import Border, SaveOrder, SnapshotTaken
from rkcosim.engines.snapshots.state import Snapshots


@dataclass
class SnapshotPlan:
    """The snapshots of the next engine that is opened: one to resume, some to save.

    Members
    -------
    resume : the snapshot to resume, or None.
    saves : orders for new ones.
    traced : True if the build that can write waveforms must be used.
    snapshots : the snapshots of the engine (`Snapshots.engine`), once it is open.
    """

    resume: SnapshotFile | None = None
    saves: list[SaveOrder] = field(default_factory=list)
    traced: bool = False
    snapshots: Snapshots | None = None

    def carry_out(self, snapshots: Snapshots) -> None:
        """Set up an engine that was just opened."""
        self.snapshots = snapshots
        if not (self.resume or self.saves):
            return
        snapshots.savable()
        snapshots.remember_host(for_orders=True)
        for order in self.saves:
            snapshots.order(order)
        if self.resume is not None:
            snapshots.restore(self.resume, replay=True)

    def finish(self) -> None:
        """Check that the run reached the point at which it was to be resumed.

        Raises
        ------
        SnapshotError
            if it ended before.
        """
        log = self.snapshots.log if self.snapshots is not None else None
        behind = self.snapshots is None or (log is not None and log.replaying)
        if self.resume is not None and behind:
            raise SnapshotError(
                f"{self.resume.path}: the run ended before cycle {self.resume.header['cycle']:,}, at which "
                "it was to be resumed"
            )


_plan: ContextVar[SnapshotPlan | None] = ContextVar("rkcosim_snapshots", default=None)


@contextmanager
def planned(
    *,
    resume: str | Path | SnapshotFile | None = None,
    saves: list[SaveOrder] | None = None,
    traced: bool = False,
) -> Iterator[SnapshotPlan]:
    """The first engine that is opened within the `with` block resumes `resume` and carries out `saves`.

    The program in the block must be that of the saved run: it runs from its start, and its accesses are
    answered from the log until it reaches the point at which the snapshot was taken.

    Parameters
    ----------
    traced : load the build that can write waveforms, so that runs resumed from `saves` can write them.

    Raises
    ------
    SnapshotError
        for a file that cannot be used, or if the program differs.
    """
    file = resume
    if file is not None and not isinstance(file, SnapshotFile):
        file = read_snapshot(Path(file))
    traced = traced or (file is not None and "traced" in file.header["variant"])
    plan = SnapshotPlan(file, list(saves or []), traced)
    token = _plan.set(plan)
    try:
        try:
            yield plan
        except SystemExit:  # the regular end of the command
            plan.finish()
            raise
        plan.finish()
    finally:
        _plan.reset(token)


@contextmanager
def saving(
    path: str | Path, at: str | Border, *, stop: bool = False, traced: bool = False
) -> Iterator[SaveOrder]:
    """The first engine that is opened within the `with` block is saved when its run reaches a border.

    Parameters
    ----------
    at : see `Border.parse`.
    stop : True if the block ends there.
    traced : see `planned`.

    Yields
    ------
    The order; its `taken` is set when the snapshot was saved.
    """
    order = SaveOrder(Path(path), at if isinstance(at, Border) else Border.parse(at), stop)
    try:
        with planned(saves=[order], traced=traced):
            yield order
    except SnapshotTaken as taken:
        if taken.order is not order:
            raise


def resuming(path: str | Path) -> AbstractContextManager[SnapshotPlan]:
    """The first engine that is opened within the `with` block resumes a snapshot; see `planned`."""
    return planned(resume=path)


def take_plan() -> SnapshotPlan:
    """Return the plan for the engine that is being opened; engines opened later get none."""
    plan = _plan.get()
    _plan.set(None)
    return plan if plan is not None else SnapshotPlan()


def json_of(order: SaveOrder) -> dict[str, Any]:
    """Return the JSON form of a saved snapshot, as in `rkcosim run --json`."""
    assert order.taken is not None
    info = order.taken
    return {"path": str(order.path), "at": order.at.text, "cycle": info.cycle, "bytes": info.size}
