"""How time and memory of a checked run grow with the work: layers, bytes of weights, cores.

    python -m benchmarks.growth --page docs/results/performance.md

Each row is a process of its own, `rkcosim run MODEL --check`, with random inputs, on a model that is made
here: int8 convolutions one after the other, with random weights. *Start* is processor time of another process
from its begin until the model is loaded, compiled and has an engine that is ready. The last column says how
many times longer a cycle of the row takes, all of the command without its start counted, than one of the
row of the series with the least: a number that grows along the series would be work that grows faster than
the simulated cycles.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.measure.perf.bench.machine import machine, machine_line
from rkcosim.measure.perf.page import table, write_section

HEADS = ("series", "work", "cycles", "start, s", "command, s", "cycles a second", "peak memory", "a cycle")
SCALE = 0.05
"""Scale of all tensors; only sizes matter here."""


@dataclass(frozen=True)
class Work:
    """A chain of equal int8 convolutions.

    Members
    -------
    series, name : what grows, and how much of it there is.
    layers : number of convolutions.
    channels : channels of input and output of each.
    size : height and width of the tensors.
    kernel : height and width of the kernels.
    cores : cores that work on each layer.
    """

    series: str
    name: str
    layers: int
    channels: int
    size: int
    kernel: int
    cores: int = 1


WORK = (
    *(Work("layers", f"{count:,}", count, 32, 16, 3) for count in (10, 30, 100, 300, 1000)),
    Work("weights", "1 MiB", 1, 1024, 1, 1),
    *(Work("weights", f"{4 * count} MiB", count, 2048, 1, 1) for count in (1, 5, 25, 125)),
    *(Work("cores", str(cores), 20, 128, 56, 3, cores) for cores in (1, 2, 3)),
)


def made(work: Work, path: Path) -> None:
    """Write the ONNX file of a work, in QDQ form."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(work.layers)
    nodes: list[onnx.NodeProto] = []
    tensors = [
        numpy_helper.from_array(np.array(SCALE, np.float32), "scale"),
        numpy_helper.from_array(np.array(0, np.int8), "zero"),
        numpy_helper.from_array(
            np.array(SCALE / (4 * work.channels * work.kernel), np.float32), "weight_scale"
        ),
    ]

    def add(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    value = "input"
    shape = (work.channels, work.channels, work.kernel, work.kernel)
    for layer in range(work.layers):
        codes = rng.integers(-127, 128, shape).astype(np.int8)
        tensors.append(numpy_helper.from_array(codes, f"codes{layer}"))
        stored = add("QuantizeLinear", (value, "scale", "zero"), f"stored{layer}")
        operand = add("DequantizeLinear", (stored, "scale", "zero"), f"operand{layer}")
        weights = add("DequantizeLinear", (f"codes{layer}", "weight_scale", "zero"), f"weights{layer}")
        pads = [work.kernel // 2] * 4
        value = add("Conv", (operand, weights), f"conv{layer}", pads=pads)
    stored = add("QuantizeLinear", (value, "scale", "zero"), "last")
    add("DequantizeLinear", (stored, "scale", "zero"), "output")
    sizes = (1, work.channels, work.size, work.size)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in ("input", "output")]
    graph = helper.make_graph(nodes, "growth", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def started(path: Path, cores: int) -> float:
    """Return this process's processor seconds until a model can be run."""
    from rkcosim.running.session import Session

    with Session(path, cores=cores):
        return time.process_time()


def measured(work: Work, folder: Path) -> dict[str, Any]:
    """Measure one work.

    Returns
    -------
    dict
        `cycles`, `start` and `seconds` of processor time, `cycles_per_second` of the simulation,
        `peak` memory in bytes.

    Raises
    ------
    RuntimeError
        If the run does not match both golden models.
    """
    path, told = folder / "model.onnx", folder / "run.json"
    with ProcessPoolExecutor(1) as apart:  # the peak of a process counts from that of its parent
        apart.submit(made, work, path).result()
    own = [sys.executable, "-m", "benchmarks.growth", "--start", str(path), "--cores", str(work.cores)]
    start = float(subprocess.run(own, capture_output=True, text=True, check=True).stdout)
    command = ["run", str(path), "--check", "--cores", str(work.cores), "--json", str(told), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "rkcosim", *command], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{work.series} {work.name}: the checked run ended with {process.returncode}")
    report = json.loads(told.read_text(encoding="utf-8"))
    return {
        "cycles": report["cycles"],
        "start": start,
        "seconds": used.ru_utime + used.ru_stime,
        "cycles_per_second": report["cycles_per_second"],
        "peak": used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def rows(works: Sequence[Work] = WORK) -> list[tuple[str, ...]]:
    """Measure the works and return the cells of the table."""
    found: list[tuple[Work, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for work in works:
            found.append((work, measured(work, Path(folder))))
            print(work.series, work.name, found[-1][1], flush=True)
    costs = {work: (of["seconds"] - of["start"]) / of["cycles"] for work, of in found}
    least = {work.series: min(costs[w] for w in costs if w.series == work.series) for work in costs}
    return [
        (
            work.series,
            work.name,
            f"{of['cycles']:,}",
            f"{of['start']:.1f}",
            f"{of['seconds']:.1f}",
            f"{of['cycles_per_second']:,.0f}",
            f"{of['peak'] >> 20:,} MiB",
            f"{costs[work] / least[work.series]:.2f}",
        )
        for work, of in found
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--series", action="append", choices=sorted({work.series for work in WORK}))
    parser.add_argument("--page", type=Path, help="update the table of this page")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.start:
        print(started(given.start, given.cores))
        return 0
    lines = table(HEADS, rows([work for work in WORK if not given.series or work.series in given.series]))
    if given.page:
        text = f"Processor time, one run each, on {machine_line(machine())}."
        write_section("growth", "\n".join([*lines, "", text]), given.page)
    else:
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
