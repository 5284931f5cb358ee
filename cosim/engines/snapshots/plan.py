"""What the next engine that is opened has to do with snapshots: go on from one, save some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosim.engines.errors import SnapshotError
from cosim.engines.snapshots.file import SnapshotFile
from cosim.engines.snapshots.orders import Border, SaveOrder, SnapshotTaken
from cosim.engines.snapshots.state import SnapshotEngine


@dataclass
class SnapshotPlan:
    """What the next engine that is opened shall do: go on from a snapshot, save some.

    Members
    -------
    resume : the snapshot to go on from, or None.
    saves : orders for new ones.
    traced : whether it has to be the build that can write waveforms.
    engine : the engine, once it is open.
    """

    resume: SnapshotFile | None = None
    saves: list[SaveOrder] = field(default_factory=list)
    traced: bool = False
    engine: SnapshotEngine | None = None

    def carry_out(self, engine: SnapshotEngine) -> None:
        """Set up an engine that was just opened."""
        self.engine = engine
        if not (self.resume or self.saves):
            return
        engine._savable()
        engine.remember_host(for_orders=True)
        for order in self.saves:
            engine.order(order)
        if self.resume is not None:
            engine.restore(self.resume, replay=True)

    def finish(self) -> None:
        """See that the run came to where it was to go on from.

        Raises
        ------
        SnapshotError
            if it has ended before.
        """
        log = self.engine._log if self.engine is not None else None
        behind = self.engine is None or (log is not None and log.replaying)
        if self.resume is not None and behind:
            raise SnapshotError(
                f"{self.resume.path}: the run has ended before cycle {self.resume.header['cycle']:,}, from "
                "which it was to go on"
            )


_plan: ContextVar[SnapshotPlan | None] = ContextVar("rkcosim_snapshots", default=None)


@contextmanager
def planned(
    *,
    resume: str | Path | SnapshotFile | None = None,
    saves: list[SaveOrder] | None = None,
    traced: bool = False,
) -> Iterator[SnapshotPlan]:
    """The first engine that is opened within the `with` block goes on from `resume` and saves `saves`.

    The program in the block is the same as that of the run that was saved: it runs from its start, and is
    told what happened until it comes to where the snapshot was taken.

    Parameters
    ----------
    traced : load the build that can write waveforms, so that a run that goes on from `saves` can.

    Raises
    ------
    SnapshotError
        for a file that cannot be used, or a program that is another one.
    """
    file = resume
    if file is not None and not isinstance(file, SnapshotFile):
        file = SnapshotFile.read(Path(file))
    traced = traced or (file is not None and "traced" in file.header["variant"])
    plan = SnapshotPlan(file, list(saves or []), traced)
    token = _plan.set(plan)
    try:
        try:
            yield plan
        except SystemExit:  # the command's own end
            plan.finish()
            raise
        plan.finish()
    finally:
        _plan.reset(token)


@contextmanager
def saving(
    path: str | Path, at: str | Border, *, stop: bool = False, traced: bool = False
) -> Iterator[SaveOrder]:
    """The first engine that is opened within the `with` block is saved when its run comes to a border.

    Parameters
    ----------
    at : see `Border.parse`.
    stop : the block ends there.
    traced : see `planned`.

    Returns
    -------
    The order; its `taken` says whether it has happened.
    """
    order = SaveOrder(Path(path), at if isinstance(at, Border) else Border.parse(at), stop)
    try:
        with planned(saves=[order], traced=traced):
            yield order
    except SnapshotTaken as taken:
        if taken.order is not order:
            raise


def resuming(path: str | Path) -> AbstractContextManager[SnapshotPlan]:
    """The first engine that is opened within the `with` block goes on from a snapshot; see `planned`."""
    return planned(resume=path)


def take_plan() -> SnapshotPlan:
    """What the engine that is being opened shall do; nothing for those after it."""
    plan = _plan.get()
    _plan.set(None)
    return plan if plan is not None else SnapshotPlan()


def json_of(order: SaveOrder) -> dict[str, Any]:
    """A snapshot that was taken, as `rkcosim run --json` has it."""
    assert order.taken is not None
    info = order.taken
    return {"path": str(order.path), "at": order.at.text, "cycle": info.cycle, "bytes": info.size}
