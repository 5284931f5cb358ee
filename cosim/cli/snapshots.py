"""The options `--save`, `--at`, `--keep-going`, `--traceable` and `--resume` of commands that have them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base import BAD_INPUT
from rkcosim.cli.app import needs, option
from rkcosim.cli.exits import OK, fail
from rkcosim.cli.options import DramOptions

if TYPE_CHECKING:
    from rkcosim.engines.snapshots.file import SnapshotFile
    from rkcosim.engines.snapshots.orders import Border, SaveOrder
    from rkcosim.measure.models.input_files import Batch
    from rkcosim.waves.spec import TraceSpec


@dataclass(frozen=True, kw_only=True)
class SnapshotOptions(DramOptions):
    """Options of commands whose run can be saved.

    Raises
    ------
    ValueError
        for options that exclude each other.
    """

    save: Path | None = option("Save a snapshot of the run to this file (docs/snapshots.md).", writes=True)
    at: str | None = option(
        "With --save, when to save: task:N or task:N@JOB (before task N), layer:NAME (before the layer), "
        "job or job:N (at the job's end).",
        metavar="BORDER",
    )
    keep_going: bool = option("Continue after saving; otherwise the run ends there.", default=False)
    traceable: bool = option("Save so that the resumed run can write waveforms (slower).", default=False)
    resume: Path | None = option(
        "Resume the run from this snapshot, which a run with the same options saved."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.save is None:
            needs("--save FILE", at=self.at, keep_going=self.keep_going, traceable=self.traceable)
        elif self.border is None:  # the border is missing or cannot be parsed
            raise ValueError("--save needs --at task:N, layer:NAME or job")
        if self.traceable and self.resume is not None:
            raise ValueError(
                "--traceable has no effect with --resume: a resumed run can be traced if the saved one could"
            )

    @property
    def border(self) -> Border | None:
        """Return where to save, or None if nothing is to be saved."""
        if self.at is None:
            return None
        from rkcosim.engines.snapshots.orders import Border

        return Border.parse(self.at)


@dataclass
class SavedRun:
    """The run of a command that may be saved, or resumed from a snapshot.

    Parameters
    ----------
    options : the command's options.
    command : the command's words.
    file : the model or stream that is run; its hash is stored in the snapshot.
    names : the options that affect the result; for those not given, the snapshot's value is used.
    trace : the requested waveform.

    Members
    -------
    values : value of each of these options by name, as given or as in the snapshot; `dram` as a DramConfig.

    Raises
    ------
    ValueError
        if the snapshot is of another run; the message says what differs.
    """

    options: SnapshotOptions
    command: str
    file: Path
    names: Sequence[str]
    trace: TraceSpec | None = None
    values: dict[str, Any] = field(init=False)
    snapshot: SnapshotFile | None = field(init=False, default=None)
    _given: Batch | None = field(init=False, default=None)
    _ordered: list[SaveOrder] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        given: dict[str, Any] = {name: getattr(self.options, name) for name in self.names}
        self.values = given | {"dram": self.options.memory}
        if not self:
            return
        if self.options.resume is not None:
            self._read(self.options.resume)
        from rkcosim.engines.protocol import require

        require(self.values.get("engine"), "has_snapshots", "a snapshot")
        if self.trace is not None and self.trace.start.kind == "mismatch":
            raise ValueError("a waveform --from mismatch needs whole runs, without --save and --resume")

    def __bool__(self) -> bool:
        return self.options.save is not None or self.options.resume is not None

    def _read(self, path: Path) -> None:
        from rkcosim.engines.library import DramConfig
        from rkcosim.engines.settings import changed, words
        from rkcosim.engines.snapshots.contents import read_snapshot

        default = {option.name: option.default for option in fields(self.options)} | {"dram": None}
        self.snapshot = read_snapshot(path)
        facts = self.snapshot.header["run"]
        if facts.get("command") != self.command:
            found = facts.get("command") or "a program"
            raise ValueError(f"{path}: a snapshot of {found}, not of {self.command}")
        if facts["sha256"] != _hash(self.file):
            text = f"a snapshot of a run of {facts['file']} with other contents than {self.file} has now"
            raise ValueError(f"{path}: {text}")
        named = {name: default[name] for name in self.values if name not in ("engine", "dram")}
        facts["options"] = {
            name: tuple(value.splitlines())
            if isinstance(named.get(name), tuple) and isinstance(value, str)
            else value
            for name, value in facts["options"].items()
        }
        if facts["options"].keys() != named.keys() or not all(
            type(value) is type(named[name]) or (named[name] is None and isinstance(value, str))
            for name, value in facts["options"].items()
        ):
            raise ValueError(f"{path}: damaged snapshot: its options are not those of {self.command}")
        header = self.snapshot.header
        memory = DramConfig(**header["dram"])
        saved = {**facts["options"], "engine": header["engine"], "dram": memory}
        for name, value in self.values.items():
            if value not in (default[name], saved[name]):
                if name == "dram":
                    then, now = words(changed(memory)), words(changed(value))
                    raise ValueError(f"{path}: the run was saved with memory timing {then}, this is {now}")
                option = name.strip("_").replace("_", "-")
                raise ValueError(f"{path}: the run was saved with --{option} {saved[name]}, not {value}")
        self.values = saved
        variant = header["variant"]
        if self.trace is not None and "traced" not in variant:
            raise ValueError(
                f"{path}: saved by the {variant}, which writes no waveform: save with --traceable or --trace"
            )

    def batch(self, given: Batch | None) -> Batch | None:
        """Return the inputs of the run: the given ones, which must be those of the snapshot.

        Raises
        ------
        ValueError
            if they differ.
        """
        self._given = given
        if self.snapshot is None:
            return given
        from rkcosim.engines.snapshots.contents import INPUTS

        block = self.snapshot.blocks.get(INPUTS)
        kept = None if block is None else _from_block(block, f"{self.options.resume}: block '{INPUTS}'")
        if given is not None and (kept is None or not _same(given, kept)):
            raise ValueError(f"{self.options.resume}: the run was saved with other inputs")
        self._given = kept
        return kept

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context of the run; if the run ends with its snapshot, the command ends."""
        if not self:
            yield
            return
        from rkcosim.engines.snapshots.orders import SnapshotTaken
        from rkcosim.engines.snapshots.plan import json_of, planned

        orders = self._orders()
        try:
            with planned(resume=self.snapshot, saves=orders, traced=self.options.traceable):
                yield
        except SnapshotTaken as taken:
            print(self._said(taken.order))
            self.options.write({"snapshot": json_of(taken.order)})
            raise SystemExit(OK) from None
        finally:
            for order in orders:
                if order.taken is not None and not order.stop:
                    print(self._said(order))

    def finish(self) -> None:
        """After all output: end with an error if the point to save at was never reached."""
        if any(order.taken is None for order in self._ordered):
            fail(
                f"the run never reached {self.options.at}, so {self.options.save} was not written", BAD_INPUT
            )

    def _orders(self) -> list[SaveOrder]:
        from rkcosim.engines.snapshots.orders import SaveOrder

        border = self.options.border
        if self.options.save is None or border is None:
            return []
        facts = {
            "command": self.command,
            "file": self.file.name,
            "sha256": _hash(self.file),
            "options": {
                name: "\n".join(value) if isinstance(value, tuple) else value
                for name, value in self.values.items()
                if name not in ("engine", "dram")
            },
        }
        from rkcosim.engines.snapshots.contents import INPUTS

        blocks = {} if self._given is None else {INPUTS: _block(self._given)}
        self._ordered = [SaveOrder(self.options.save, border, not self.options.keep_going, facts, blocks)]
        return self._ordered

    def _said(self, order: SaveOrder) -> str:
        info = order.taken
        assert info is not None
        where = f"saved at {order.at.text}, cycle {info.cycle:,}: {order.path}, {info.size:,} bytes"
        return f"{where} (resume with: rkcosim {self.command} {self.file} --resume {order.path})"


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


def _from_block(block: bytes, where: str) -> Batch:
    from rkcosim.measure.models.input_files import Batch, InputError, labels_of, load_archive

    arrays = load_archive(io.BytesIO(block), where)
    labels = labels_of(arrays.pop("labels", None), where)
    width = sum(name.startswith("0.") for name in arrays)
    count = len(arrays) // max(width, 1)
    names = [[f"{n}.{k}" for k in range(width)] for n in range(count)]
    if not count or {name for row in names for name in row} != set(arrays):
        raise InputError(f"{where}: does not hold the inputs of a run")
    if labels is not None and len(labels) != count:
        raise InputError(f"{where}: {len(labels)} labels for {count} inputs")
    return Batch([[arrays[name] for name in row] for row in names], labels)


def _same(one: Batch, other: Batch) -> bool:
    import numpy as np

    mine, theirs = ([array for item in batch.items for array in item] for batch in (one, other))
    alike = [len(item) for item in one.items] == [len(item) for item in other.items]
    return alike and all(map(np.array_equal, mine, theirs))
