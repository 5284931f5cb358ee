"""One file: its runtime's script alone and with the plug-in, and `rkcosim run` on the same inputs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.public_models.measure import Record
from rkcosim.waves.whole_file import whole_file

Array = npt.NDArray[Any]

STATIC = "only supports static-sized tensors"
"""LiteRT's words for a graph with sizes that depend on data, to which it applies no delegate by default."""

CUSTOM = "unresolved custom op"
"""The same for an operator that only its default delegate (XNNPACK) has: the script alone runs."""

SCRIPT = Path(__file__).with_name("script.py")


class ScriptError(Exception):
    """A script has ended with an error; the text is its last line."""


@dataclass(frozen=True)
class Found:
    """Results of a script.

    Members
    -------
    inputs, outputs : arrays of the runtime.
    takes, gives : name, scale (0 for none) and zero point of each.
    start : seconds until the model was ready.
    calls : seconds of each inference.
    document : the plug-in's JSON document.
    """

    inputs: list[Array]
    outputs: list[Array]
    takes: list[tuple[str, float, int]]
    gives: list[tuple[str, float, int]]
    start: float
    calls: list[float]
    document: dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A file, the shapes of its inputs by name, and the seed of their values."""

    path: Path
    shapes: dict[str, Sequence[int]]
    seed: int

    @property
    def channels_last(self) -> bool:
        """Whether the runtime's arrays have the channels last, unlike those of `rkcosim run`."""
        return self.path.suffix == ".tflite"


def measure(path: Path, part: Path, rtl: int, seed: int, seconds: float) -> None:
    """Measure a file and write its record after every stage, so that a process that ends leaves what it has.

    Parameters
    ----------
    path
        The model.
    part
        The record's file (JSON).
    rtl
        Use the RTL if an inference is estimated at no more cycles, and else the task-level golden model.
    seed
        Seed of the random inputs.
    seconds
        Limit of each script.
    """
    from rkcosim.base import version
    from rkcosim.compiler import ModelError
    from rkcosim.measure.models.run import run_model
    from rkcosim.rknn_file.opening import open_file
    from rkcosim.running.session import RunError

    record: Record = {"stage": "compile", "seconds": {}, "version": version()}

    def save(stage: str) -> None:
        record["stage"] = stage
        with whole_file(part) as file:
            file.write_text(json.dumps(record))

    def timed(stage: str, begun: float) -> None:
        record["seconds"][stage] = round(time.perf_counter() - begun, 2)

    save("compile")
    begun = time.perf_counter()
    try:
        shapes: dict[str, Sequence[int]] = {info.name: info.shape for info in open_file(path).inputs}
    except ModelError as error:
        record["refused"] = str(error).replace(f"{path}: ", "")
        shapes = {}
    subject = Subject(path, {} if path.suffix == ".tflite" else shapes, seed)
    timed("compile", begun)
    try:
        save("alone")
        alone = run_script(subject, None, seconds)
        record["alone"] = {"start": alone.start, "call": median(alone.calls)}
    except ScriptError as error:
        record["alone"] = {"error": str(error)}
    try:
        if "error" in record["alone"] or "refused" in record:
            save("plug-in")
            record["plugin"] = _of_plugin(run_script(subject, {"engine": "golden"}, seconds))
        else:
            save("run")
            begun = time.perf_counter()
            reals = [as_real(a, info, subject) for a, info in zip(alone.inputs, alone.takes, strict=True)]
            run = run_model(path, [reals], engine="golden", check=False)
            timed("run", begun)
            record["formula_cycles"] = sum(row.formula_cycles or 0 for row in run.layers)
            engine = {} if 0 < record["formula_cycles"] <= rtl else {"engine": "golden"}
            save("plug-in")
            with tempfile.TemporaryDirectory(prefix="rkcosim-") as name:
                try:
                    found = run_script(subject, {**engine, "parts": name}, seconds)
                except ScriptError as error:
                    if not any(words in str(error) for words in (STATIC, CUSTOM)):
                        raise
                    record["dynamic"] = True
                    engine = {**engine, "dynamic": "1"}
                    found = run_script(subject, {**engine, "parts": name}, seconds)
                record["plugin"] = _of_plugin(found)
                record["result"] = compare(found, run.results[0], subject)
                if not record["result"]["equal"]:
                    save("parts")
                    record["parts"] = check_parts(Path(name))
            if not record["result"]["equal"]:
                save("plain")
                plain = run_script(subject, engine, seconds, plain=True)
                record["plain"] = _of_plugin(plain)
                record["plain_result"] = compare(plain, run.results[0], subject)
        record["stage"] = "done"
    except (ScriptError, RunError) as error:
        record["error"] = str(error).replace(f"{path}: ", "")
        record["expected"] = "error" in record["alone"] or "refused" in record
    save(record["stage"])


def run_script(
    subject: Subject, options: dict[str, str] | None, seconds: float, plain: bool = False
) -> Found:
    """Run the script in a process of its own.

    Parameters
    ----------
    subject
        The file.
    options
        Those of the plug-in; None: the runtime alone.
    seconds
        Limit of the process.
    plain
        Whether the runtime computes its part with the kernels and without the optimisations that
        `rkcosim run` computes with.

    Raises
    ------
    ScriptError
        If it fails.
    """
    from rkcosim.apis.litert.library import delegate_library
    from rkcosim.apis.ort.library import provider_library

    with tempfile.TemporaryDirectory(prefix="rkcosim-") as name:
        results, document = Path(name, "results.npz"), Path(name, "run.json")
        words = [sys.executable, SCRIPT, subject.path, results, "--seed", subject.seed]
        words += ["--shapes", json.dumps({key: list(shape) for key, shape in subject.shapes.items()})]
        if plain:
            words.append("--plain")
        if options is not None:
            words += ["--plugin", delegate_library() if subject.channels_last else provider_library()]
            for key, value in {**options, "json": document}.items():
                words += ["--option", f"{key}={value}"]
        command = [str(word) for word in words]
        try:
            done = subprocess.run(command, timeout=seconds, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired as error:
            raise ScriptError(f"stopped after {seconds:.0f} s") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise ScriptError(_last_error(lines) if done.returncode > 0 else f"signal {-done.returncode}")
        with np.load(results) as file:
            told = json.loads(str(file["told"]))
            sides = [[file[f"{side} {n}"] for n in range(len(told[key]))] for side, key in SIDES]
        return Found(
            sides[0],
            sides[1],
            [(str(a), float(b), int(c)) for a, b, c in told["takes"]],
            [(str(a), float(b), int(c)) for a, b, c in told["gives"]],
            told["start"],
            told["calls"],
            json.loads(document.read_text(encoding="utf-8")) if document.is_file() else {},
        )


SIDES = (("input", "takes"), ("output", "gives"))


def _last_error(lines: Sequence[str]) -> str:
    """Return the text of the exception that ended a script, or what the runtime said before it."""
    last = max((n for n, line in enumerate(lines) if line.startswith("  ")), default=-1) + 1
    text = " ".join(lines[last:])
    if text.rstrip(":").isidentifier():  # an exception without text
        said = [line for line in lines if line.startswith(("WARNING: ", "ERROR: "))]
        text = ": ".join([text, *said[-1:]])
    return text


def _of_plugin(found: Found) -> dict[str, Any]:
    """Return what is kept of a run with the plug-in."""
    document, count = found.document, len(found.calls)
    parts = document["models"]
    inside = [sum(part["inference_seconds"][n] for part in parts) for n in range(count)]
    beside = [call - simulated for call, simulated in zip(found.calls, inside, strict=True)]
    cycles = [part["inference_cycles"][0] for part in parts]
    return {
        "operators": sum(graph["operators"] for graph in document["graphs"]),
        "taken": sum(graph["taken"] for graph in document["graphs"]),
        "parts": len(parts),
        "engine": parts[0]["engine"] if parts else None,
        "cycles": sum(cycles) if parts and None not in cycles else None,
        "start": found.start,
        "calls": count,
        "call": median(found.calls[1:] or found.calls),
        "simulated": median(inside[1:] or inside),
        "beside": median(beside[1:] or beside),
        "left": document["left"],
    }


def check_parts(folder: Path) -> list[bool]:
    """Return for each part whether `rkcosim run` has the same outputs, byte for byte."""
    from rkcosim.measure.models.run import run_model

    verdicts = []
    models = (p for p in folder.glob("part-*") if p.suffix != ".npy")
    for path in sorted(models, key=lambda path: int(path.stem.split("-")[1])):
        inputs, outputs = (
            [np.load(folder / f"{path.stem}-{side}-{n + 1}.npy") for n in range(count)]
            for side in ("input", "output")
            for count in [len(list(folder.glob(f"{path.stem}-{side}-*.npy")))]
        )
        run = run_model(path, [inputs], engine="golden", check=False)
        pairs = list(zip(outputs, run.results[0], strict=True))
        verdicts.append(all(a.astype(np.float32).tobytes() == b.tobytes() for a, b in pairs))
    return verdicts


def as_real(array: Array, detail: tuple[str, float, int], subject: Subject) -> Array:
    """Return an array of the runtime as `rkcosim run` takes and gives it."""
    from rkcosim.hostops.quantise import dequantize

    _, scale, zero = detail
    real = dequantize(array, scale, zero) if scale else np.asarray(array).astype(np.float32)
    return real.transpose(0, 3, 1, 2) if real.ndim == 4 and subject.channels_last else real


def compare(found: Found, expected: Sequence[Array], subject: Subject) -> dict[str, Any]:
    """Compare the outputs of a script with those of `rkcosim run`, byte for byte."""
    rows = []
    for array, detail, right in zip(found.outputs, found.gives, expected, strict=True):
        mine = np.ascontiguousarray(as_real(array, detail, subject))
        right = np.ascontiguousarray(right, np.float32)
        row: dict[str, Any] = {"name": detail[0], "elements": int(right.size)}
        row["equal"] = mine.shape == right.shape and mine.tobytes() == right.tobytes()
        if mine.shape != right.shape:
            row["shapes"] = [list(mine.shape), list(right.shape)]
        elif not row["equal"]:
            with np.errstate(invalid="ignore"):
                apart = np.abs(mine.astype(np.float64) - right)
            row["differing"] = int((mine != right).sum())
            worst, largest = float(np.nanmax(apart)), float(np.nanmax(np.abs(right)))
            row["steps"] = worst / detail[1] if detail[1] else None
            row["whole"] = array.dtype.kind in "iub" and not detail[1]
            row["relative"] = worst / largest if largest else None
        rows.append(row)
    return {"equal": all(row["equal"] for row in rows), "outputs": rows}
