"""A published row as work for an engine: it is built, compared with the formula, run and estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rkcosim.compiler import CompiledModel, ModelError, compile_model
from rkcosim.compiler.matmul import CHANNEL_STEP, KINDS, SUM_BYTES, Matmul
from rkcosim.compiler.rknn_tiling import rknn_plans
from rkcosim.compiler.steps import HostStep
from rkcosim.engines.engine import Engine
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf import formula
from rkcosim.measure.perf.boards import language
from rkcosim.measure.perf.boards.expected import Plan
from rkcosim.measure.perf.boards.layers import model_of
from rkcosim.measure.perf.boards.matmul_plans import resident
from rkcosim.measure.perf.boards.networks import network_file
from rkcosim.measure.perf.boards.table import BoardRow
from rkcosim.measure.perf.boards.terms import CALIBRATION, CALIBRATION_VERSION, stream
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.perf.page import read_stored
from rkcosim.measure.perf.workloads import run_work

BITS = {"int4": 4, "int8": 8, "fp16": 16}
PRECISION = {"int4": 6, "int8": 0, "fp16": 2}
"""Type to CNA's code (`rkcosim.measure.perf.formula.GROUPS`)."""

PRODUCTS = {
    "fp16": "float16 x float16 -> float32",
    "int8": "int8 x int8 -> int32",
    "int4": "int4 x int4 -> int16",
}
"""Type of a published product -> kind that is run (the rows do not give the output's type)."""

NETWORKS = {
    "MobileNetV1": "mobilenet_v1",
    "MobileNetV2": "mobilenet_v2",
    "ResNet50": "resnet50",
    "YOLOv5s-relu": "yolov5s_relu",
    "YOLOv5s-relu-three-cores": "yolov5s_relu",
}
"""Row -> network of `examples/networks/make.py`."""

RESIDENT_SOURCES = ("notes-device-split", "notes-clock")
"""Sources whose products were divided as `rkcosim.measure.perf.boards.matmul_plans.resident` divides them."""

SHARED = ("add", "concat")
"""Operations that RKNN divides among cores, each of which takes a part of the rows."""

PATIENCE = 12
"""A job counts as hung after this many times its formula plus a million cycles."""


REFERENCE_MHZ = 1000.0
"""NPU clock at which one byte per cycle is one GB/s; `DramConfig` is given for this clock."""


def fitted_bandwidth() -> float:
    """Return the largest transfer rate of one core in bytes per nanosecond, both directions together.

    Raises
    ------
    ValueError
        If the file is damaged or has another version.
    """
    return float(read_stored(CALIBRATION, CALIBRATION_VERSION)["core_bytes_per_ns"])


def board_memory(
    clock_mhz: float = REFERENCE_MHZ,
    core_bytes_per_ns: float | None = None,
    in_core: bool = False,
    all_bytes_per_ns: float | None = None,
) -> DramConfig:
    """Return the timing of a board's memory for one core at an NPU clock.

    Parameters
    ----------
    clock_mhz : clock of the NPU.
    core_bytes_per_ns : limit of one core's bandwidth; None: only the peak of all cores limits it.
    in_core : whether that limit lies in the core, so that it is per cycle at any clock.
    all_bytes_per_ns : bandwidth of all cores together; None: that of the vendor's formula.
    """
    default = DramConfig().unshared
    if all_bytes_per_ns is not None:
        default = replace(
            default, peak_bytes_per_cycle=all_bytes_per_ns, core_bytes_per_cycle=all_bytes_per_ns
        )
    if core_bytes_per_ns is not None:
        default = replace(default, core_bytes_per_cycle=min(default.peak_bytes_per_cycle, core_bytes_per_ns))
    slower = default.at_clock(clock_mhz / REFERENCE_MHZ)
    return replace(slower, core_bytes_per_cycle=default.core_bytes_per_cycle) if in_core else slower


@dataclass(frozen=True)
class Bounds:
    """The vendor's formula [HW 12.6]: cycles of the array, of DRAM, and of the whole row (`cycles`)."""

    npu: int
    ddr: int
    cycles: int


@dataclass(frozen=True)
class Ran:
    """Cycles of a row, also by cause (`rkcosim.measure.perf.attribution.Cause`; empty for estimates)."""

    cycles: int
    tasks: int
    submits: int
    spent: dict[str, int]


@dataclass(frozen=True)
class Work:
    """One row as a compiled model or a product.

    Members
    -------
    bounds : the vendor's formula, with each tensor moved once at the vendor's bandwidth.
    traffic : bytes that the plan moves, relative to the size of the tensors.
    parts : number of times it is run for the row.
    submits : number of jobs of one run.
    note : how our run deviates from the published one.
    as_boards : whether estimates load first and keep cores in lock step (`estimate_model`).
    cores : cores that each run the whole of `what`, which is a part of the row.
    only_estimated : why it is not run; empty if it can be.
    """

    row: BoardRow
    what: CompiledModel | Matmul
    bounds: Bounds
    traffic: float
    parts: int = 1
    submits: int = 1
    note: str = ""
    as_boards: bool = False
    cores: int = 1
    only_estimated: str = ""

    def run(self, engine: Engine) -> Ran:
        """Run it on random data on a new engine; work of the host takes no cycles.

        Raises
        ------
        ModelError
            If it is only estimated.
        """
        if self.only_estimated:
            raise ModelError(f"{self.row.id}: {self.only_estimated}")
        limit = PATIENCE * self.bounds.cycles + 1_000_000
        found = run_work(engine, self.row.id, self.what, max_cycles=limit)
        records = engine.task_log()
        return self._whole(found.cycles, len(records), found.spent)

    def estimate(self, dram: DramConfig) -> Ran:
        """Estimate it with the estimator that is fitted to the RTL, without simulation."""
        found = estimate_model(self.what, dram=dram, as_boards=self.as_boards, copies=self.cores)
        return self._whole(found.cycles, self.cores * len(found.tasks), {})

    def _whole(self, cycles: int, tasks: int, went: dict[str, int]) -> Ran:
        times = self.parts
        counts = {part: times * count for part, count in went.items()}
        return Ran(times * cycles, times * tasks, self.submits, counts)


def work(row: BoardRow, plan: Plan = "ours") -> Work:
    """Build the work of a row with the plan of this compiler, or that of the software that was measured.

    That is RKNN's, as far as its rules are known, and for some products that of their authors.

    Raises
    ------
    ModelError, MatmulError, NetworkError
        If it cannot be built; the message gives the reason.
    """
    if row.family == "language":
        return _language(row, plan)
    if plan == "ours":
        return _work(row)
    if row.source in RESIDENT_SOURCES:
        product, submits = resident(row.input[0], *row.output)
        return replace(_work(row), what=product, as_boards=True, submits=submits)
    with rknn_plans():
        if row.cores > 1 and row.operation in SHARED:
            channels, height, width = row.input
            part = channels, -(-height // row.cores), width
            whole = _work(replace(row, cores=1))
            share = _work(replace(row, cores=1, input=part, output=part))
            return replace(share, row=row, bounds=whole.bounds, as_boards=True, cores=row.cores)
        found = _work(row)
    chains = found.what.plan.chains if isinstance(found.what, CompiledModel) else found.submits
    return replace(found, as_boards=True, submits=chains)


def _work(row: BoardRow) -> Work:
    if row.operation == "matmul":
        return _product(row)
    return _network(row) if row.operation == "model" else _single(row)


class _Calls(Work):
    """The matrix products of a language model, which are only estimated."""

    def estimate(self, dram: DramConfig) -> Ran:
        """Estimate all products; each is counted as one task for each core."""
        model, tokens = language.LanguageModel(*self.row.input), self.row.output[0]
        cycles = language.cycles(model, tokens, self.row.cores, dram, self.as_boards)
        return Ran(cycles, self.row.cores * model.products(tokens).total(), self.submits, {})


def _language(row: BoardRow, plan: Plan) -> Work:
    model, tokens = language.LanguageModel(*row.input), row.output[0]
    npu = -(-model.macs(tokens) // (row.cores * math.prod(formula.GROUPS[0])))
    moved = model.weights(), 0
    part = language.share(tokens, model.width, model.width, row.cores)
    why = "products of a language model are only estimated"
    return _Calls(row, part, _bounds(row, npu, moved), 1.0, as_boards=plan != "ours", only_estimated=why)


def _bounds(row: BoardRow, npu: int, moved: tuple[int, int]) -> Bounds:
    ddr = formula.ddr(*moved, board_memory(row.clock_mhz, all_bytes_per_ns=stream(row)))
    return Bounds(npu, ddr, max(npu, ddr))


def _single(row: BoardRow) -> Work:
    """Build a single layer, compiled from a model of it; its bounds follow from the row's sizes."""
    parts, note = 1, ""
    if row.cores > 1 and row.operation in SHARED:
        raise ModelError(f"{row.id}: this compiler divides only convolutions among cores")
    try:
        model = compile_model(model_of(row, row.input[0]), cores=row.cores)
    except ModelError:
        # Depthwise channels are independent: a layer too wide for CBUF is run as layers of one group each.
        channels = formula.DEPTHWISE_GROUP
        if row.family != "depthwise" or row.input[0] <= channels:
            raise
        model = compile_model(model_of(row, channels))
        parts = -(-row.input[0] // channels)
        note = f"run {parts} times with {channels} of its channels"
    if any(isinstance(step, HostStep) for step in model.plan.steps):
        raise ModelError(f"{row.id}: this compiler leaves a part of it to the host")
    npu, read = 0, (2 if row.operation == "add" else 1) * math.prod(row.input)
    if row.operation in ("conv", "conv+add"):
        depthwise = row.family == "depthwise"
        taps, pixels, kernels = row.kernel**2, row.output[1] * row.output[2], row.output[0]
        npu = formula.conv_npu(pixels, kernels, row.input[0], taps, depthwise, PRECISION[row.type])
        npu = -(-npu // row.cores)
        read += taps * kernels * (1 if depthwise else row.input[0])
        read += math.prod(row.output) * (row.operation == "conv+add")
    size = BITS[row.type] // 8
    moved = read * size, math.prod(row.output) * size
    traffic = parts * sum(task.reads + task.writes for task in model.plan.tasks) / sum(moved)
    return Work(row, model, _bounds(row, npu, moved), traffic, parts, note=note)


def _product(row: BoardRow) -> Work:
    """Build a matrix product; sizes that the hardware does not support are rounded up."""
    (m, k), (_, n) = row.input, row.output
    kind = KINDS[PRODUCTS[row.type]]
    even = -(-k // CHANNEL_STEP) * CHANNEL_STEP, -(-n // kind.group) * kind.group
    note = f"K x N rounded up to {even[0]} x {even[1]}" if even != (k, n) else ""
    p = Matmul(kind, m, *even)
    moved = 0.0
    for tile in p.tiles:
        weights = 0 if tile.reuse else tile.columns * tile.depth
        moved += (tile.rows * tile.depth + weights) * p.kind.bits / 8
        results = tile.rows * tile.columns
        moved += results * (p.kind.out_bits // 8 if tile.last else SUM_BYTES)
        moved += results * SUM_BYTES * tile.adds
    npu = formula.conv_npu(p.m, p.n, p.k, 1, False, p.kind.code)
    once = p.a_bytes + p.b_bytes, p.c_bytes
    bounds = _bounds(row, npu, (row.cores * once[0], row.cores * once[1]))
    why = "products on several cores are only estimated" if row.cores > 1 else ""
    return Work(row, p, bounds, moved / sum(once), note=note, cores=row.cores, only_estimated=why)


def _network(row: BoardRow) -> Work:
    """Build a whole network of published shapes with random weights.

    Its bounds are sums over the layers (for `cycles`, of the larger bound of each), as in [HW 12.6].  The
    sizes of the tensors between the layers follow from the plan, so its traffic is 1.
    """
    model = compile_model(network_file(NETWORKS[row.id]).read_bytes(), cores=row.cores)
    layers: dict[int, tuple[int, int, int]] = {}
    for task in model.plan.tasks:
        npu, read, written = layers.get(task.layer, (0, 0, 0))
        layers[task.layer] = npu + task.formula_npu, read + task.reads, written + task.writes
    found = [
        (-(-npu // row.cores), formula.ddr(read, written, board_memory()))
        for npu, read, written in layers.values()
    ]
    bounds = Bounds(sum(npu for npu, _ in found), sum(ddr for _, ddr in found), sum(map(max, found)))
    return Work(row, model, bounds, 1.0, submits=model.plan.jobs)
