"""What `--save`, `--at`, `--keep-going`, `--traceable` and `--resume` do in the commands that have them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import BAD_INPUT, OK, fail, write_json

if TYPE_CHECKING:
    from cosim.cli.inputs import Batch
    from cosim.engines.snapshots.file import SnapshotFile
    from cosim.engines.snapshots.orders import SaveOrder
    from waves.spec import TraceSpec

INPUTS = "inputs"
"""Block of a snapshot with the inputs of a model's run, as .npz."""


@dataclass(frozen=True)
class SnapshotOptions:
    """The options as given.

    Raises
    ------
    ValueError
        for options that do not fit together.
    """

    save: Path | None = None
    at: str | None = None
    keep_going: bool = False
    traceable: bool = False
    resume: Path | None = None

    def __post_init__(self) -> None:
        if self.save is None:
            lone = {"--at": self.at, "--keep-going": self.keep_going, "--traceable": self.traceable}
            for name, given in lone.items():
                if given:
                    raise ValueError(f"{name} needs --save FILE")
        elif self.at is None:
            raise ValueError("--save needs --at task:N, layer:NAME or job")
        else:
            from cosim.engines.snapshots.orders import Border

            Border.parse(self.at)
        if self.traceable and self.resume is not None:
            raise ValueError("--traceable: what goes on from a snapshot can be traced if that one could")


@dataclass
class Run:
    """The run of a command that may be saved, or go on from a snapshot.

    Parameters
    ----------
    options : as given.
    command : the command's words.
    file : what it runs; the file's hash goes into the snapshot.
    given : values of the options that decide what the run does, by name.
    default : their values where nothing is given; a snapshot's take their place.
    trace : the waveform that is wanted.

    Members
    -------
    values : what counts: as `given`, or as the snapshot has it.

    Raises
    ------
    ValueError
        where the snapshot is of another run; says what differs.
    """

    options: SnapshotOptions
    command: str
    file: Path
    given: dict[str, Any]
    default: Mapping[str, Any]
    trace: TraceSpec | None = None
    values: dict[str, Any] = field(init=False)
    snapshot: SnapshotFile | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.values = dict(self.given)
        if not self:
            return
        if self.options.resume is not None:
            self._read(self.options.resume)
        if self.values.get("engine") == "golden":
            raise ValueError("the engine golden has no cycles, so there is nothing to save")
        if self.trace is not None and self.trace.start.kind == "mismatch":
            raise ValueError("a waveform --from mismatch needs whole runs, without --save and --resume")

    def __bool__(self) -> bool:
        return self.options.save is not None or self.options.resume is not None

    def _read(self, path: Path) -> None:
        from cosim.engines.library import DramConfig
        from cosim.engines.settings import changed, words
        from cosim.engines.snapshots.file import SnapshotFile

        self.snapshot = SnapshotFile.read(path)
        facts = self.snapshot.header["run"]
        if facts.get("command") != self.command:
            raise ValueError(
                f"{path}: a snapshot of {facts.get('command') or 'a program'}, not of {self.command}"
            )
        if facts["sha256"] != _hash(self.file):
            raise ValueError(
                f"{path}: a snapshot of a run of {facts['file']} with other contents than {self.file} has now"
            )
        header = self.snapshot.header
        memory = DramConfig(**header["dram"])
        saved = {**facts["options"], "engine": header["engine"], "dram": memory}
        for name, value in self.given.items():
            if value not in (self.default[name], saved[name]):
                if name == "dram":
                    then, now = words(changed(memory)), words(changed(value))
                    raise ValueError(f"{path}: the run was saved with memory timing {then}, this is {now}")
                option = name.replace("_", "-")
                raise ValueError(f"{path}: the run was saved with --{option} {saved[name]}, not {value}")
        self.values = saved
        variant = header["variant"]
        if self.trace is not None and "traced" not in variant:
            raise ValueError(
                f"{path}: saved by the {variant}, which writes no waveform: save with --traceable or --trace"
            )

    def batch(self, given: Batch | None) -> Batch | None:
        """The inputs to run on: those given, which are those of the snapshot.

        Raises
        ------
        ValueError
            if they are not.
        """
        self._given = given
        if self.snapshot is None:
            return given
        block = self.snapshot.blocks.get(INPUTS)
        kept = None if block is None else _from_block(block)
        if given is not None and (kept is None or not _same(given, kept)):
            raise ValueError(f"{self.options.resume}: the run was saved with other inputs")
        self._given = kept
        return kept

    _given: Batch | None = field(init=False, default=None)

    @contextmanager
    def running(self, json: Path | None) -> Iterator[None]:
        """Around the run; a run that ends with its snapshot ends the command."""
        if not self:
            yield
            return
        from cosim.engines.snapshots.orders import SnapshotTaken
        from cosim.engines.snapshots.plan import json_of, planned

        orders = self._orders()
        try:
            with planned(resume=self.snapshot, saves=orders, traced=self.options.traceable):
                yield
        except SnapshotTaken as taken:
            print(self._said(taken.order))
            if json:
                write_json(json, {"schema_version": 1, "snapshot": json_of(taken.order)})
            raise SystemExit(OK) from None
        finally:
            for order in orders:
                if order.taken is not None and not order.stop:
                    print(self._said(order))

    def finish(self) -> None:
        """After everything was printed: end with an error if there was nothing to save."""
        if self._ordered and any(order.taken is None for order in self._ordered):
            fail(
                f"the run never came to {self.options.at}, so {self.options.save} was not written", BAD_INPUT
            )

    _ordered: list[SaveOrder] = field(init=False, default_factory=list)

    def _orders(self) -> list[SaveOrder]:
        from cosim.engines.snapshots.orders import Border, SaveOrder

        if self.options.save is None:
            return []
        facts = {
            "command": self.command,
            "file": self.file.name,
            "sha256": _hash(self.file),
            "options": {n: value for n, value in self.values.items() if n not in ("engine", "dram")},
        }
        blocks = {} if self._given is None else {INPUTS: _block(self._given)}
        assert self.options.at is not None
        border = Border.parse(self.options.at)
        self._ordered = [SaveOrder(self.options.save, border, not self.options.keep_going, facts, blocks)]
        return self._ordered

    def _said(self, order: SaveOrder) -> str:
        info = order.taken
        assert info is not None
        where = f"saved at {order.at.text}, cycle {info.cycle:,}: {order.path}, {info.size:,} bytes"
        return f"{where} (go on: rkcosim {self.command} {self.file} --resume {order.path})"


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _block(batch: Batch) -> bytes:
    import numpy as np

    arrays = {f"{n}.{k}": array for n, item in enumerate(batch.items) for k, array in enumerate(item)}
    if batch.labels is not None:
        arrays["labels"] = np.array(batch.labels, np.int64)
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]  # the stubs take the names for other parameters
    return stream.getvalue()


def _from_block(block: bytes) -> Batch:
    import numpy as np

    from cosim.cli.inputs import Batch

    with np.load(io.BytesIO(block), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    labels = arrays.pop("labels", None)
    items: dict[int, dict[int, Any]] = {}
    for name, array in arrays.items():
        number, _, place = name.partition(".")
        items.setdefault(int(number), {})[int(place)] = array
    ordered = [[item[k] for k in sorted(item)] for _, item in sorted(items.items())]
    return Batch(ordered, None if labels is None else [int(v) for v in labels])


def _same(one: Batch, other: Batch) -> bool:
    import numpy as np

    return len(one.items) == len(other.items) and all(
        len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(one.items, other.items, strict=True)
    )
