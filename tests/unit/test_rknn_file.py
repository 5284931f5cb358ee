"""`.rknn` files that our writer makes: what they say, that they run as planned, what is refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.base import BAD_INPUT
from rkcosim.cli.exits import exit_code
from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.programs.task import Ref, Setting, Settings, Task
from rkcosim.measure.models.summary import nodes_line
from rkcosim.measure.perf import layer_models
from rkcosim.regcmd import disassemble, words_to_bytes
from rkcosim.rknn_file import RknnFileError, is_rknn, read_rknn, schema
from rkcosim.rknn_file.check import own_inputs
from rkcosim.rknn_file.compressed import decompress
from rkcosim.rknn_file.constants import weights
from rkcosim.rknn_file.container import FileTensor, read_node
from rkcosim.rknn_file.info import info_json, info_lines
from rkcosim.rknn_file.model import FileModel
from rkcosim.rknn_file.opening import jobs_by, open_model
from rkcosim.rknn_file.schema import Kind, NodeSlot
from rkcosim.rknn_file.tables import root_table
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.spec.layouts.compressed import SegmentCode
from rkcosim.spec.regs import registers
from rkcosim.spec.weight_code import HEADER_BYTES, HEADER_CLASSES, HEADER_FLAGS, HEADER_ZERO
from rkcosim.verify.crosscheck import file_check
from rkcosim.verify.crosscheck.file_check import FileChecker
from rkcosim.verify.crosscheck.file_meaning import NotJudged, judge
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from rkcosim.verify.streams.sources import open_source
from tests.extent import extent
from tests.makers.rknn_files import _Builder, as_version_2
from tests.makers.rknn_models import Qdq
from tests.twins.packed_weights import segment_places

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(scope="module")
def digits() -> CompiledModel:
    return compile_model(DIGITS.read_bytes(), reuse=True)


@pytest.fixture(scope="module")
def data(digits: CompiledModel) -> bytes:
    return write_rknn(digits)


def as_file(data: bytes, **options) -> FileModel:
    model = open_model(data, **options)
    assert isinstance(model, FileModel)
    return model


def outputs(model: CompiledModel, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    with LoadedModel(model, GoldenDriver()) as loaded:
        for index, info in enumerate(model.inputs):
            loaded.set_input(index, rng.normal(size=info.shape).astype(np.float32))
        loaded.run()
        return [loaded.get_output(index) for index in range(len(model.outputs))]


def test_a_written_file_says_what_the_plan_is(digits: CompiledModel, data: bytes):
    file = read_rknn(data)
    assert is_rknn(data) and file.ours and file.version == schema.Version.TOOLKIT_2
    names = [node.name for node in file.nodes if node.on_npu]
    assert names == [step.name for step in digits.plan.steps]
    assert file.plans == {1: [list(range(len(digits.plan.tasks)))]}
    refs = [
        s
        for task in digits.plan.tasks
        for s in task.settings
        if any("Ref" in repr(v) for v in s.fields.values())
    ]
    assert len(file.relocations) == len(refs) > 30
    conv = next(node for node in file.nodes if node.name == "dw1")
    assert conv.attributes["kernel_shape"] == (3, 3) and conv.attributes["group"] == 16
    for tensor in file.tensors:
        if tensor.activation and tensor.kind != Kind.OUTPUT:
            given = {item.name: item.tensor for item in digits.graph.inputs}
            place = digits.plan.places[given.get(tensor.name, tensor.name)]
            assert (tensor.offset, tensor.size) == (place.ref.offset, place.size)


def test_a_written_file_runs_like_the_plan(digits: CompiledModel, data: bytes):
    ours, theirs = outputs(digits), outputs(as_file(data))
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    bases = {"regcmd": 1 << 20, "weights": 1 << 24, "activations": 1 << 25}
    words = as_file(data).plan.task_list(bases)
    assert words == digits.plan.task_list(bases)


@pytest.mark.parametrize("how", ["chain", "node"])
def test_jobs_are_chains_or_nodes(data: bytes, how):
    with jobs_by(how):
        model = as_file(data)
    jobs = [segment for segment in model.plan.segments() if segment.host is None]
    assert len(jobs) == (1 if how == "chain" else len(model.plan.steps))
    assert sum(job.count for job in jobs) == len(model.plan.tasks)


LAYERS = {
    "conv": layer_models.conv(24, 40, (9, 11), int8=True, kernel=3, pad=1),
    "strides": layer_models.conv(3, 16, (20, 20), int8=True, kernel=3, stride=2, pad=1),
    "depthwise": layer_models.conv(40, 40, (9, 9), int8=True, kernel=3, pad=1, depthwise=True),
    "half": layer_models.conv(24, 40, (9, 11), int8=False, kernel=3, pad=1),
    "half depthwise": layer_models.conv(40, 40, (9, 9), int8=False, kernel=3, pad=1, depthwise=True),
    "add": layer_models.add((16, 12, 12), int8=True),
    "add of halves": layer_models.add((16, 12, 12), int8=False),
    "pool": layer_models.max_pool((16, 12, 12), 3, 2, 1, int8=True),
    "pool of halves": layer_models.max_pool((16, 12, 12), 3, 2, 1, int8=False),
    "concat": layer_models.concat((16, 8, 8), 2, int8=False),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_node_is_what_it_means(name: str):
    model = as_file(write_rknn(compile_model(LAYERS[name], reuse=True)), reuse=False)
    rng = np.random.default_rng(3)
    values = [rng.normal(size=info.shape).astype(np.float32) for info in model.inputs]
    with LoadedModel(model, GoldenDriver()) as loaded:
        for index, array in enumerate(values):
            loaded.set_input(index, array)
        loaded.run()
        checker = FileChecker(loaded, "first")
        assert checker.check(list(values)).match and checker.check_memory() is None
        assert checker.nodes and all(row.right for row in checker.nodes)
        checker.close()
        for index, step in enumerate(model.plan.steps):
            cubes, found = [loaded.tensor(t.name) for t in step.inputs], loaded.tensor(step.output.name)
            worse = found.copy()
            worse[-1, -1, -1] = worse[-1, -1, -1] - 3 if found.dtype == np.int8 else worse[-1, -1, -1] + 1
            judged = judge(model.file_plan, index, cubes, worse)
            assert not judged.right and judged.wrong.sum() == 1 and judged.wrong[-1, -1, -1]


def test_an_element_wise_node_of_several_tasks_is_judged():
    """Tasks for parts of the rows, as vendor-compiled files divide an Add between cores: the notches of the
    readers skip the rows of the other parts. Each is evaluated at its own addresses."""
    layer = layer_models.add((40, 12, 12), int8=True)
    model = as_file(write_rknn(compile_model(layer, reuse=True)), reuse=False)
    rng = np.random.default_rng(5)
    values = [rng.normal(size=info.shape).astype(np.float32) for info in model.inputs]
    with LoadedModel(model, GoldenDriver()) as loaded:
        for index, array in enumerate(values):
            loaded.set_input(index, array)
        loaded.run()
        (step,) = model.plan.steps
        cubes, found = [loaded.tensor(t.name) for t in step.inputs], loaded.tensor(step.output.name)
    (whole,) = model.plan.tasks
    assert step.output.cube == (40, 12, 12)
    model.plan.tasks[:] = [rows_of(whole, 0, 5), rows_of(whole, 5, 4), rows_of(whole, 9, 3)]
    assert judge(model.file_plan, 0, cubes, found).right
    assert judge(model.file_plan, 0, cubes, np.roll(found, 1, 1)).wrong.sum() > 1000
    assert judge(model.file_plan, 0, [cubes[0], np.roll(cubes[1], 1, 1)], found).wrong.sum() > 1000
    del model.plan.tasks[1]
    with pytest.raises(NotJudged, match="1,920 of its 5,760 elements follow from nothing"):
        judge(model.file_plan, 0, cubes, found)


def test_an_operand_that_a_convolution_repeats_is_judged():
    """A vendor's Add of one row and many: a depthwise convolution with a stride of 0 repeats the row into
    scratch memory, which the addition reads (nsbb/rknn_VT, sub2_after_add.rknn)."""
    layer = layer_models.add((16, 6, 8), int8=False)
    model = as_file(write_rknn(compile_model(layer, reuse=True)), reuse=False)
    plan = model.file_plan
    (step,), (whole,) = plan.steps, plan.tasks
    many, row = (np.random.default_rng(6).normal(size=(16, n, 8)).astype(np.float16) for n in (6, 1))
    scratch, ones = (
        Ref("activations", plan.activation_bytes),
        Ref("weights", -(-len(plan.weights) // 64) * 64),
    )
    plan.weights = bytearray(
        bytes(plan.weights).ljust(ones.offset, b"\0") + np.ones(16, np.float16).tobytes()
    )
    source = plan.place(step.inputs[1].name).ref

    def moved(setting: Setting) -> Setting:
        fields = dict(setting.fields)
        if setting.register == "EW_BASE_ADDR":
            fields = {name: scratch if isinstance(v, Ref) else v for name, v in fields.items()}
        return Setting(setting.block, setting.register, fields)

    repeats = [
        Setting(block, register, fields)
        for block, register, fields in (
            ("CNA", "CONV_CON1", {"CONV_MODE": 3}),
            ("CNA", "WEIGHT_SIZE2", {"WEIGHT_WIDTH": 1, "WEIGHT_HEIGHT": 1, "WEIGHT_KERNELS": 1}),
            ("CNA", "FEATURE_DATA_ADDR", {"FEATURE_BASE_ADDR": source}),
            ("CNA", "DCOMP_ADDR0", {"DECOMPRESS_ADDR0": ones}),
            ("DPU", "DST_BASE_ADDR", {"DST_BASE_ADDR": scratch}),
            ("DPU", "DST_SURF_STRIDE", {"DST_SURF_STRIDE": 6 * 8}),
            ("DPU", "DATA_CUBE_WIDTH", {"WIDTH": 7}),
            ("DPU", "DATA_CUBE_HEIGHT", {"HEIGHT": 5}),
        )
    ]
    first = replace(whole, blocks=("CNA", "CORE", "DPU"), settings=Settings(repeats))
    plan.tasks[:] = [first, replace(whole, settings=Settings([*map(moved, whole.settings)]))]
    assert judge(plan, 0, [many, row], many + row).right
    assert judge(plan, 0, [many, row], many + row[:, :, ::-1]).wrong.any()
    plan.weights[ones.offset] = 1
    with pytest.raises(NotJudged, match="a convolution scales its operand"):
        judge(plan, 0, [many, row], many + row)


def rows_of(task: Task, first: int, rows: int) -> Task:
    """Return an element-wise task of 12 x 12 pixels for some of the rows only."""
    changed = []
    for setting in task.settings:
        fields = dict(setting.fields)
        if setting.register in ("DST_BASE_ADDR", "SRC_BASE_ADDR", "EW_BASE_ADDR"):
            fields = {name: v + first * 12 * 16 if isinstance(v, Ref) else v for name, v in fields.items()}
        elif setting.register in ("SURF_NOTCH", "EW_SURF_NOTCH"):
            fields[f"{setting.register}{'_ADDR' * (setting.register == 'SURF_NOTCH')}"] = (12 - rows) * 12
        elif setting.register == "DATA_CUBE_HEIGHT":
            fields["HEIGHT"] = rows - 1
        changed.append(Setting(setting.block, setting.register, fields))
    return replace(task, settings=Settings(changed))


def test_weights_of_a_transposed_convolution():
    """24 channels and one kernel of 2 x 2, whose shape has the model's order, take 256 bytes in memory."""
    data = np.random.default_rng(0).integers(-128, 128, (2, 2, 2, 32)).astype(np.int8)  # rows, columns, ...
    tensor = FileTensor(
        1,
        "w",
        np.dtype(np.int8),
        schema.Layout.WEIGHTS,
        Kind.CONSTANT,
        (1, 1, 2, 2, 2, 32),
        (24, 1, 2, 2),
        data=data.tobytes(),
    )
    found = weights(tensor, 1, transposed=True)
    assert found.shape == (1, 24, 2, 2)
    assert np.array_equal(found[0], data[:, :, 0, :24].transpose(2, 0, 1))
    with pytest.raises(RknnFileError, match="need 1536 bytes, not 256"):
        weights(tensor, 1)


def test_what_cannot_be_computed_is_not_compared(data: bytes, monkeypatch: pytest.MonkeyPatch):
    """A node that cannot be judged has a reason and does not end the check."""
    model = as_file(data, reuse=False)

    def refuse(*_: object) -> object:
        raise RknnFileError("weights 'w' need more")

    monkeypatch.setattr("rkcosim.verify.crosscheck.file_meaning.step_weights", refuse)
    values = [np.zeros(info.shape, np.float32) for info in model.inputs]
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        checker = FileChecker(loaded, "first")
        assert checker.check(list(values)).match
        missing = checker.levels()["nodes_not_judged"]
        convs = sum(bool(task.macs) for task in model.plan.tasks)
        assert len(missing) == convs > 3 and all("weights 'w' need more" in row["why"] for row in missing)
        checker.close()


def test_a_check_names_the_node_that_is_wrong(data: bytes):
    model = as_file(data, reuse=False)
    values = [np.zeros(info.shape, np.float32) for info in model.inputs]
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        checker = FileChecker(loaded, "device")
        name = model.plan.steps[3].output.name
        loaded.memory(name)[5] ^= 0x40
        verdict = checker.check(list(values))
        assert verdict.first is not None and verdict.first.tensor == name
        assert verdict.first.coordinate == (5, 0, 0)
        assert [row.right for row in checker.nodes][3] is False
        checker.close()


def test_an_input_that_is_overwritten_later_is_judged_from_before(data: bytes):
    """As the padding lanes of a Softmax, or an Add in place: the task-level model keeps what a step reads
    before it runs, since the memory has other bytes at the end."""
    model = as_file(data, reuse=False)
    values = [np.ones(info.shape, np.float32) for info in model.inputs]
    (name,) = {tensor.name for tensor in model.plan.steps[3].inputs}
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        loaded.memory(name)[:] = 0x55  # as if a later task had written
        checker = FileChecker(loaded, "device")
        checker.check(list(values))
        assert [row.right for row in checker.nodes if row.step == 3] == [False]
        checker.close()
        model.plan.lost = {model.graph.root(name)}
        checker = FileChecker(loaded, "device")
        assert checker.check(list(values)).match
        assert [row.right for row in checker.nodes if row.step == 3] == [True]
        checker.close()


def unused(model: FileModel) -> int:
    """Return the offset of an activation byte that belongs to no tensor."""
    free = np.ones(model.plan.activation_bytes, bool)
    for _, start, size in model.plan.named_places(
        {"regcmd": -1 << 40, "weights": -1 << 40, "activations": 0}
    ):
        free[max(start, 0) : max(start + size, 0)] = False
    return int(np.flatnonzero(free)[-1])


@pytest.mark.parametrize("late, mine, match", [(9, 9, True), (9, 7, False), (None, 9, False)])
def test_padding_that_depends_on_the_order_of_a_tasks_reads_and_writes(
    data: bytes, late: int | None, mine: int, match: bool, monkeypatch: pytest.MonkeyPatch
):
    """The device's byte may be that of the other order, if there is a task that reads what it writes."""
    model = as_file(data, reuse=False)
    values = [np.zeros(info.shape, np.float32) for info in model.inputs]
    place = unused(model)
    tasks = {} if late is None else {0x1234: "Add 'sum', task 3 of the file"}
    monkeypatch.setattr(file_check, "own_inputs", lambda *_: tasks)

    class Late(LoadedModel):
        def run(self, *args: Any) -> Any:
            assert all(device.late == {0x1234} for device in self.driver.cores)
            report = super().run(*args)
            self.buffers["activations"].view()[place] = late
            return report

    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        checker = FileChecker(loaded, "device")
        monkeypatch.setattr(file_check, "LoadedModel", Late)
        assert checker.check(list(values)).match and checker.check_memory() is None
        assert checker.levels()["bytes_not_compared"] is None
        activations = loaded.buffers["activations"]
        activations.view()[place] = mine
        assert checker.check(list(values)).match
        assert checker.check_memory() == (None if match else activations.iova + place)
        found = checker.levels()["bytes_not_compared"]
        assert found == ({"tasks": list(tasks.values()), "depend": 1, "differ": 1} if match else None)
        line = nodes_line(checker.levels()).split("\n")[-1]
        assert line.startswith("not compared: 1 bytes of padding, 1 of them") == match
        checker.close()


def test_tasks_that_read_what_they_write_are_found(data: bytes):
    """A task whose output begins in the midst of its input; the file itself has none."""
    model = as_file(data, reuse=False)
    bases = {"regcmd": 1 << 20, "weights": 1 << 24, "activations": 1 << 25}
    assert own_inputs(model.file_plan, bases) == {}
    task = next(n for n, step in enumerate(model.plan.steps) if step.kind == "MaxPool")
    record = model.file_plan.file.records[model.file_plan.records[task]]
    relocations = model.file_plan.file.relocations
    own = {}
    for word in range(record.first, record.first + record.amount):
        if word in relocations:
            offset = registers().word.decode(int(model.file_plan.file.words[word]))["OFFSET"]
            own[registers().at(offset).path] = word
    source = relocations[own["PPU_RDMA.SRC_BASE_ADDR"]]
    relocations[own["PPU.DST_BASE_ADDR"]] = replace(source, offset=source.offset + 16)
    (found,) = own_inputs(model.file_plan, bases).items()
    assert found[0] == bases["regcmd"] + record.first * 8 and f"task {task} of the file" in found[1]


def test_plans_for_several_cores():
    wide = layer_models.conv(64, 96, (40, 40), int8=True, kernel=3, pad=1)
    compiled = compile_model(wide, reuse=True, cores=3)
    data = write_rknn(compiled)
    file = read_rknn(data)
    assert list(file.plans) == [3] and all(file.plans[3])
    model = as_file(data, cores=3)
    assert [len(s.parts) for s in model.plan.segments()] == [3]
    assert all(np.array_equal(a, b) for a, b in zip(outputs(compiled), outputs(model), strict=True))
    with pytest.raises(RknnFileError, match="without a plan for 2 cores; it has plans for 3"):
        open_model(data, cores=2)


@pytest.mark.parametrize("cores", [1, 3])
def test_a_tensor_that_several_cores_write_is_known_to_each(cores: int, tmp_path: Path):
    """The lists of one core write a part of it, so that a reader finds holes there (mobilenetv2-rk3588 of
    swdee/go-rknnlite-data c58e7b3b on three cores). What one core alone writes in one job is not held."""
    net = Qdq()
    x = net.conv(net.input("x", (1, 32, 40, 40), 0.02, 3), 32, 64, 3, 0.05, -7)
    net.output(net.conv(x, 64, 32, 3, 0.3, 5), "y", (1, 32, 36, 36))
    path = tmp_path / "cores.rknn"
    path.write_bytes(write_rknn(compile_model(net.bytes(), reuse=True, cores=cores)))
    source = open_source([str(path)], cores=cores)
    assert len({program.core for program in source.programs}) == cores
    names = {address: name for name, address, _ in source.places}
    held = {names[address] for address, _ in source.programs[0].held}
    (between,) = (
        set(names.values()) - {"x", "y"} - {name for name in names.values() if name.startswith("conv")}
    )
    assert held == ({"x"} if cores == 1 else {"x", between, "y"})


def test_what_the_command_shows(data: bytes, tmp_path: Path):
    file = read_rknn(data)
    lines = list(info_lines(file, words=True))
    assert any("dw1" in line and "1x16x16x16 int8" in line for line in lines)
    assert any("CNA.FEATURE_DATA_ADDR" in line and "image + 0" in line for line in lines)
    assert "input image: mean 0, std 1, rgb2bgr false, layout NHWC" in lines
    assert "host operators: 1 Softmax, 1 Quantize, 1 Dequantize" in lines
    said = json.loads(json.dumps(info_json(file)))
    assert said["plans"] == {"1": [10]} and len(said["addresses"]) == len(file.relocations)
    assert {"register": "CNA.DCOMP_ADDR0", "name": "stem.weight.0"}.items() <= said["addresses"][1].items()
    path = tmp_path / "digits.rknn"
    path.write_bytes(data)
    source = open_source([str(path)])
    assert [task.title for task in source.programs[0].tasks][:2] == ["stem", "dw1"]
    assert any("pool_QuantizeLinear_Output" in name for name, _, _ in source.places)


REFUSED = {
    "no flatbuffer, as toolkit 1 for the RK1808 in Sologala/nanodet_rknn": (
        lambda data: (data[:8] + (1).to_bytes(8, "little") + data[16:]).replace(
            b'"target_platform":["rk3588"]', b'"target_platform":["RK1808"]'
        ),
        "for RK1808, of another toolkit",
    ),
    "no flatbuffer and no platform, as toolkit 1.2 in aciddust/MNIST-RKNN-TF": (
        lambda data: (data[:8] + (1).to_bytes(8, "little") + data[16:]).replace(
            b'"target_platform":["rk3588"]', b'"ovxlib_version":"1.1.2"'
        ),
        "for RK1808, RK3399PRO, RV1109 or RV1126, of another toolkit",
    ),
    "encrypted": (lambda data: schema.ENCRYPTED + data[8:], "encrypted"),
    "version of another chip": (
        lambda data: (data[:8] + (0x1004).to_bytes(8, "little") + data[16:]).replace(
            b'"target_platform":["rk3588"]', b'"target_platform":["rv1106"]'
        ),
        "for rv1106 of container version 4100",
    ),
    "version of another chip without JSON": (
        lambda data: (data[:8] + (0x1004).to_bytes(8, "little") + data[16:]).replace(
            b"target_platform", b"something_else_"
        ),
        "for rv1103 or rv1106 of container version 4100",
    ),
    "version": (
        lambda data: data[:8] + bytes([5]) + data[9:],
        "for rk3588 of container version 5; versions 1, 2 and 6",
    ),
    "header": (lambda data: data[:40], "less than its header"),
    "end": (lambda data: data[: len(data) // 2], "a flatbuffer of"),
    "identifier": (lambda data: data.replace(b"RKNN", b"XKNN").replace(b"XKNN", b"RKNN", 1), "identifier"),
    "target": (lambda data: data.replace(b"rk3588", b"rk3576"), "target platform 'rk3576'"),
    "another file": (lambda data: b"ONNX" + data[4:], "not a .rknn file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(data: bytes, name: str):
    change, text = REFUSED[name]
    with pytest.raises(RknnFileError, match=text) as caught:
        read_rknn(change(data))
    assert exit_code(caught.value) == BAD_INPUT


def test_damage_is_refused_or_harmless(data: bytes):
    rng = random.Random(5)
    refused = 0
    count = extent(100, 300)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            open_model(bytes(changed))
        except ValueError:
            refused += 1
    assert refused > count // 10
    for size in range(0, len(data), extent(7919, 997)):
        with pytest.raises(RknnFileError):
            read_rknn(data[:size])


def test_tables_that_repeat_are_refused():
    """A vector of offsets that all lead to one table with a long vector: quadratic without a bound."""
    import flatbuffers

    builder = flatbuffers.Builder(0)
    long = builder.CreateByteVector(bytes(20_000))
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, long, 0)
    table = builder.EndObject()
    builder.StartVector(4, 5_000, 4)
    for _ in range(5_000):
        builder.PrependUOffsetTRelative(table)
    tables = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, tables, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"RKNN")
    root = root_table(bytes(builder.Output()), "root")
    with pytest.raises(RknnFileError, match="overlap or repeat"):
        [item.bytes(0) for item in root.tables(0, "item")]


def test_a_node_that_nobody_computes_is_named(data: bytes):
    file = read_rknn(data)
    nodes = [replace(n, on_npu=False, type="Gru") if n.name == "head" else n for n in file.nodes]
    with pytest.raises(RknnFileError, match=r"Gru 'head' runs on the host"):
        FileModel(replace(file, nodes=nodes, ours=False), data)


def test_an_unknown_activation_is_not_judged(data: bytes):
    model = as_file(data, reuse=False)
    plan = model.file_plan
    plan.tasks[0] = replace(plan.tasks[0], settings=type(plan.tasks[0].settings)([]))
    with pytest.raises(NotJudged):
        judge(plan, 0, [np.zeros((1, 16, 16), np.int8)], np.zeros((16, 16, 16), np.int8))


@pytest.mark.parametrize("channels", [12, 16])
def test_padding_channels_count_at_a_border(channels: int):
    """CPEND counts the pad value of channels that the model does not have [HW 5.5], as a board measured; in
    files of toolkit 1.2 their weights are 0 (Zhou-sx/yolov5_Deepsort_rknn, yolov5.rknn)."""
    compiled = compile_model(layer_models.conv(channels, 16, (8, 12), int8=True, kernel=3, pad=1), reuse=True)
    data = write_rknn(compiled)
    node = next(node.name for node in read_rknn(data).nodes if node.on_npu)
    for block, name, fields in (
        ("CNA", "PAD_CON1", {"PAD_VALUE": 0xFFFF_FF80}),
        ("DPU", "BS_OW_CFG", {"OD_BYPASS": 0, "OW_SRC": 0}),
        ("DPU", "BS_OW_OP", {"OW_OP": 0xFFFB}),
    ):
        register = registers()[block][name]

        def change(word: int, register: Any = register, fields: Any = fields) -> int:
            value = register.update(word >> 16 & 0xFFFF_FFFF, **fields)
            return word & ~(0xFFFF_FFFF << 16) | value << 16

        data = changed(data, node, f"{block}.{name}", change)
    model = as_file(data, reuse=False)
    values = [np.random.default_rng(0).normal(size=info.shape).astype(np.float32) for info in model.inputs]
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        checker = FileChecker(loaded, "first")
        assert checker.check(list(values)).match and [row.right for row in checker.nodes] == [True]
        checker.close()


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_version_2_runs_like_version_6(compress: bool):
    """Lists without targets and tails are completed; compressed weights are decoded by the hardware."""
    compiled = compile_model(layer_models.conv(16, 8, (8, 12), int8=True, kernel=3, pad=1), reuse=True)
    data = write_rknn(compiled)
    older = as_version_2(data, compress=compress)
    file = read_rknn(older)
    assert file.version == schema.Version.TOOLKIT_1 and not file.ours and file.notes
    assert any(tensor.segments for tensor in file.tensors) == compress
    model = as_file(older, reuse=False)
    assert all(np.array_equal(a, b) for a, b in zip(outputs(model), outputs(compiled), strict=True))
    values = [np.random.default_rng(0).normal(size=info.shape).astype(np.float32) for info in model.inputs]
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        checker = FileChecker(loaded, "first")
        assert checker.check(list(values)).match and [row.right for row in checker.nodes] == [True]
        checker.close()


def test_version_1_is_version_2_behind_a_header_of_24_bytes():
    """As in Zhou-sx/yolov5_Deepsort_rknn 17f0417f, model/osnet_x0_25_market.rknn: the flatbuffer follows the
    header, and odd numbers of kernels have a size that is smaller than their section."""
    compiled = compile_model(layer_models.conv(16, 7, (8, 12), int8=True, kernel=3, pad=1), reuse=True)
    second = as_version_2(write_rknn(compiled), short=9 * 32)
    first = second[:8] + (1).to_bytes(8, "little") + second[16:24] + second[schema.FLATBUFFER_AT :]
    assert read_rknn(first).version == schema.Version.FIRST
    model = as_file(first, reuse=False)
    assert all(np.array_equal(a, b) for a, b in zip(outputs(model), outputs(compiled), strict=True))
    with pytest.raises(RknnFileError, match=f"a flatbuffer of .* bytes from {24} on"):
        read_rknn(first[:-100])


def test_the_axis_of_a_softmax_of_the_host_is_in_slot_8():
    """Toolkit 1.2 from Caffe: [1, 1000, 1, 1] has the axis 1 (dog-qiuqiu/simple-rknn2 8be21b03,
    demo/mobilenetv2_3588.rknn); the file has no names of attributes."""
    made = _Builder()
    node = made.table(
        {
            NodeSlot.TYPE: made.builder.CreateString("Softmax"),
            NodeSlot.NAME: made.builder.CreateString("prob"),
            NodeSlot.INPUTS: made.numbers([0]),
            NodeSlot.OUTPUTS: made.numbers([1]),
            NodeSlot.ATTRIBUTES: made.table({}, {0: (1, 4)}),
        },
        {NodeSlot.CODE: (18, 1)},
    )
    made.builder.Finish(made.table({0: node}), file_identifier=schema.IDENTIFIER)
    table = root_table(bytes(made.builder.Output()), "root").table(0, "node")
    assert table is not None
    found = read_node(table, 0, 2)
    assert found.attributes == {"axis": 1} and not found.unknown_attributes and not found.on_npu


def test_weights_that_nobody_can_decode_name_the_header_byte():
    compiled = compile_model(layer_models.conv(16, 8, (8, 12), int8=True, kernel=3, pad=1), reuse=True)
    model = as_file(as_version_2(write_rknn(compiled), compress=True))
    (tensor,) = (tensor for tensor in model.file.tensors if tensor.segments)
    assert decompress(tensor).shape == (8, 16, 3, 3)
    for byte, value in ((0, 0x01), (3, 1)):
        data, header = tensor.segments[5]
        changed = data[:byte] + bytes([value]) + data[byte + 1 :]
        segments = (*tensor.segments[:5], (changed, header), *tensor.segments[6:])
        with pytest.raises(RknnFileError, match=f"segment 5: header byte {byte} is 0x0{value}"):
            decompress(replace(tensor, segments=segments))
    cut = replace(tensor, segments=((tensor.segments[0][0][:20], 16), *tensor.segments[1:]))
    with pytest.raises(RknnFileError, match="segment 0: ends after"):
        decompress(cut)


@pytest.fixture(scope="module")
def packed() -> tuple[bytes, int, list[int]]:
    """A file with compressed weights, the place of the first segment in it, and DCOMP_AMOUNT of all."""
    compiled = compile_model(layer_models.conv(16, 8, (4, 4), int8=True, kernel=3, pad=1), reuse=True)
    older = as_version_2(write_rknn(compiled), compress=True)
    (tensor,) = (tensor for tensor in read_rknn(older).tensors if tensor.segments)
    return older, older.index(tensor.data), [len(data) // 16 - 1 for data, _ in tensor.segments]


def test_no_header_of_compressed_weights_makes_a_run_wait(packed: tuple[bytes, int, list[int]]):
    """Each byte of a header with many values: the file is refused, or it runs to its end."""
    older, first, amounts = packed
    places, refused, ran = segment_places(tuple(amounts)), set(), 0
    values = (0, 1, 2, 4, 5, 0x0F, 0x10, 0x11, 0x19, 0x38, 0x7F, 0x80, 0x88, 0xF0, 0xFF)
    for segment in (0, 9):
        for byte in range(HEADER_BYTES):
            for value in values[byte % 5 :: extent(5, 1)]:
                changed = bytearray(older)
                changed[first + places[segment] + byte] = value
                try:
                    model = as_file(bytes(changed), reuse=False)
                except RknnFileError as error:
                    assert exit_code(error) == BAD_INPUT and f"DCOMP_AMOUNT{segment} = 0x" in str(error)
                    assert f"segment {segment} " in str(error) and "conv.weight-code" in str(error)
                    refused.add(byte)
                else:
                    with LoadedModel(model, GoldenDriver()) as loaded:
                        loaded.run()
                    ran += 1
    assert {HEADER_FLAGS, HEADER_ZERO, HEADER_CLASSES, HEADER_CLASSES + 2} <= refused and ran > 40


def test_constants_that_the_file_does_not_have_are_refused(packed: tuple[bytes, int, list[int]]):
    """Bit 29 of the size of a constant, in a file of 4 KB: 1.6 GB of memory without a bound."""
    file = read_rknn(packed[0])
    (place,) = (n for n, tensor in enumerate(file.tensors) if tensor.segments)
    large = replace(file.tensors[place], size=1 << 29)
    file.tensors[place] = large
    with pytest.raises(RknnFileError, match=f"'{large.name}' has {1 << 29} bytes, of which the file of"):
        FileModel(file, packed[0])


def test_compressed_weights_that_end_too_early_are_refused(packed: tuple[bytes, int, list[int]]):
    older, first, amounts = packed
    place = first + segment_places(tuple(amounts))[7]
    changed = bytearray(older)
    changed[place : place + HEADER_BYTES] = SegmentCode(classes=(7, 7, 7, 7, 7, 7, 7, 7)).header()
    with pytest.raises(RknnFileError, match="the bits of segment 7 end before its weights do"):
        as_file(bytes(changed))


# -- lists that the hardware refuses -----------------------------------------------------------------


def changed(data: bytes, node: str, register: str, change: Callable[[int], int]) -> bytes:
    """A file with one word of a node's first list changed: a register's first write, or the op-enable."""
    file = read_rknn(data)
    index = next(n.index for n in file.nodes if n.name == node)
    record = next(r for r in file.records if r.node == index)
    words = [int(word) for word in file.words_of(record)]
    command = next(c for c in disassemble(words) if register in (c.kind, c.register and c.register.path))
    place = data.index(words_to_bytes(words)) + command.index * 8
    word = int.from_bytes(data[place : place + 8], "little")
    return data[:place] + change(word).to_bytes(8, "little") + data[place + 8 :]


@pytest.mark.parametrize(
    "register, change, said",
    [
        ("DPU.BN_CFG", lambda word: word & ~(0xFFFFFFFF << 16), "BN_ALU_ALGO = 0x0"),
        ("CNA.CONV_CON1", lambda word: word ^ 1 << 50, "unknown target 0x0205"),
        ("CNA.CONV_CON1", lambda word: word ^ 0x5000, "the target is CNA"),
        ("DPU.WDMA_SIZE_0", lambda word: word ^ 0x10 << 16, "DPU"),
        ("op_enable", lambda word: word & ~(0x18 << 16), "[start.partners]"),
    ],
)
def test_lists_that_the_hardware_refuses_are_bad_input(data: bytes, register: str, change, said: str):
    with pytest.raises(RknnFileError, match=r"DepthwiseConv 'dw1', task 1 of the file") as caught:
        open_model(changed(data, "dw1", register, change))
    assert exit_code(caught.value) == BAD_INPUT and said in str(caught.value)


@pytest.mark.parametrize("old, new", [(b'"zero_point"', b'"zero_poinz"'), (b'"axis":1', b'"axis":7')])
def test_host_nodes_with_wrong_attributes_are_refused(data: bytes, old: bytes, new: bytes):
    assert old in data
    with pytest.raises(RknnFileError, match=r"damaged \.rknn file"):
        open_model(data.replace(old, new))
