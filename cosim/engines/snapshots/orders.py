"""Borders between tasks, and orders to save a snapshot there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Border:
    """A border between tasks at which a run is saved.

    Members
    -------
    text : the text that was parsed.
    job : number of the kick, counted from 0 over all cores; None: the first one with such a border.
    tasks : number of tasks of the job that have ended; None: all of them, and the interrupt line is high.
    layer : name of the layer whose first task is next; used instead of `tasks`.
    """

    text: str
    job: int | None = None
    tasks: int | None = None
    layer: str = ""

    @classmethod
    def parse(cls, text: str) -> Border:
        """Parse a border.

        It is `task:N` or `task:N@JOB` (before task N, so after N tasks), `layer:NAME` (before the layer),
        `job` or `job:N` (its end).

        Raises
        ------
        ValueError
            lists the possible forms.
        """
        text = text.strip()
        if found := re.fullmatch(r"task:(\d+)(?:@(\d+))?", text):
            return cls(text, None if found[2] is None else int(found[2]), int(found[1]))
        if text.startswith("layer:") and len(text) > len("layer:"):
            return cls(text, layer=text.removeprefix("layer:"))
        if found := re.fullmatch(r"job(?::(\d+))?", text):
            return cls(text, None if found[1] is None else int(found[1]))
        raise ValueError(
            f"'{text}' is not a border between tasks; use task:N or task:N@JOB (before task N of a job), "
            "layer:NAME (before it), job or job:N (its end)"
        )


@dataclass
class SaveOrder:
    """An order to save a snapshot.

    Members
    -------
    path : the file.
    at : the border.
    stop : True if the run ends there, with `SnapshotTaken`.
    facts : stored in the header under "run".
    blocks : stored in the file under these names.
    taken : the saved snapshot, None before.
    """

    path: Path
    at: Border
    stop: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    blocks: Mapping[str, bytes] = field(default_factory=dict)
    taken: SnapshotInfo | None = None


@dataclass(frozen=True)
class SnapshotInfo:
    """A saved snapshot: the file, its bytes, the engine's cycle, and the seconds that saving took."""

    path: Path
    size: int
    cycle: int
    seconds: float


class SnapshotTaken(BaseException):
    """A run has ended because its snapshot was taken and nothing else was requested.

    Like KeyboardInterrupt it is not an `Exception`, so that no handler takes it for an error of the device.
    """

    def __init__(self, order: SaveOrder) -> None:
        assert order.taken is not None
        self.order, self.info = order, order.taken
        super().__init__(f"saved {order.at.text} in {order.path}, cycle {self.info.cycle:,}")
