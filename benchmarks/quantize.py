"""Accuracy of quantised networks: float, int8, int8 with layers in floats, in onnxruntime and on the NPU.

    python -m benchmarks.quantize FOLDER [--json FILE] [--mixed N] [--samples N] [--data PICTURES]
        [--shape NAME=SIZES] [--rtl CYCLES] [MODEL.onnx ...]

Makes the networks of examples/networks/make.py in floating point (their weights are random), or takes float
ONNX models of one input, quantises each with `rkcosim.compiler.quantization` on samples of a normal
distribution, and measures the outputs on other samples.  With --data the samples are pictures: those at even
places of the folder are for calibration, those at odd places for the measurement.  Each row is written to
FOLDER when it is known; a second run goes on behind the last one.  Cycles are those of `rkcosim estimate`;
with --rtl, int8 models of at most this number of estimated cycles also run on the RTL, on one core, where
every tensor is compared with the golden models.
"""

from __future__ import annotations

import argparse
import json
import runpy
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.compiler import compile_model
from rkcosim.compiler.options import using_options
from rkcosim.compiler.quantization import (
    Normalisation,
    OnnxModel,
    Settings,
    keep_most_important,
    prepared,
    worst_of,
)
from rkcosim.measure.models.accuracy import npu_figures
from rkcosim.measure.models.calibration import Reading, load_samples
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.estimator.estimate import estimate_model

MAKE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "networks" / "make.py"))
NAMES = (
    *MAKE["NETWORKS"],
    *("mobilenet_v1", "mobilenet_v2", "resnet50", "yolov5s_relu", "yolov5n", "yolov8n"),
)


@dataclass(frozen=True)
class Pictures:
    """Pictures as samples: their folder, and how their pixels are normalised."""

    folder: Path
    normalisations: tuple[Normalisation, ...]


def row_of(
    name: str, data: bytes, samples: int, mixed: int, pictures: Pictures | None, rtl: int
) -> dict[str, Any]:
    """Quantise a float model and return the figures of its worst output, and its cycles."""
    begun = time.perf_counter()
    model = OnnxModel(prepared(data))
    (item,) = model.inputs
    if pictures is None:
        rng = np.random.default_rng(11)
        drawn = [{item.name: rng.normal(size=item.shape).astype(np.float32)} for _ in range(2 * samples)]
        learnt, fresh = drawn[:samples], drawn[samples:]
    else:
        read = load_samples(pictures.folder, [item], Reading(pictures.normalisations))
        learnt, fresh = read[0::2][:samples], read[1::2][:samples]
    row: dict[str, Any] = {"network": name, "samples": len(learnt)}
    kept: tuple[str, ...] = ()
    for form in ("int8", "mixed"):
        made = model.quantize(learnt, Settings(keep=kept))
        found = model.measure(made, fresh)
        row[form] = {
            "onnxruntime": asdict(worst_of(found.outputs)),
            "npu": asdict(worst_of(npu_figures(model, made, fresh))),
        }
        if form == "int8":
            row |= {"layers": len(found.layers), **estimated(made)}
            if (row["cycles"] or rtl + 1) <= rtl:
                row |= measured(made)
            kept = row["kept"] = keep_most_important(model, learnt, Settings(), mixed)
    return row | {"seconds": time.perf_counter() - begun}


def estimated(made: bytes) -> dict[str, Any]:
    """Return the estimated cycles of a model, or None and the message of the error of the estimate."""
    try:
        cycles = estimate_model(compile_model(made)).cycles
    except RuntimeError as error:
        return {"cycles": None, "estimate_failed": str(error)}
    return {"cycles": cycles}


def measured(made: bytes) -> dict[str, Any]:
    """Return the cycles of an int8 model on the RTL; raises RuntimeError if a tensor is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "int8.onnx")
        path.write_bytes(made)
        run = run_model(path, check=True)
    if run.verdict["match"] is not True:
        raise RuntimeError(f"the RTL differs from the golden model: {run.verdict}")
    return {"measured_cycles": run.cycles}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table in Markdown."""
    heads = ("network", "layers", "int8, onnxruntime", "int8, NPU", "mixed, onnxruntime", "mixed, NPU")
    lines = [
        f"| {' | '.join((*heads, 'layers in floats', 'cycles, estimate', 'cycles, RTL', 'ms at 1 GHz'))} |",
        f"|{' --- |' * (len(heads) + 4)}",
    ]
    for row in rows:
        cells = [row["network"], str(row["layers"])]
        for form in ("int8", "mixed"):
            for who in ("onnxruntime", "npu"):
                figures = row[form][who]
                sqnr = "exact" if figures["sqnr"] is None else f"{figures['sqnr']:.1f} dB"
                cells.append(f"{sqnr}, {figures['cosine']:.4f}")
        cells.append(", ".join(row["kept"]))
        cycles = [row["cycles"], row.get("measured_cycles")]
        cells += ["-" if number is None else f"{number:,.0f}" for number in cycles]
        best = cycles[1] or cycles[0]
        cells.append("-" if best is None else f"{best / 1e6:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all networks that have no row yet, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantize", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the rows")
    parser.add_argument("models", nargs="*", help=f"float ONNX models, or some of {', '.join(NAMES)}")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--mixed", type=int, default=2, help="layers that stay in floats (default: 2)")
    parser.add_argument("--samples", type=int, default=4, help="samples to learn and to measure (default: 4)")
    parser.add_argument("--data", type=Path, help="folder of pictures, as samples of the models")
    parser.add_argument("--mean", default="0", help="with --data: numbers to subtract from the pixels")
    parser.add_argument("--std", default="255", help="with --data: numbers to divide the pixels by")
    parser.add_argument("--shape", help="shape of an open input, as x=1,3,320,320")
    parser.add_argument("--rtl", type=int, default=0, help="largest number of cycles to run on the RTL")
    given = parser.parse_intermixed_args()
    mean, std = (tuple(map(float, text.split(","))) for text in (given.mean, given.std))
    pictures = Pictures(given.data, (Normalisation(mean, std),)) if given.data else None
    shapes = {}
    if given.shape:
        input_name, _, sizes = given.shape.rpartition("=")
        shapes[input_name] = tuple(map(int, sizes.split(",")))
    given.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for model in given.models or NAMES:
        name = Path(model).stem
        place = given.folder / f"{name}.json"
        if not place.exists():
            if model in NAMES:
                network, outputs = (MAKE["NETWORKS"] | MAKE["PUBLISHED"])[model]()
                data = network.model(outputs).SerializeToString()
            else:
                data = Path(model).read_bytes()
            with using_options(shapes=shapes):
                row = row_of(name, data, given.samples, given.mixed, pictures, given.rtl)
            text = json.dumps(row, indent=2)
            place.write_text(text + "\n")
        rows.append(json.loads(place.read_text()))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))
    if given.json is not None:
        given.json.write_text(json.dumps({"schema_version": 1, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
