"""What a run of a command stream says of each task: the rows of its JSON and its report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from cosim.engines.library import DramConfig
from cosim.golden.task import GoldenError, TaskReport
from cosim.models.rows import LayerRow, layer_row, task_rows
from cosim.perf import formula
from cosim.perf.measure import meter, unended
from cosim.streams.stream import Stream
from rtl.config import RK3588
from rtl.regs import registers
from sw.compiler.runtime import LayerReport, TaskMeasure


def stream_rows(device: Any, stream: Stream) -> dict[str, Any]:
    """Members for the JSON of a stream's run, in the form that models have.

    Parameters
    ----------
    device
        an engine or the golden model, after the run.
    stream
        what it ran; a golden model runs it again for each task's kind, MACs and bounds, so these are
        missing where it cannot.

    Returns
    -------
    `rows` (`LayerRow`, one a task), `runs` (`task_rows`), `regions` of the stream, `dram`, `peak`, `cores`,
    `geometry` and `cell`.
    """
    golden = device.name == "golden"
    reports = device.task_log() if golden else _reports(stream)
    ended = [] if golden else meter(device)()
    measures = ended if golden else [*ended, *unended(device)]
    count = len(reports) if golden else len(measures)
    layers = [
        _layer(n, reports[n] if n < len(reports) else None, measures[n] if measures else None)
        for n in range(count)
    ]
    dram = getattr(device, "dram", None)
    rows = [_row(layer, reports[n] if n < len(reports) else None, dram) for n, layer in enumerate(layers)]
    for row in rows[len(ended) :] if not golden else []:
        row.name += ", not ended"
    return {
        "rows": [row.as_json() for row in rows],
        "runs": task_rows(layers),
        "regions": [
            {"name": region.name, "address": region.address, "size": int(region.data.size)}
            for region in stream.regions
        ],
        "dram": asdict(dram or DramConfig()),
        "peak": RK3588.macs_int8,
        "cores": 1,
        "geometry": RK3588.name,
        "cell": getattr(device, "cell", ""),
    }


def _reports(stream: Stream) -> Sequence[TaskReport]:
    """What the golden model says of the tasks; of a stream that it cannot run, those before the fault."""
    from cosim.crosscheck.kick import run_kick
    from cosim.golden.task import GoldenNpu

    golden = GoldenNpu(stream.core + 1, strict=False)
    stream.load_into(golden.memory)
    with suppress(GoldenError):
        run_kick(golden, stream.kick, stream.core, writes=stream.writes)
    return golden.task_log()


def _layer(number: int, report: TaskReport | None, measure: TaskMeasure | None) -> LayerReport:
    read, written = (measure.bytes_read, measure.bytes_written) if measure else (0, 0)
    if report and not measure:
        read, written = report.bytes_read, report.bytes_written
    npu = 0
    if report:
        with suppress(KeyError):  # a register that was never written: no bound
            npu = formula.formula_npu(report.registers)
    return LayerReport(
        f"task {number}",
        report.kind if report else "task",
        "npu",
        1,
        measure.cycles if measure else None,
        report.macs if report else 0,
        read,
        written,
        npu,
        (),
        (),
        measure.mac_busy if measure else None,
        measures=(measure,) if measure else (),
    )


def _row(layer: LayerReport, report: TaskReport | None, dram: DramConfig | None) -> LayerRow:
    row = layer_row(layer, dram)
    row.peak = _peak(layer, report)
    row.utilisation = round(layer.macs / (layer.cycles * row.peak), 4) if layer.cycles and row.peak else None
    return row


def _peak(layer: LayerReport, report: TaskReport | None) -> int:
    """MACs a cycle at most, by the type that the task's registers say."""
    if not layer.macs or report is None:
        return 0
    if layer.op == "depthwise":
        return formula.DEPTHWISE_GROUP
    register = registers()["CNA"]["CONV_CON1"]
    precision = register.decode(report.registers.get("CNA", {}).get("CONV_CON1", 0))["IN_PRECISION"]
    kernels, channels = formula.GROUPS.get(precision, formula.GROUPS[0])
    return kernels * channels
