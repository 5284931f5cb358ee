"""Kinds of files that commands read: valid samples, changes that know the format, and readers."""

from __future__ import annotations

import hashlib
import io
import json
import random
import runpy
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import convert_model_to_external_data
from PIL import Image

from rkcosim.apis.tnn.loader import write_network
from rkcosim.base import BAD_INPUT
from rkcosim.base.files import identify
from rkcosim.cli.regcmd_dump import dumped
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.compiler.batch import one_of
from rkcosim.compiler.model import TensorInfo
from rkcosim.compiler.quantization import ModelInput
from rkcosim.driver.core_port import Kick
from rkcosim.driver.kernel.structs import RknpuTask
from rkcosim.engines.snapshots.contents import read_snapshot
from rkcosim.engines.snapshots.file import SnapshotFile
from rkcosim.measure.models.calibration import Reading, load_samples
from rkcosim.measure.models.input_files import load_archive, load_batch
from rkcosim.measure.perf import layer_models
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.perf.estimator.document import as_json
from rkcosim.measure.report.data import read
from rkcosim.regcmd import words_to_bytes
from rkcosim.regcmd.job import interrupt_bits
from rkcosim.regcmd.lint import lint
from rkcosim.rknn_api.toolkit.hybrid import hybrid_text, read_hybrid
from rkcosim.rknn_file import read_rknn
from rkcosim.rknn_file.info import info_json, info_lines
from rkcosim.rknn_file.opening import open_file
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from rkcosim.verify.streams.capture import import_capture
from rkcosim.verify.streams.sources import Source, open_source
from rkcosim.verify.streams.stream import Region, Stream
from rkcosim.waves.decode import open_wave
from rkcosim.waves.events import Event, EventLog
from rkcosim.waves.events import load as load_events
from rkcosim.waves.events import save as save_events
from rkcosim.waves.listing import lines, listed
from rkcosim.waves.timeline import write_timeline
from tests.makers.rknn_containers import as_version_6
from tests.makers.rknn_files import as_version_2
from tests.makers.rknn_models import image_model
from tests.makers.small_tasks import add_task
from tests.makers.tflite_models import Tf
from tests.makers.tflite_networks import keywords
from tools.file_fuzz.changes import EXTREMES, mutated, mutated_value
from tools.file_fuzz.reports import Kind

_EXAMPLES = Path(__file__).parents[2] / "examples"
_DIGITS = _EXAMPLES / "digits" / "digits_int8.onnx"
_BUS = _EXAMPLES / "waves"


def _small_model() -> bytes:
    """An ONNX model in int8 with one convolution, for which readers need little time."""
    return image_model(kernels=16, size=(4, 4))


def _small_stream() -> Stream:
    """A sum of two cubes of 64 bytes, with its memory."""
    base, data = 0x0020_0000, np.arange(256, dtype=np.uint8)
    task = add_task(base + 0x1000, base + 0x1040, base + 0x1080, 1, 2)
    kick = Kick(base, task.amount, 1, interrupt_bits("DPU_0", "DPU_1"))
    words = np.frombuffer(words_to_bytes(task.words()), np.uint8)
    return Stream(kick, [Region("words", base, words), Region("data", base + 0x1000, data)])


def _stream(folder: Path) -> Path:
    path = folder / "stream.json"
    _small_stream().save(path)
    return path


def _other_streams() -> list[bytes]:
    """A convolution with random settings."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.json"
        draw_case("conv int8", 1, 0).stream().save(path)
        return [path.read_bytes()]


def _listing(folder: Path) -> Path:
    """Write a stream as text, with its memory."""
    path = folder / "stream.txt"
    _stream(folder).rename(folder / "stream.json")
    path.write_text("".join(f"{line}\n" for line in dumped(open_source([str(folder / "stream.json")]), True)))
    (folder / "stream.json").unlink()
    return path


def _words(folder: Path) -> Path:
    path = folder / "words.bin"
    path.write_bytes(words_to_bytes(open_source([str(_stream(folder))]).words))
    (folder / "stream.json").unlink()
    return path


def _read_commands(path: Path, **options: Any) -> None:
    """Everything that `rkcosim regcmd dump` and `lint` do with such a file."""
    source: Source = open_source([str(path)], **options)
    for _ in dumped(source, source.stream is not None):
        pass
    for program in source.programs:
        lint(program)


def _records(folder: Path) -> Path:
    """Write records of tasks of the driver, and beside them the memory with their lists."""
    path = folder / "records.bin"
    kick = _small_stream().kick
    amount = 2 * (kick.amount + 1) - 4
    path.write_bytes(bytes(RknpuTask(0, 0, 0x0D, 0x300, 0x1FFFF, 0, amount, 0, kick.base)))
    _words(folder)
    return path


def _read_records(path: Path) -> None:
    words = path.with_name("words.bin").read_bytes()
    _read_commands(path, records=True, memory=[(_small_stream().kick.base, words)])


def _capture(folder: Path) -> Path:
    stream = _small_stream()
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
    path.write_bytes(compile_model(_small_model()).save())
    return path


def _other_containers() -> list[bytes]:
    return [compile_model(_DIGITS.read_bytes()).save(), compile_model(_small_model(), cores=3).save()]


def _float_model() -> bytes:
    """An ONNX model in floating point: convolution, activation, pooling, layer of products, softmax."""
    rng = np.random.default_rng(2)
    shapes = {"w": (8, 2, 3, 3), "b": (8,), "v": (4, 8), "d": (4,)}
    tensors = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    constants = [onnx.numpy_helper.from_array(x.astype(np.float32), name) for name, x in tensors.items()]
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], "c", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        make("Relu", ["c"], ["r"], "r"),
        make("GlobalAveragePool", ["r"], ["p"], "p"),
        make("Flatten", ["p"], ["f"], "f"),
        make("Gemm", ["f", "v", "d"], ["m"], "m", transB=1),
        make("Softmax", ["m"], ["y"], "y", axis=1),
    ]
    info = onnx.helper.make_tensor_value_info
    ends = [info("x", 1, (1, 2, 6, 6))], [info("y", 1, (1, 4))]
    graph = onnx.helper.make_graph(nodes, "small", *ends, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def _other_onnx() -> list[bytes]:
    """The digits network, one in floating point, one with a loop, and one with functions and a branch."""
    body = onnx.parser.parse_graph(
        "body (int64 i, bool go, float[1,8] a) => (bool on, float[1,8] b) { on = Identity(go) b = Add(a, a) }"
    )
    text = """
        <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        both (float[1,8] x) => (float[1,8] y)
        <int64[1] n = {3}, bool[1] on = {1}>
        { a = own.twice(x)  go = Constant<value = bool {1}>()  m = Constant<value = int64 {3}>()
          y = Relu(a) }
        <domain: "own", opset_import: ["" : 17]> twice (x) => (y) { y = Add(x, x) }
    """
    model = onnx.parser.parse_model(text)
    loop = onnx.helper.make_node("Loop", ["m", "go", "a"], ["l"], "loop", body=body)
    model.graph.node.insert(3, loop)
    model.graph.node[4].input[0] = "l"
    return [_DIGITS.read_bytes(), _float_model(), model.SerializeToString()]


def _external(folder: Path) -> Path:
    """Write a model whose tensors are in a file beside it."""
    path = folder / "model.onnx"
    model = onnx.load_model_from_string(_float_model())
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, path)
    return path


def _tnn(folder: Path) -> Path:
    """Write the two files of a network of TNN, and a copy of the second, which is changed."""
    convert = runpy.run_path(str(_DIGITS.parents[1] / "tnn" / "from_onnx.py"))["convert"]
    path = folder / "model.tnnproto"
    proto, arrays = write_network(convert(onnx.load_model_from_string(_float_model())))
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
    """Write a small network of TFLite: two convolutions, a pooling and a product."""
    t = Tf()
    y = t.depthwise(t.conv(t.input((1, 4, 5, 8)), 16, 3, 2, FusedActivationFunction=3), 3)
    y = t.add("RESHAPE", [y, t.ints([1, 96])], (1, 96), scale=t.items[y].scale)
    path = folder / "model.tflite"
    path.write_bytes(t.bytes(t.add("SOFTMAX", [t.dense(y, 5)], (1, 5), scale=1 / 256, zero=-128, Beta=1.0)))
    return path


def _other_tflite() -> list[bytes]:
    return [keywords()]


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
        header = mutated_value(header, rng)
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


def _large_arrays() -> list[bytes]:
    """Archives of some kilobytes that unpack to 250 MB: one array that is read, and one that is not."""
    found = []
    for name in ("images", "other"):
        file = io.BytesIO()
        head = io.BytesIO()
        shape = {"descr": "|u1", "fortran_order": False, "shape": (250, 1000, 1000)}
        np.lib.format.write_array_header_1_0(head, shape)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(head.getvalue())
                for _ in range(250):
                    member.write(bytes(1000 * 1000))
        found.append(file.getvalue())
    return found


def _read_arrays(path: Path) -> None:
    with path.open("rb") as file:
        load_archive(file, str(path), ("images", "labels", "scale"))
    _read_batch(path, (1, 1, 8, 8))


def _samples(folder: Path) -> Path:
    """Write a list of files of a data set, with its arrays and pictures."""
    path = folder / "set.txt"
    for number in range(3):
        np.save(folder / f"{number}.npy", np.full((1, 3, 8, 8), number, np.float32))
    _picture(folder, "png")
    path.write_text("0.npy\n1.npy\n2.npy\npicture.png\n")
    return path


def _read_samples(path: Path) -> None:
    load_samples(path, [ModelInput("x", (1, 3, 8, 8), np.dtype(np.float32))], Reading(limit=8))


def _rknn(folder: Path, cores: int = 1) -> Path:
    path = folder / "model.rknn"
    path.write_bytes(write_rknn(compile_model(_small_model(), cores=cores)))
    return path


def _other_rknn(cores: int = 1) -> list[bytes]:
    return [write_rknn(compile_model(_DIGITS.read_bytes(), cores=cores))]


def _rknn_nodes(folder: Path) -> Path:
    """Write a file in the form of the toolkit 2, with nodes and operators of the host."""
    path = folder / "model.rknn"
    compiled = compile_model(layer_models.conv(16, 8, (4, 4), int8=True, kernel=1), reuse=True)
    path.write_bytes(as_version_6(read_rknn(write_rknn(compiled))))
    return path


def _rknn_old(folder: Path) -> Path:
    """Write a file of container version 2, of the toolkits 1.x."""
    path = folder / "model.rknn"
    compiled = compile_model(layer_models.conv(16, 8, (4, 4), int8=True, kernel=1), reuse=True)
    path.write_bytes(as_version_2(write_rknn(compiled)))
    return path


def _other_old_rknn() -> list[bytes]:
    """Files with compressed weights, and in container version 1."""
    compiled = compile_model(layer_models.conv(16, 8, (4, 4), int8=True, kernel=1), reuse=True)
    return [as_version_2(write_rknn(compiled), compress=True), as_version_2(write_rknn(compiled), short=32)]


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


def _onnx(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(_small_model())
    return path


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


def _bus_wave(folder: Path) -> Path:
    """A logic analyser's file with its map, of which the file is changed."""
    for name in ("analyser.toml", "analyser.vcd"):
        shutil.copy(_BUS / name, folder)
    return folder / "analyser.vcd"


def _port_map(folder: Path) -> Path:
    _bus_wave(folder)
    return folder / "analyser.toml"


def _read_bus(path: Path, reader: str) -> None:
    wave = open_wave(path.with_suffix(".vcd"), reader=reader, ports=path.with_suffix(".toml"))
    assert list(lines(listed(wave)))


def _picture(folder: Path, form: str) -> Path:
    pixels = np.random.default_rng(1).integers(0, 256, (9, 11, 3)).astype(np.uint8)
    path = folder / f"picture.{form}"
    Image.fromarray(pixels if form != "pgm" else pixels[:, :, 0]).save(path)
    return path


def _png(width: int, height: int) -> bytes:
    """A picture of one bit for each pixel, all 0, which is small for any size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((1, 0, 0, 0, 0))
    rows = zlib.compressobj(9)
    data = b"".join(rows.compress(bytes(1 + (width + 7) // 8)) for _ in range(height)) + rows.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _large_pngs() -> list[bytes]:
    """Pictures of some kilobytes with 64 million pixels, just allowed, and with 900 million."""
    return [_png(8000, 8000), _png(30_000, 30_000)]


def _array(folder: Path) -> Path:
    path = folder / "input.npy"
    np.save(path, np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8))
    return path


def _read_batch(path: Path, shape: tuple[int, ...]) -> None:
    load_batch([path], [TensorInfo("x", shape, np.dtype(np.float32), 1.0, 0)], None)


_RKNN = partial(Kind, read=_read_rknn, codes=(BAD_INPUT,))

KINDS: dict[str, Kind] = {
    "stream": Kind(_stream, _read_commands, text=True, others=_other_streams),
    "stream as text": Kind(_listing, _read_commands),
    "words": Kind(_words, _read_commands),
    "records of tasks": Kind(_records, _read_records),
    "capture": Kind(_capture, import_capture, text=True),
    "container": Kind(_container, open_file, change=_change_container, others=_other_containers),
    "snapshot": Kind(_snapshot, read_snapshot, change=_change_snapshot),
    "ONNX model": Kind(_onnx, open_file, others=_other_onnx),
    "fields of an ONNX model": Kind(_onnx, open_file, change=_change_onnx, others=_other_onnx),
    "ONNX model with a file of tensors": Kind(_external, open_file, change=_change_onnx, sound=False),
    "TNN network": Kind(_tnn, open_file, change=_change_tnn),
    "TFLite model": Kind(_tflite, open_file, others=_other_tflite),
    "tables of hybrid quantisation": Kind(_hybrid, _read_hybrid, change=_change_hybrid),
    "list of a data set": Kind(_samples, _read_samples),
    "report": Kind(_report, read, text=True),
    "arrays": Kind(_arrays, _read_arrays, others=_large_arrays),
    "array": Kind(_array, partial(_read_batch, shape=(1, 1, 8, 8))),
    "event log, Arrow": Kind(partial(_event_log, suffix=".arrow"), _read_event_log),
    "event log, Parquet": Kind(partial(_event_log, suffix=".parquet"), _read_event_log),
    "VCD by vcdvcd": Kind(_vcd, partial(_read_wave, reader="vcdvcd")),
    "VCD by pywellen": Kind(_vcd, partial(_read_wave, reader="pywellen")),
    "FST": Kind(_fst, partial(_read_wave, reader="pywellen")),
    "VCD of a bus": Kind(_bus_wave, partial(_read_bus, reader="vcdvcd")),
    "map of ports": Kind(_port_map, partial(_read_bus, reader="vcdvcd")),
    **{
        f"picture, {form.upper()}": Kind(
            partial(_picture, form=form),
            partial(_read_batch, shape=(1, 3, 8, 8)),
            others=_large_pngs if form == "png" else tuple,
        )
        for form in ("png", "bmp", "pgm", "jpeg")
    },
    "rknn": _RKNN(_rknn, others=_other_rknn),
    "rknn of three cores": _RKNN(partial(_rknn, cores=3), others=partial(_other_rknn, cores=3)),
    "rknn with nodes": _RKNN(_rknn_nodes),
    "rknn of the toolkits 1.x": _RKNN(_rknn_old, others=_other_old_rknn),
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


def of_sample(path: Path) -> Kind:
    name = identify(path.read_bytes())
    if name not in _BY_CONTENTS:
        raise ValueError(f"{path}: {name}; samples may be of the kinds {', '.join(_BY_CONTENTS)}")
    return replace(_BY_CONTENTS[name], make=lambda folder: Path(shutil.copy(path, folder / path.name)))
