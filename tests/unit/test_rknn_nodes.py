"""Nodes of `.rknn` files with several outputs, inputs that the NPU fills up in place, and barriers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.measure.perf import layer_models
from rkcosim.regcmd.tasks import TAIL_WORDS, amount_code
from rkcosim.regcmd.word import WORD_BYTES, register_word
from rkcosim.rknn_file import RknnFileError, read_rknn, version2, version6
from rkcosim.rknn_file.constants import FileStep
from rkcosim.rknn_file.container import FileTensor, Relocation, RknnFile
from rkcosim.rknn_file.model import FileModel
from rkcosim.rknn_file.opening import jobs_by
from rkcosim.rknn_file.plan import file_plan
from rkcosim.rknn_file.schema import Kind, Layout
from rkcosim.rknn_file.tasks import written_bytes
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.file_check import FileChecker
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.makers.rknn_containers import as_version_6
from tests.makers.rknn_files import as_version_2
from tests.makers.rknn_models import Qdq


def as_vendor(model: bytes, cores: int = 1) -> RknnFile:
    """A network compiled here in a file of another compiler."""
    return read_rknn(as_version_6(read_rknn(write_rknn(compile_model(model, reuse=True, cores=cores)))))


def words_of(file: RknnFile, records: Iterable[int]) -> set[int]:
    own = (file.records[number] for number in records)
    return {word for record in own for word in range(record.first, record.first + record.amount)}


PARTS = ((0, 16, 0.05, -7), (16, 32, 0.05, -7), (32, 48, 0.05, -7))
"""Begin, end, scale and zero point of the slices."""


@pytest.fixture(scope="module")
def split() -> RknnFile:
    """A convolution whose 48 channels one node divides among three outputs, with convolutions behind."""
    net = Qdq()
    c = net.conv(net.input("x", (1, 16, 8, 8), 0.02, 3), 16, 48, 1, 0.05, -7)
    slices = []
    for first, end, scale, zero in PARTS:
        ends = (net.constant([n], np.int64) for n in (first, end, 1))
        slices.append(net.coded(net.node("Slice", c, *ends), scale, zero))
    for number, part in enumerate(slices):
        net.output(net.conv(part, 16, 16, 1, 0.3 + number, 5), f"y{number}", (1, 16, 8, 8))
    return as_vendor(net.bytes())


def merged(file: RknnFile) -> RknnFile:
    """The file with its slices as one node of type Split."""
    parts = [node for node in file.nodes if node.type == "Slice"]
    whole = replace(
        parts[0], type="Split", name="Split:0", outputs=tuple(n for part in parts for n in part.outputs)
    )
    gone = {part.index for part in parts[1:]}
    kept = [whole if node.index == whole.index else node for node in file.nodes if node.index not in gone]
    moved = {node.index: place for place, node in enumerate(kept)} | dict.fromkeys(gone, kept.index(whole))
    return replace(
        file,
        nodes=[replace(node, index=place) for place, node in enumerate(kept)],
        records=[replace(record, node=moved[record.node]) for record in file.records],
    )


def outputs(model: FileModel, shape: tuple[int, ...]) -> list[np.ndarray]:
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, np.random.default_rng(5).normal(size=shape).astype(np.float32))
        loaded.run()
        return [loaded.get_output(n) for n in range(len(model.outputs))]


@pytest.mark.parametrize("how", ["chain", "node"])
def test_a_node_with_three_outputs_is_a_step_for_each(split: RknnFile, how: Any):
    file = merged(split)
    with jobs_by(how):
        model, plain = FileModel(file, b"merged" + how.encode()), FileModel(split, b"plain" + how.encode())
    steps = [step for step in model.plan.steps if step.kind == "Split"]
    assert [step.name for step in steps] == [f"Split:0, output {n}" for n in range(3)]
    names = [model.file.tensors[n].name for n in next(n for n in file.nodes if n.type == "Split").outputs]
    assert [step.output.name for step in steps] == names
    found, wanted = outputs(model, (1, 16, 8, 8)), outputs(plain, (1, 16, 8, 8))
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert len({array.tobytes() for array in found}) == 3


def test_the_outputs_hold_the_channels_of_the_input(split: RknnFile):
    model = FileModel(merged(split), b"values", reuse=False)
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, np.random.default_rng(5).normal(size=(1, 16, 8, 8)).astype(np.float32))
        loaded.run()
        steps = [step for step in model.plan.steps if step.kind == "Split"]
        whole = loaded.tensor(steps[0].inputs[0].name)
        for step, (first, end, *_) in zip(steps, PARTS, strict=True):
            assert np.array_equal(loaded.tensor(step.output.name), whole[first:end])


@pytest.mark.parametrize(
    "shape, kind, right",
    [((8, 16), "Reshape", True), ((16, 8), "Reshape", False), ((8, 16), "Transpose", None)],
)
def test_a_convolution_behind_a_node_without_tasks(shape: tuple[int, int], kind: str, right: bool | None):
    """Conv_269 of frodik13/rknn-vit-tracker-rust c47c7e0 reads 16 x 16 pixels where 1 x 256 were written.
    Here the file says 4 x 32, and its lists convolve 8 x 16 pixels; a Reshape to 16 x 8 is not their work."""
    net = Qdq()
    c = net.conv(net.input("x", (1, 16, 8, 16), 0.02, 3), 16, 16, 1, 0.05, -7)
    net.output(net.conv(c, 16, 16, 3, 0.3, 5), "y", (1, 16, 6, 14))
    file = as_vendor(net.bytes())
    first, last = (node for node in file.nodes if node.type == "Conv")
    made, added = file.tensors[first.outputs[0]], len(file.tensors)
    tensors = [replace(t, shape=(1, 16, 4, 32)) if t is made else t for t in file.tensors]
    tensors.append(replace(made, index=added, name="view", shape=(1, 16, *shape)))
    view = replace(
        first, type=kind, name="view", inputs=(made.index,), outputs=(added,), tasks=(0,) * 6, attributes={}
    )
    last = replace(last, inputs=tuple(added if n == made.index else n for n in last.inputs))
    nodes = [last if node.index == last.index else node for node in file.nodes]
    nodes.insert(last.index, view)
    file = replace(
        file,
        tensors=tensors,
        nodes=[replace(node, index=place) for place, node in enumerate(nodes)],
        records=[replace(r, node=r.node + (r.node >= last.index)) for r in file.records],
    )
    model = FileModel(file, f"{shape} {kind}".encode(), reuse=False)
    values = [np.random.default_rng(5).normal(size=(1, 16, 8, 16)).astype(np.float32)]
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        checker = FileChecker(loaded, "device")
        checker.check(list(values))
        row = checker.nodes[-1]
        assert row.right is right and (row.reason == "Transpose without tasks precedes it") == (right is None)
        checker.close()


def test_tasks_that_write_no_output_are_refused(split: RknnFile):
    file = merged(split)
    node = next(node for node in file.nodes if node.type == "Split")
    last = [n for n, record in enumerate(file.records) if record.node == node.index][-1]
    words = words_of(file, [last])
    moved = {
        word: replace(target, tensor=node.outputs[0])
        if word in words and target.tensor in node.outputs
        else target
        for word, target in file.relocations.items()
    }
    with pytest.raises(RknnFileError, match=r"Split 'Split:0'.*(no task writes its output|not one after)"):
        FileModel(replace(file, relocations=moved), b"")


def test_an_output_twice_is_damage(split: RknnFile):
    file = merged(split)
    nodes = [
        replace(node, outputs=node.outputs[:1] * 2) if node.type == "Split" else node for node in file.nodes
    ]
    with pytest.raises(RknnFileError, match="computes a tensor that an earlier node computes"):
        FileModel(replace(file, nodes=nodes), b"")


def test_the_npu_fills_up_an_input_in_place():
    """swdee/go-rknnlite-data c58e7b3b, models/rk3588/lprnet-rk3588.rknn: its InputOperator has a task, which
    fills up the rows of the input. Here the task rescales the input, and the next node reads it in place."""
    net = Qdq()
    x = net.coded(net.input("x", (1, 16, 8, 8), 0.02, 3), 0.05, -7)
    net.output(net.conv(x, 16, 16, 1, 0.3, 5), "y", (1, 16, 8, 8))
    file = as_vendor(net.bytes())
    copy = next(node for node in file.nodes if node.on_npu)
    (given,), (made,) = file.inputs, copy.outputs
    border = replace(copy, type="InputOperator", inputs=(), outputs=(given,))
    nodes = [
        border
        if node.index == copy.index
        else replace(node, inputs=tuple(given if n == made else n for n in node.inputs))
        for node in file.nodes
    ]
    relocations = {
        word: replace(target, tensor=given) if target.tensor == made else target
        for word, target in file.relocations.items()
    }
    changed = replace(file, nodes=nodes, relocations=relocations)
    model = FileModel(changed, b"in place", reuse=False)
    first = model.plan.steps[0]
    assert isinstance(first, FileStep) and first.kind == "InputOperator" and first.inputs == (first.output,)
    plain = FileModel(file, b"apart")
    assert np.array_equal(outputs(model, (1, 16, 8, 8))[0], outputs(plain, (1, 16, 8, 8))[0])


def linked(file: RknnFile) -> RknnFile:
    """The file with links from each list of a core to the next; our compiler links those of a layer alone."""
    words, pc = file.words.copy(), registers()["PC"]
    for part in file.plans[3]:
        for one, after in pairwise(file.records[number] for number in part):
            base = pc["BASE_ADDRESS"].encode(PC_SOURCE_ADDR=after.first * WORD_BYTES // 16)
            amount = pc["REGISTER_AMOUNTS"].encode(PC_DATA_AMOUNT=amount_code(after.amount + TAIL_WORDS))
            tail = one.first + one.amount
            words[tail] = register_word(pc["BASE_ADDRESS"], base)
            words[tail + 1] = register_word(pc["REGISTER_AMOUNTS"], amount)
    return replace(file, words=words, links=version6.find_links(words, file.records))


@pytest.mark.usefixtures("cycles_only")
def test_a_barrier_of_all_cores_ends_a_job():
    """Skeeser/QuadcopterYolo 9cd9baf4, models/yolov5n.rknn: a node divided among cores ends with a pooling of
    scratch memory, and the next node, which is divided as well, reads rows of other cores."""
    net = Qdq()
    x = net.input("x", (1, 32, 40, 40), 0.02, 3)
    y = net.conv(net.conv(x, 32, 96, 1, 0.05, -7), 96, 96, 1, 0.3, 5)
    net.output(y, "y", (1, 96, 40, 40))
    file = linked(as_vendor(net.bytes(), 3))
    jobs = [s for s in file_plan(file, 3).segments() if s.host is None]
    assert [len(job.parts) for job in jobs] == [3]
    first = next(node.index for node in file.nodes if node.on_npu)
    lasts = [[n for n in part if file.records[n].node == first][-1] for part in file.plans[3]]
    size = 1024
    scratch = FileTensor(
        len(file.tensors), "tempMC11_input", np.dtype(np.int8), Layout.PLAIN, Kind.CONSTANT, (size,), (size,)
    )
    words = words_of(file, lasts)
    relocations = {
        word: Relocation(scratch.index, 0) if word in words else target
        for word, target in file.relocations.items()
    }
    changed = replace(
        file,
        tensors=[*file.tensors, replace(scratch, size=size, data=bytes(size))],
        relocations=relocations,
    )
    jobs = [s for s in file_plan(changed, 3).segments() if s.host is None]
    assert [len(job.parts) for job in jobs] == [3, 3]
    assert sum(job.count for job in jobs) == sum(map(len, file.plans[3]))


def test_one_core_needs_no_barrier():
    layer = layer_models.conv(24, 40, (8, 12), int8=True, kernel=3, pad=1)
    assert len(file_plan(as_vendor(layer)).segments()) == 1


@pytest.fixture(scope="module")
def sigmoid() -> bytes:
    """A convolution with a Sigmoid of int8, and one behind it."""
    net = Qdq()
    c = net.conv(net.input("x", (1, 16, 8, 8), 0.02, 3), 16, 16, 1, 0.05, -7)
    s = net.coded(net.node("Sigmoid", c), 1 / 256, -128)
    net.output(net.conv(s, 16, 16, 1, 0.3, 5), "y", (1, 16, 8, 8))
    return write_rknn(compile_model(net.bytes(), reuse=True))


def test_a_table_of_container_2_is_loaded_before_the_task_that_needs_it(sigmoid: bytes):
    """Skeeser/QuadcopterYolo 82da36c0, models/yolov5n_sample.rknn: task slot 1 names the table."""
    loaded = as_version_2(sigmoid, tables=True)
    file = read_rknn(loaded)
    assert [t.name for t in file.tensors if t.kind == Kind.TABLE] == ["lut"]
    assert len(file.records) == len(read_rknn(sigmoid).records) + 1
    found, wanted = (outputs(FileModel(read_rknn(d), d), (1, 16, 8, 8)) for d in (loaded, sigmoid))
    assert np.array_equal(found[0], wanted[0]) and len(np.unique(wanted[0])) > 20


def test_a_table_of_container_2_that_is_none_is_damage(sigmoid: bytes, monkeypatch):
    loaded = as_version_2(sigmoid, tables=True)
    monkeypatch.setattr(version2, "Kind", SimpleNamespace(**{**Kind.__members__, "TABLE": 99}))
    with pytest.raises(RknnFileError, match=r"its table is tensor .*, which is no table of an activation"):
        read_rknn(loaded)


def test_lists_for_one_core_run_in_the_plans_for_several(sigmoid: bytes, monkeypatch):
    """In that file exSwish has lists for one core only."""
    tasks = version2._Task
    both = [tasks(0, 0, 0, 1, 29, ()), tasks(1, 0, 0, 2, 24, (), 7), tasks(0, 0, 3, 1, 29, ())]
    both += [tasks(0, 1, 4, 1, 29, ()), tasks(0, 2, 5, 1, 29, ())]
    parts = version2._parts(both, (3, 4, 5))
    assert [[(t.node, t.list) for t in part] for part in parts] == [
        [(1, 7), (1, 2), (0, 1)],
        [(0, 1)],
        [(0, 1)],
    ]
    assert version2._parts(both, (1, 2)) == [[], []]


def test_a_node_without_tasks_in_one_plan_is_no_view(sigmoid: bytes):
    file = read_rknn(as_version_6(read_rknn(sigmoid)))
    place = next(n for n, node in enumerate(file.nodes) if node.on_npu)
    whole = [[number for number in part if file.records[number].node != place] for part in file.plans[1]]
    with pytest.raises(RknnFileError, match=r"has tasks, but none in the plan for 1 cores"):
        FileModel(replace(file, plans={1: whole}), b"")


def written(file: RknnFile, at: int) -> int:
    """The word with the address to which a node's first task writes."""
    number = next(n for n in file.plans[1][0] if file.records[n].node == at)
    target = registers()["DPU"]["DST_BASE_ADDR"].offset
    words = words_of(file, [number]) & set(file.relocations)
    return next(word for word in words if int(file.words[word]) & 0xFFFF == target)


@pytest.fixture(scope="module")
def two() -> RknnFile:
    """Two convolutions."""
    net = Qdq()
    c = net.conv(net.input("x", (1, 16, 8, 8), 0.02, 3), 16, 48, 1, 0.05, -7)
    net.output(net.conv(c, 48, 16, 1, 0.05, -7), "y", (1, 16, 8, 8))
    return as_vendor(net.bytes())


def test_tensors_have_room_for_all_that_tasks_write(two: RknnFile):
    """A vendor's fp16 layer with a table writes binary32 for all lanes first: 8 surfaces of 152 atoms, where
    the file states 14,592 bytes (nsbb/rknn_VT, sub2_after_mul.rknn)."""
    node = next(node for node in two.nodes if node.on_npu)
    tensors = list(two.tensors)
    short = 64 * 16 * 3
    tensors[node.outputs[0]] = replace(tensors[node.outputs[0]], size=short, native=(1, 3, 8, 8, 16))
    plan = file_plan(replace(two, tensors=tensors), reuse=False)
    ends = sorted((ref.offset, index) for index, ref in plan.refs.items() if ref.region == "activations")
    start = plan.refs[node.outputs[0]].offset
    assert plan.tasks[0].layer == 0
    assert written_bytes(plan.tasks[0].settings) > short
    behind = [at for at, _ in ends if at > start] + [plan.activation_bytes]
    assert min(behind) - start >= written_bytes(plan.tasks[0].settings)


def test_what_a_later_task_changes_in_place_is_not_judged(two: RknnFile):
    """A vendor's Add repeats an operand of one row over its own memory (nsbb/rknn_VT, test_bcblock.rknn)."""
    first, second = [node for node in two.nodes if node.on_npu]
    relocations = {**two.relocations, written(two, second.index): Relocation(first.outputs[0], 0)}
    assert not file_plan(two, reuse=False).lost
    plan = file_plan(replace(two, relocations=relocations), reuse=False)
    assert plan.lost == {plan.steps[0].output.name}


def test_a_file_for_the_host_alone_is_refused_by_its_operators(two: RknnFile):
    """liej6799/rk3588 ad64162b, rknn-demo/dual_residual_custom.rknn: a custom operator and nothing else."""
    nodes = [replace(node, on_npu=False, tasks=(0,) * 6) for node in two.nodes]
    data = as_version_6(replace(two, nodes=nodes))
    with pytest.raises(RknnFileError, match=r"all its nodes run on the host \(Conv\)"):
        read_rknn(data)


def test_sizes_in_another_form_of_the_same_pixels_are_levelled(split: RknnFile):
    """Boards ignore WIDTH_WDMA and HEIGHT_WDMA of a copy (docs/reference, 7.11), which the vendor's
    transpositions give as a line for a column: nsbb/rknn_VT, BCResNet-t2-simplified.rknn."""
    sizes = registers()["DPU"]["WDMA_SIZE_1"]
    copies = [n for n, record in enumerate(split.records) if record.enable_mask == 0x18]
    places = [w for w in sorted(words_of(split, copies)) if int(split.words[w]) & 0xFFFF == sizes.offset]
    assert len(places) == 3
    for width, height, said in ((64, 1, ""), (32, 1, "HEIGHT_WDMA = 0x0")):
        words = split.words.copy()
        for at in places:
            held = int(words[at]) >> 16 & 0xFFFF_FFFF
            made = sizes.update(held, WIDTH_WDMA=width - 1, HEIGHT_WDMA=height - 1)
            words[at] = int(words[at]) & ~(0xFFFF_FFFF << 16) | made << 16
        other = replace(split, words=words)
        if said:
            with pytest.raises(RknnFileError, match=said):
                FileModel(other, as_version_6(other))
            continue
        plan = file_plan(other)
        assert np.array_equal(plan.file.words, split.words)
        assert any("WDMA_SIZE_1" in note and "3 lists" in note for note in plan.notes)
        shape = (1, 16, 8, 8)
        found, wanted = (outputs(FileModel(one, b""), shape) for one in (other, split))
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert not any("WDMA_SIZE_1" in note for note in file_plan(split).notes)
