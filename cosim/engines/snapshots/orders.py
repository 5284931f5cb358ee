"""Borders between tasks, and orders to save a snapshot there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Border:
    """A border between tasks, where a run is saved.

    Members
    -------
    text : as it was written.
    job : number of the kick, from 0 over all cores; None: the first that has such a border.
    tasks : tasks of the job that have ended; None: all of them, and the interrupt line is up.
    layer : name of the layer whose first task is next, in place of `tasks`.
    """

    text: str
    job: int | None = None
    tasks: int | None = None
    layer: str = ""

    @classmethod
    def parse(cls, text: str) -> Border:
        """Read `task:N` or `task:N@JOB` (before task N, so after N tasks), `layer:NAME` (before it), `job` or
        `job:N` (its end).

        Raises
        ------
        ValueError
            says what is possible.
        """
        text = text.strip()
        if found := re.fullmatch(r"task:(\d+)(?:@(\d+))?", text):
            return cls(text, None if found[2] is None else int(found[2]), int(found[1]))
        if text.startswith("layer:") and len(text) > len("layer:"):
            return cls(text, layer=text.removeprefix("layer:"))
        if found := re.fullmatch(r"job(?::(\d+))?", text):
            return cls(text, None if found[1] is None else int(found[1]))
        raise ValueError(
            f"'{text}' is no border between tasks; it is task:N or task:N@JOB (before task N of a job), "
            "layer:NAME (before it), job or job:N (its end)"
        )


@dataclass
class SaveOrder:
    """A snapshot to come.

    Members
    -------
    path : the file.
    at : where.
    stop : whether the run ends there, with `SnapshotTaken`.
    facts : goes into the header under "run".
    blocks : goes into the file under these names.
    taken : what became of it.
    """

    path: Path
    at: Border
    stop: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    blocks: Mapping[str, bytes] = field(default_factory=dict)
    taken: SnapshotInfo | None = None


@dataclass(frozen=True)
class SnapshotInfo:
    """What was saved: the file, its bytes, the engine's cycle, and the seconds that it took."""

    path: Path
    size: int
    cycle: int
    seconds: float


class SnapshotTaken(BaseException):
    """A run has ended because its snapshot was taken and no more was wanted.

    As KeyboardInterrupt no `Exception`, so that nobody on the way takes it for a fault of the device.
    """

    def __init__(self, order: SaveOrder) -> None:
        assert order.taken is not None
        self.order, self.info = order, order.taken
        super().__init__(f"saved {order.at.text} in {order.path}, cycle {self.info.cycle:,}")
