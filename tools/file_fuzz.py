"""Fuzzing of all kinds of files that commands read: each must give an error or a result in bounded time.

`fuzz_files` changes valid files (bytes, words, pieces; in JSON documents also values, types and names), often
to very large sizes, and passes each to the reader that the commands use.  A reader may accept the file,
or refuse it with one of the errors that the command line prints as one line.  A `.rknn` file must be refused
as bad input (exit code 2) or run to its end: an error of the device (exit code 3) is a failure there, because
the check of the command lists should have refused the file.  Everything else is a failure: another exception,
an input that takes longer than the limit, growing memory, and files or descriptors that remain.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import hashlib
import io
import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image

from rkcosim.apis.tnn.loader import write_network
from rkcosim.base import BAD_INPUT, DEVICE_ERROR
from rkcosim.base.files import identify
from rkcosim.base.processes import resident
from rkcosim.cli.estimate import as_json
from rkcosim.cli.exits import exit_code
from rkcosim.cli.inputs import load_archive, load_batch
from rkcosim.compiler import LoadedModel, compile_model, litert
from rkcosim.compiler.batch import one_of
from rkcosim.compiler.model import TensorInfo
from rkcosim.engines.snapshots.contents import read_snapshot
from rkcosim.engines.snapshots.file import SnapshotFile
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.report.data import read
from rkcosim.rknn_api.toolkit.hybrid import hybrid_text, read_hybrid
from rkcosim.rknn_file import read_rknn
from rkcosim.rknn_file.info import info_json, info_lines
from rkcosim.rknn_file.opening import open_file
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from rkcosim.verify.streams.capture import import_capture
from rkcosim.verify.streams.sources import open_source
from rkcosim.waves.decode import open_wave
from rkcosim.waves.events import Event, EventLog
from rkcosim.waves.events import load as load_events
from rkcosim.waves.events import save as save_events
from rkcosim.waves.timeline import write_timeline

BOUND = 20.0
"""Largest time for one input in seconds."""

GROWTH = 512 << 20
"""Largest growth of the process in bytes from the first inputs to the end of a run."""

WARM = 50
"""Number of inputs of a kind before memory is measured for the first time."""

EXTREMES = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 1 << 31, 1 << 40, 1 << 63, 1 << 200, 1e308, -0.5, float("nan"), True, None),
    *("", "0x10", "-1", "../../etc/hostname", "/dev/zero", "\0", "x" * 100_000, [], {}, [[]] * 1000),
)


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Members
    -------
    make : writes valid files to an empty folder and returns the one that is passed to the reader.
    read : the reader; returns if it accepts the file, raises if it refuses it.
    text : whether the file is a JSON document, whose values are changed too.
    change : changes a valid file, given its bytes, and corrects its checksums.
    codes : exit codes with which the reader may refuse a file.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    text: bool = False
    change: Callable[[Path, bytes, random.Random], None] | None = None
    codes: tuple[int, ...] = (BAD_INPUT, DEVICE_ERROR)


@dataclass
class KindReport:
    """Results of the inputs of a kind: number of accepted and refused inputs, and failures."""

    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return self.taken + sum(self.refused.values()) + len(self.wrong)


class _TooLong(BaseException):
    pass


def fuzz_files(
    seed: int,
    inputs: int,
    kinds: list[str] | None = None,
    *,
    samples: Sequence[Path] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, KindReport]:
    """Pass changed files to the readers of the commands, all kinds in turn.

    Parameters
    ----------
    seed : seed of all random numbers.
    inputs : total number of files.
    kinds : names of `KINDS`; default: all, or none if there are samples.
    samples : valid files of the caller; copies of them are changed.  Their contents determine their kind.
    progress : called with the number of inputs done.

    Returns
    -------
    dict
        A report for each kind; its `wrong` is empty if there were no failures.

    Raises
    ------
    KeyError
        If a kind does not exist.
    ValueError
        If a sample has a kind whose reader is not tested.
    """
    chosen = {name: KINDS[name] for name in ([] if samples and not kinds else kinds or KINDS)}
    chosen |= {path.name: _of_sample(path) for path in samples}
    reports = {name: KindReport() for name in chosen}
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, _quiet_alarm():
        sound: dict[str, tuple[Path, bytes]] = {}
        for name, kind in chosen.items():
            place = Path(folder) / name.replace(" ", "_")
            place.mkdir()
            path = kind.make(place)
            sound[name] = (path, path.read_bytes())
        litert.start()  # its pipes stay open
        before, descriptors = 0, 0
        for number in range(inputs):
            name = list(chosen)[number % len(chosen)]
            path, data = sound[name]
            change = chosen[name].change
            if change is not None and rng.random() < 0.8:
                change(path, data, rng)
            else:
                path.write_bytes(mutated(data, rng, chosen[name].text))
            around = sorted(path.parent.rglob("*"))
            _one(chosen[name], path, reports[name])
            if sorted(path.parent.rglob("*")) != around:
                reports[name].wrong.append(f"input {number}: files were created or removed")
            if number == WARM * len(chosen):
                before, descriptors = _resident(), len(os.listdir("/proc/self/fd"))
            progress(number + 1)
        if before:
            grown, left = _resident() - before, len(os.listdir("/proc/self/fd")) - descriptors
            last = reports[next(reversed(reports))]
            if grown > GROWTH:
                last.wrong.append(f"memory grew by {grown:,} bytes")
            if left > 0:
                last.wrong.append(f"{left} descriptors remain open")
    return reports


def _one(kind: Kind, path: Path, report: KindReport) -> None:
    begin = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, BOUND)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            kind.read(path)
        report.taken += 1
    except _TooLong:
        report.wrong.append(f"takes longer than {BOUND:g} s")
    except MemoryError:
        report.wrong.append("runs out of memory")
    except Exception as error:
        if exit_code(error) in kind.codes:
            report.refused[type(error).__name__] += 1
        else:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            report.wrong.append(f"{type(error).__name__}: {error} ({place})")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    report.slowest = max(report.slowest, time.monotonic() - begin)


@contextlib.contextmanager
def _quiet_alarm() -> Iterator[None]:
    def ring(number: int, frame: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return resident()


# -- changes ---------------------------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random, text: bool) -> bytes:
    """Change a part of the file: usually a few bytes, in a JSON document usually a value."""
    if text and rng.random() < 0.8:
        document = json.loads(data)
        for _ in range(rng.randint(1, 3)):
            document = _mutated_value(document, rng)
        return json.dumps(document).encode()
    changed = bytearray(data)
    span = len(changed) if rng.random() < 0.5 else min(len(changed), 6000)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not changed:
            break
        at = rng.randrange(max(1, min(span, len(changed))))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                size = rng.choice((2, 4, 8))
                word = (rng.choice(EXTREMES) & ((1 << 8 * size) - 1)).to_bytes(
                    size, rng.choice(("little", "big"))
                )
                changed[at : at + size] = word[: len(changed) - at]
            case 2:
                del changed[at : at + rng.randint(1, 8)]
            case 3:
                changed[at:at] = changed[at : at + rng.randint(1, 64)]
            case _:
                changed[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05 and changed:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def _mutated_value(document: Any, rng: random.Random) -> Any:
    """Replace, remove, duplicate or rename one value somewhere within the document."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in items:
            places.append((value, key))
            walk(inner)

    walk(document)
    if not places or rng.random() < 0.01:
        return copy.deepcopy(rng.choice(_VALUES))
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 1:
            holder[f"{key}x"] = holder.pop(key)
        case 2 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = holder[key] + rng.choice((-1, 1, 16, 1 << 20, 1 << 32))
        case 2 if isinstance(holder[key], str) and holder[key]:
            text = list(holder[key])
            text[rng.randrange(len(text))] = rng.choice("0123456789abcdefxX-_./\\ \u00e9")
            holder[key] = "".join(text)
        case _:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
    return document


# -- kinds of files --------------------------------------------------------------------------------

_DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"


def _stream(folder: Path) -> Path:
    """Write the stream of a small convolution."""
    path = folder / "stream.json"
    draw_case("conv int8", 1, 0).stream().save(path)
    return path


def _capture(folder: Path) -> Path:
    stream = draw_case("conv int8", 1, 0).stream()
    memory = []
    for n, region in enumerate(stream.regions):
        (folder / f"{n}.bin").write_bytes(region.data.tobytes())
        memory.append({"file": f"{n}.bin", "address": f"0x{region.address:x}"})
    kick = stream.kick
    tasks = {"address": f"0x{kick.base:x}", "amount": 2 * (kick.amount + 1) - 4, "count": kick.tasks}
    path = folder / "capture.json"
    path.write_text(json.dumps({"schema_version": 1, "memory": memory, "tasks": tasks, "core": 0}))
    return path


def _container(folder: Path) -> Path:
    path = folder / "model.rknpu"
    path.write_bytes(compile_model(_DIGITS.read_bytes()).save())
    return path


def _tnn(folder: Path) -> Path:
    """Write the two files of a network of TNN, and a copy of the second, which is changed."""
    convert = runpy.run_path(str(_DIGITS.parents[1] / "tnn" / "from_onnx.py"))["convert"]
    path = folder / "model.tnnproto"
    proto, arrays = write_network(convert(onnx.load(_DIGITS)))
    path.write_bytes(proto)
    for ending in (".tnnmodel", ".sound"):
        path.with_suffix(ending).write_bytes(arrays)
    return path


def _change_tnn(path: Path, data: bytes, rng: random.Random) -> None:
    arrays = path.with_suffix(".sound").read_bytes()
    if rng.random() < 0.5:
        data = mutated(data, rng, text=False)
    else:
        arrays = mutated(arrays, rng, text=False)
    path.write_bytes(data)
    path.with_suffix(".tnnmodel").write_bytes(arrays)


def _tflite(folder: Path) -> Path:
    """Write a small network of TFLite."""
    from tests.models.tflite_networks import keywords

    path = folder / "model.tflite"
    path.write_bytes(keywords())
    return path


def _hybrid(folder: Path) -> Path:
    """Write the two tables of `hybrid_quantization_step1`, and a copy of the second, which is changed."""
    layers = {f"t{n}_output": f"node {n}" for n in range(6)}
    path = folder / "x.data"
    options = ["--method", "minmax", "--per-channel", "--mean=1,2,3"]
    path.write_text(json.dumps({"dataset": "/data/set.txt", "quantising": options, "layers": layers}))
    text = hybrid_text(["t1_output", "t4_output"], list(layers))
    for ending in (".cfg", ".sound"):
        path.with_suffix(ending).write_text(text)
    return path


def _change_hybrid(path: Path, data: bytes, rng: random.Random) -> None:
    text = path.with_suffix(".sound").read_bytes()
    table = rng.random() < 0.5
    path.write_bytes(mutated(data, rng, text=True) if table else data)
    path.with_suffix(".cfg").write_bytes(text if table else mutated(text, rng, text=False))


def _read_hybrid(path: Path) -> None:
    read_hybrid(str(path), str(path.with_suffix(".cfg")))


def _report(folder: Path) -> Path:
    path = folder / "report.json"
    path.write_text(json.dumps(as_json("digits", estimate_model(_DIGITS), 600, [])))
    return path


def _change_container(path: Path, data: bytes, rng: random.Random) -> None:
    changed = mutated(data[:-32], rng, text=False)
    path.write_bytes(changed + hashlib.sha256(changed).digest())


def _snapshot(folder: Path) -> Path:
    path = folder / "run.snap"
    words = ["regcmd", "run", str(_stream(folder)), "--save", str(path), "--at", "job", "-q"]
    subprocess.run([sys.executable, "-m", "rkcosim.cli.main", *words], check=True, capture_output=True)
    return path


def _change_snapshot(path: Path, data: bytes, rng: random.Random) -> None:
    path.write_bytes(data)
    sound = SnapshotFile.read(path)
    header, blocks = json.loads(json.dumps(sound.header)), dict(sound.blocks)
    if rng.random() < 0.5:
        header = _mutated_value(header, rng)
        if not isinstance(header, dict):
            path.write_bytes(mutated(data, rng, text=False))
            return
    else:
        name = rng.choice([name for name in blocks if name != "state"])  # only the model can check the state
        blocks[name] = mutated(blocks[name], rng, text=False)
    SnapshotFile(header, blocks).write(path)


def _arrays(folder: Path) -> Path:
    path = folder / "inputs.npz"
    rng = np.random.default_rng(1)
    np.savez_compressed(path, images=rng.integers(0, 16, (4, 1, 8, 8)).astype(np.uint8), labels=np.arange(4))
    return path


def _read_arrays(path: Path) -> None:
    with path.open("rb") as file:
        load_archive(file, str(path))


def _rknn(folder: Path, cores: int = 1) -> Path:
    path = folder / "model.rknn"
    path.write_bytes(write_rknn(compile_model(_DIGITS.read_bytes(), cores=cores)))
    return path


def _read_rknn(path: Path) -> None:
    """Everything that commands do with such a file, up to a run on the golden model."""
    file = read_rknn(path.read_bytes())
    list(info_lines(file, words=True))
    json.dumps(info_json(file))
    open_source([str(path)])
    model = one_of(open_file(path))
    with LoadedModel(model, GoldenDriver()) as loaded:
        for index, info in enumerate(model.inputs):
            loaded.set_input(index, np.zeros(info.shape, np.float32))
        loaded.run()
        for index in range(len(model.outputs)):
            loaded.get_output(index)


def _change_onnx(path: Path, data: bytes, rng: random.Random) -> None:
    """Change fields of the model: sizes, numbers, names, places of data in other files, and whole parts."""
    model = onnx.load_model_from_string(data)
    for _ in range(rng.randint(1, 3)):
        graph = model.graph
        node, tensor = rng.choice(graph.node), rng.choice(graph.initializer)
        value = rng.choice((*EXTREMES[:-1], -1, -(1 << 63), 2, 3, 1 << 40))
        dims = rng.choice((*graph.input, *graph.output)).type.tensor_type.shape.dim
        match rng.randrange(10):
            case 0 if dims:
                rng.choice(dims).dim_value = value
            case 1 if tensor.dims:
                tensor.dims[rng.randrange(len(tensor.dims))] = value
            case 2:
                tensor.data_type = rng.randrange(40)
            case 3 if node.attribute:
                item = rng.choice(node.attribute)
                item.i, item.f = value, float(value)
                item.ints[:] = [rng.choice((value, *item.ints)) for _ in range(rng.randint(0, 9))]
                item.type = rng.randrange(15)
            case 4:
                names = [name for other in graph.node for name in (*other.input, *other.output)]
                places = node.input if rng.random() < 0.7 and node.input else node.output
                places[rng.randrange(len(places))] = rng.choice(
                    (*names, "", "x" * 10_000, "../../x", "\x1b[2J")
                )
            case 5:
                node.op_type = rng.choice(
                    ("Loop", "If", "Scan", "Reshape", "Tile", "Expand", "Range", "Resize")
                )
            case 6:
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for key, text in (("location", rng.choice(_PLACES)), ("length", str(value)), ("offset", "0")):
                    tensor.external_data.add(key=key, value=text)
            case 7:
                graph.node.insert(rng.randrange(len(graph.node)), node)
            case 8:
                del graph.node[rng.randrange(len(graph.node))]
                if not graph.node:
                    break
            case _:
                model.opset_import[0].version = rng.choice((value & (1 << 63) - 1, 1, 7, 13, 30))
    path.write_bytes(model.SerializeToString())


_PLACES = ("weights.bin", "../weights.bin", "/etc/hostname", "/dev/zero", "", "x" * 5000, "model.onnx")


def _event_log(folder: Path, suffix: str) -> Path:
    events = [
        Event("task", 100, 250, 0, 0, 0, "PC"),
        Event("write", 90, 91, 0, 0, 0, "CNA", address=0x1010, value=0x30, reason="fetched"),
        Event("stall", 200, 230, 0, 0, 0, "CNA", value=30, reason="stall_weight"),
        Event("irq", 250, 260, 0, 0, 0, "PC", value=10),
    ]
    events += [
        Event("burst", 105 + n, 205 + 20 * n, 0, 0, 0, "CNA", "FEATURE", 64 * n, 4, 128, "read", "", 80)
        for n in range(8)
    ]
    path = folder / f"log{suffix}"
    save_events(EventLog.of(events), path)
    return path


def _read_event_log(path: Path) -> None:
    """Everything that `rkcosim timeline` does with such a file."""
    log = load_events(path)
    log.layers()
    with tempfile.TemporaryDirectory() as folder:
        write_timeline(log, Path(folder) / "x.pftrace")


_VCD = """$timescale 1ns $end
$scope module top $end
$var wire 1 ! clock $end
$var wire 8 " data [7:0] $end
$var real 64 % level $end
$var string 1 # text $end
$upscope $end
$enddefinitions $end
#0
0!
b101 "
r0.5 %
sidle #
#5
1!
bx1 "
#10
0!
"""


def _vcd(folder: Path) -> Path:
    path = folder / "wave.vcd"
    path.write_text(_VCD)
    return path


def _fst(folder: Path) -> Path:
    """Convert the VCD file with GTKWave's program, which the Debian package of that name installs."""
    path, text = folder / "wave.fst", folder / "text.vcd"
    text.write_text(_VCD)
    subprocess.run(["vcd2fst", "-v", str(text), "-f", str(path)], check=True, capture_output=True)
    text.unlink()
    return path


def _read_wave(path: Path, reader: str) -> None:
    wave = open_wave(path, reader=reader)
    for item in wave.signals:
        wave.changes(item.name)


def _picture(folder: Path, form: str) -> Path:
    pixels = np.random.default_rng(1).integers(0, 256, (9, 11, 3)).astype(np.uint8)
    path = folder / f"picture.{form}"
    Image.fromarray(pixels if form != "pgm" else pixels[:, :, 0]).save(path)
    return path


def _array(folder: Path) -> Path:
    path = folder / "input.npy"
    np.save(path, np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8))
    return path


def _read_batch(path: Path, shape: tuple[int, ...]) -> None:
    load_batch([path], [TensorInfo("x", shape, np.dtype(np.float32), 1.0, 0)], None)


KINDS: dict[str, Kind] = {
    "stream": Kind(_stream, lambda path: open_source([str(path)]), text=True),
    "capture": Kind(_capture, import_capture, text=True),
    "container": Kind(_container, open_file, change=_change_container),
    "snapshot": Kind(_snapshot, read_snapshot, change=_change_snapshot),
    "ONNX model": Kind(lambda folder: Path(shutil.copy(_DIGITS, folder / "model.onnx")), open_file),
    "fields of an ONNX model": Kind(
        lambda folder: Path(shutil.copy(_DIGITS, folder / "model.onnx")), open_file, change=_change_onnx
    ),
    "TNN network": Kind(_tnn, open_file, change=_change_tnn),
    "TFLite model": Kind(_tflite, open_file),
    "tables of hybrid quantisation": Kind(_hybrid, _read_hybrid, change=_change_hybrid),
    "report": Kind(_report, read, text=True),
    "arrays": Kind(_arrays, _read_arrays),
    "array": Kind(_array, partial(_read_batch, shape=(1, 1, 8, 8))),
    "event log, Arrow": Kind(partial(_event_log, suffix=".arrow"), _read_event_log),
    "event log, Parquet": Kind(partial(_event_log, suffix=".parquet"), _read_event_log),
    "VCD by vcdvcd": Kind(_vcd, partial(_read_wave, reader="vcdvcd")),
    "VCD by pywellen": Kind(_vcd, partial(_read_wave, reader="pywellen")),
    "FST": Kind(_fst, partial(_read_wave, reader="pywellen")),
    **{
        f"picture, {form.upper()}": Kind(
            partial(_picture, form=form), partial(_read_batch, shape=(1, 3, 8, 8))
        )
        for form in ("png", "bmp", "pgm", "jpeg")
    },
    "rknn": Kind(_rknn, _read_rknn, codes=(BAD_INPUT,)),
    "rknn of three cores": Kind(partial(_rknn, cores=3), _read_rknn, codes=(BAD_INPUT,)),
}
"""Kinds of files by name."""

_BY_CONTENTS: dict[str, Kind] = {
    "stream file": KINDS["stream"],
    "capture's manifest": KINDS["capture"],
    "compiled model": KINDS["container"],
    "snapshot": KINDS["snapshot"],
    "report of a run": KINDS["report"],
    ".rknn file": KINDS["rknn"],
    "archive of arrays (.npz)": KINDS["arrays"],
    "ONNX model": KINDS["ONNX model"],
    "TFLite model": KINDS["TFLite model"],
}
"""Kinds by their names in `rkcosim.base.files`."""


def _of_sample(path: Path) -> Kind:
    name = identify(path.read_bytes())
    if name not in _BY_CONTENTS:
        raise ValueError(f"{path}: {name}; samples may be of the kinds {', '.join(_BY_CONTENTS)}")
    return replace(_BY_CONTENTS[name], make=lambda folder: Path(shutil.copy(path, folder / path.name)))
