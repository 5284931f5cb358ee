"""Comparison of the plan of a `.rknn` file with our compiler's plan of the same network, by node."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rkcosim.base import progress
from rkcosim.base.files import read_model, wrong
from rkcosim.compiler.model import CompiledModel, naming_model
from rkcosim.compiler.plan import Plan
from rkcosim.engines.library import DramConfig
from rkcosim.measure.models.draw import random_inputs
from rkcosim.rknn_file.model import FileModel
from rkcosim.rknn_file.network import network_of, node_of
from rkcosim.rknn_file.opening import open_model
from rkcosim.rknn_file.tasks import field_of, values_of
from rkcosim.running.session import Session

SCHEMA_VERSION = 1
"""Version of the JSON form of `Plans`."""


SHOWN = 3
"""Maximum number of different tiles of a node in a line."""


@dataclass
class Share:
    """Work of one plan for a node.

    Members
    -------
    tasks : number of tasks; 0 for a node of the host.
    tiles : (output rows, kernels) of each convolution task.
    banks : (data, weight) banks of CBUF of the first convolution task; None without one.
    bytes_read, bytes_written : measured numbers of bytes; planned ones on an engine without cycles.
    cycles : measured cycles; None if not measured.
    """

    tasks: int = 0
    tiles: list[tuple[int, int]] = field(default_factory=list)
    banks: tuple[int, int] | None = None
    bytes_read: int = 0
    bytes_written: int = 0
    cycles: int | None = None

    def add(self, other: Share) -> None:
        """Add the work of another step of the same node."""
        self.tasks += other.tasks
        self.tiles += other.tiles
        self.banks = self.banks or other.banks
        self.bytes_read += other.bytes_read
        self.bytes_written += other.bytes_written
        if other.cycles is not None:
            self.cycles = (self.cycles or 0) + other.cycles


@dataclass
class NodePlans:
    """Work of both plans for one node."""

    name: str
    kind: str
    theirs: Share
    ours: Share


@dataclass
class Plans:
    """Both plans of a network.

    Members
    -------
    model, engine, cores : name of the file, name of the engine, number of cores.
    nodes : nodes in the order of the file.
    theirs, ours : cycles of an inference with the file's and with our plan; None if not measured.
    activations : bytes of the activations of the file's and of our plan, with shared memory.
    """

    model: str
    engine: str
    cores: int
    nodes: list[NodePlans]
    theirs: int | None
    ours: int | None
    activations: tuple[int, int]

    def as_json(self) -> dict[str, Any]:
        """Return all members for `json.dump`."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def compare_plans(
    path: Path,
    *,
    engine: str | None = None,
    exact: bool = False,
    cores: int = 1,
    seed: int = 0,
    dram: DramConfig | None = None,
) -> Plans:
    """Run a file with its own plan and with our compiler's plan, on the same random inputs.

    Parameters
    ----------
    path
        Path of a `.rknn` file.
    engine, exact, cores, dram
        See `rkcosim.running.session.Session`.
    seed
        Seed of the inputs.

    Raises
    ------
    WrongKindError
        if the file is of another kind.
    ModelError
        if the file cannot be read or our compiler cannot compile its network.
    RunError, EngineError
        if a run fails.
    """
    data = read_model(path)
    with naming_model(path):
        file = open_model(data, reuse=True, cores=cores)
        if not isinstance(file, FileModel):
            raise wrong(path, data, "a .rknn file, which --plan compares with our compiler's plan")
        with progress.step("planning the network"):
            own = CompiledModel(network_of(file.file_plan), reuse=True, cores=cores)
    options = {"engine": engine, "exact": exact, "cores": cores, "dram": dram}
    theirs, their_cycles, name = _run(path, file.plan, seed, options)
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
        copy = Path(folder) / f"{path.stem}.rkc"
        copy.write_bytes(own.save())
        ours, our_cycles, _ = _run(copy, own.plan, seed, options)
    nodes = [
        NodePlans(step.name, step.kind, theirs[step.name], ours.get(step.name, Share()))
        for step in file.plan.steps
    ]
    sizes = file.plan.activation_bytes, own.plan.activation_bytes
    return Plans(path.name, name, cores, nodes, their_cycles, our_cycles, sizes)


def _run(
    path: Path, plan: Plan, seed: int, options: Mapping[str, Any]
) -> tuple[dict[str, Share], int | None, str]:
    """Run a plan; return the work for each node, the cycles of an inference, and the engine's name."""
    with Session(path, **options) as session:
        session.infer(random_inputs(session, seed))
        report, timed, name = session.report, session.device.has_cycles, session.device.name
    shares: dict[str, Share] = {}
    for layer in report.layers:
        if layer.step is None:
            continue
        share = _share(plan, layer.step)
        share.bytes_read, share.bytes_written = layer.bytes_read, layer.bytes_written
        share.cycles = layer.cycles
        shares.setdefault(node_of(layer.name), Share()).add(share)
    return shares, report.cycles if timed else None, name


def _share(plan: Plan, step: int) -> Share:
    """Return tasks, tiles and banks of a step from the registers of its tasks."""
    tasks = [task for task in plan.tasks if task.layer == step]
    share = Share(len(tasks))
    for task in tasks:
        if "CNA" not in task.blocks:
            continue
        values = values_of(task.settings)
        rows = field_of(values, "CORE", "DATAOUT_SIZE_0", "DATAOUT_HEIGHT") + 1
        share.tiles.append((rows, field_of(values, "CORE", "DATAOUT_SIZE_1", "DATAOUT_CHANNEL") + 1))
        banks = [field_of(values, "CNA", "CBUF_CON0", f"{kind}_BANK") for kind in ("DATA", "WEIGHT")]
        share.banks = share.banks or (banks[0], banks[1])
    return share


def tiles_text(tiles: Sequence[tuple[int, int]]) -> str:
    """Return a short text for the tiles of a node, for example "3 of 27x32"."""
    groups: list[tuple[tuple[int, int], int]] = []
    for tile in tiles:
        if groups and groups[-1][0] == tile:
            groups[-1] = tile, groups[-1][1] + 1
        else:
            groups.append((tile, 1))
    shown = [
        f"{rows}x{kernels}" + (f" *{count}" if count > 1 else "") for (rows, kernels), count in groups[:3]
    ]
    return ", ".join(shown) + (f", {len(groups) - SHOWN} more" if len(groups) > SHOWN else "")
