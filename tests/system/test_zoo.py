"""The zoo: its networks load, a tiny one is measured, a run resumes, the page follows from the record."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from benchmarks.zoo import __main__ as zoo
from benchmarks.zoo import architectures_attention as attention
from benchmarks.zoo import architectures_classify as classify
from benchmarks.zoo import architectures_dense as dense
from benchmarks.zoo import architectures_detect as detect
from benchmarks.zoo import architectures_sound as sound
from benchmarks.zoo.boards import BOARDS, sources
from benchmarks.zoo.measure import Job, apart, inputs_of, job_of, joined, measure, measure_without_run
from benchmarks.zoo.networks import BY_NAME, ENTRIES, Entry
from benchmarks.zoo.page import PAGE, page
from benchmarks.zoo.record import RECORD, Measured, RecordError, read_record, write_record
from benchmarks.zoo.sources import VARIABLE, Made, Packaged, SourceError, Stored, digest_of, folders_of
from rkcosim.compiler import compile_model
from rkcosim.compiler.model import TensorInfo
from rkcosim.compiler.steps import HostStep
from rkcosim.examples.networks.make import Network
from rkcosim.measure.models.compare import compare
from rkcosim.measure.models.run import run_model


def _layers(count: int, tokens: int, width: int, inner: int) -> int:
    """Multiply-accumulates of transformers: four products, the inner layer, scores and their sums."""
    return count * (4 * tokens * width**2 + 2 * tokens * width * inner + 2 * tokens**2 * width)


MACS = {
    classify.resnet18: 1814e6,
    classify.squeezenet: 349e6,
    classify.efficientnet_lite0: 385e6,
    classify.mobilenet_v3_large: 217e6,
    classify.inception_v1: 1583e6,
    classify.inception_v3: 5713e6,
    detect.ssd_mobilenet_v1: 1237e6,
    detect.retinaface_mobile320: 245e6,
    detect.yolo11n: 3271e6,
    attention.vit_tiny: 1254e6,
    attention.clip_block: 358e6,
    attention.bert_mini: 436e6,
    attention.clip_vit_b32: 4409e6,
    classify.mobile_face_net: 221e6,
    attention.language_model: 2 * (2 * 896**2 + 2 * 896 * 128 + 3 * 896 * 4864 + 2 * 896 * 128),
    sound.whisper_tiny_encoder: 2000 * 80 * 384 * 3 + 1000 * 384**2 * 3 + _layers(4, 1000, 384, 1536),
    sound.sense_voice_blocks: _layers(3, 167, 512, 2048) + 167 * (48 * 3 * 512 + 3 * 512 * 11),
}
"""Multiply-accumulates of the networks, as published (those of parts of networks: counted by hand)."""

UNCOUNTED = (dense.depth_anything_small, dense.mobile_sam_encoder)
"""Networks that differ from the published ones in size, or whose authors give no number."""

LARGE = (attention.clip_vit_b32, classify.resnet18, classify.inception_v1, classify.inception_v3)


def _marked() -> list[object]:
    """The networks, those with many weights for heavy tests only."""
    heavy = pytest.mark.heavy
    return [pytest.param(make, marks=heavy if make in LARGE else ()) for make in MACS]


SMALL = ("clip_block", "bert_mini", "mobile_face_net", "squeezenet", "retinaface_mobile320")
"""Networks whose compilation is short enough for the normal tests."""


def tiny() -> tuple[Network, str]:
    """A convolution and a Softmax."""
    n = Network("zoo_tiny", (1, 3, 8, 8), 1)
    return n, n.classify(n.relu(n.conv("image", 3, 8)), 8, 4)


def tiny_float() -> tuple[Network, str]:
    """Another one of floats."""
    n = Network("zoo_tiny_float", (1, 3, 8, 8), 2)
    return n, n.relu(n.conv("image", 3, 8))


@pytest.fixture
def small_zoo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A zoo of two tiny networks and one whose file is missing; gives the options for its record and page."""
    missing = Packaged("no-package", "1.0", "no_package/model.onnx")
    entries = [
        Entry("tiny", "Tiny", "nothing", Made(tiny)),
        Entry("tiny_float", "Tiny float", "nothing", Made(tiny_float, "float"), remark="of floats"),
        Entry("missing", "Missing", "nothing", missing),
    ]
    monkeypatch.delenv(VARIABLE, raising=False)
    for module in ("__main__", "page"):
        monkeypatch.setattr(f"benchmarks.zoo.{module}.ENTRIES", entries)
    monkeypatch.setattr("benchmarks.zoo.__main__.BY_NAME", {entry.name: entry for entry in entries})
    return ["--record", str(tmp_path / "record.jsonl"), "--page", str(tmp_path / "zoo.md")]


@pytest.mark.parametrize("make", _marked(), ids=lambda make: make.__name__)
def test_networks_are_valid_and_have_the_published_size(make) -> None:
    network, outputs = make()
    model = network.model(outputs)
    onnx.checker.check_model(model, full_check=True)
    graph = model.graph
    shapes = {name: list(shape) for name, shape in network.inputs.items()}
    for value in (*graph.value_info, *graph.output):
        shapes[value.name] = [size.dim_value for size in value.type.tensor_type.shape.dim]
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    total = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            total += math.prod(shapes[node.input[1]][1:]) * math.prod(shapes[node.output[0]])
        elif node.op_type == "MatMul":
            total += shapes[node.input[0]][-1] * math.prod(shapes[node.output[0]])
    assert total == pytest.approx(MACS[make], rel=2e-3)


@pytest.mark.parametrize("make", UNCOUNTED, ids=lambda make: make.__name__)
def test_other_networks_are_valid(make) -> None:
    network, outputs = make()
    onnx.checker.check_model(network.model(outputs), full_check=True)


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_load(name: str) -> None:
    _loads(BY_NAME[name])


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", [e.name for e in ENTRIES if isinstance(e.source, Made) and e.name not in SMALL]
)
def test_large_networks_load(name: str) -> None:
    _loads(BY_NAME[name])


def _loads(entry: Entry) -> None:
    model = compile_model(entry.source.path([]).read_bytes())
    layers = [step for step in model.plan.steps if not isinstance(step, HostStep)]
    assert len(layers) > 8 and sum(task.macs for task in model.plan.tasks) > 25e6


def test_entries_are_named_once_and_their_sources_are_known() -> None:
    assert len(BY_NAME) == len(ENTRIES) >= 25
    assert set(BOARDS) <= set(BY_NAME)
    assert all(
        set(board.source.split()) <= set(sources()) and 0 < board.low <= board.high
        for board in BOARDS.values()
    )
    assert all(entry.name == entry.source.name for entry in ENTRIES if _of_example(entry))


def _of_example(entry: Entry) -> bool:
    return isinstance(entry.source, Made) and entry.source.make is None


def test_tiny_networks_are_measured_and_the_run_resumes(small_zoo: list[str], capsys, tmp_path: Path) -> None:
    record, pages = tmp_path / "record.jsonl", tmp_path / "zoo.md"
    assert zoo.main(["tiny", *small_zoo]) == 0
    first = read_record(record)["tiny"]
    assert first.match and first.form == "int8" and not first.failed
    assert first.mac_share == 1 and 0.9 < first.element_share < 1
    assert first.cycles > 500 and first.milliseconds > first.cycles / 1e6 and first.host_seconds >= 0
    assert first.load_seconds > 0 and first.compare_seconds > 0
    assert first.agreement is not None and first.agreement.elements > 500 and first.agreement.within
    line = record.read_text()
    assert zoo.main(small_zoo) == 1  # one is missing
    said = capsys.readouterr().out
    assert "in the record: match" in said and record.read_text().startswith(line)
    assert "no_package/model.onnx is missing (no folder was given)" in said
    assert "--no-deps --target DIR no-package==1.0" in said
    found = read_record(record)
    assert list(found) == ["tiny", "tiny_float"] and found["tiny_float"].form == "fp16"
    agreement = found["tiny_float"].agreement
    assert agreement is not None and agreement.elements > 500 and agreement.worst is not None
    assert 0 < agreement.worst < 3e-3 and agreement.bound is None and agreement.within
    assert f"| {first.cycles:,} |" in pages.read_text() and "of floats" in pages.read_text()
    again = zoo.main(["tiny", "--again", *small_zoo])
    assert again == 0 and read_record(record)["tiny"].cycles == first.cycles
    assert zoo.main(["--list", *small_zoo]) == 0
    assert "measured" in capsys.readouterr().out


def test_a_network_without_a_run(small_zoo: list[str]) -> None:
    """A run of the same file stays, unless the NPU has another part of the work."""
    job = job_of(Entry("tiny", "Tiny", "nothing", Made(tiny)), [])
    found = measure_without_run(job)
    assert found.estimated and found.cycles > 500 and found.load_seconds > 0
    assert found.agreement is not None and found.agreement.within
    assert zoo.wanted(found, job, again=False) and joined(None, found) is found
    run = replace(found, estimated=False, match=True, cycles=7, version="1", load_seconds=0.0)
    both = joined(run, found)
    assert (both.cycles, both.version, both.compared) == (7, "1", found.version)
    assert both.load_seconds == found.load_seconds and not both.estimated
    assert joined(replace(run, element_share=0.5), found) is found


def test_failed_and_changed_networks_are_measured_again(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"model")
    job = Job("x", tmp_path / "model", {}, {})
    found = Measured("x", digest_of(job.path), "1", match=True)
    assert not zoo.wanted(found, job, again=False) and zoo.wanted(found, job, again=True)
    assert zoo.wanted(None, job, again=False)
    assert zoo.wanted(replace(found, failed="no"), job, again=False)
    (tmp_path / "model").write_bytes(b"other")
    assert zoo.wanted(found, job, again=False)


def test_inputs_that_an_entry_describes() -> None:
    infos = [
        TensorInfo(name, (1, 500), np.dtype(kind), 1.0, 0)
        for name, kind in (("a", "int64"), ("b", "int32"), ("c", "float16"))
    ]
    a, b, c = inputs_of(Job("x", Path("x"), {}, {"a": 16000, "b": (3, 9)}), infos)
    assert (a == 16000).all() and set(b.reshape(-1)) == set(range(3, 10)) and abs(c.std() - 1) < 0.2


def _sleeps(job: Job) -> Measured:
    time.sleep(600)
    raise AssertionError


def _ends(job: Job) -> Measured:
    os._exit(3)


def test_processes_that_hang_or_end_become_results(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    job = Job("x", tmp_path / "bad.onnx", {}, {})
    assert apart(job, 0.5, _sleeps).failed == "did not end within 0.5 s"
    assert apart(job, 30, _ends).failed == "its process ended with code 3"
    failed = apart(job, 60, measure).failed
    assert failed and str(tmp_path) not in failed


def test_records_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    assert read_record(path) == {}
    write_record(path, [Measured("a", "1", "2", failed="no")])
    assert read_record(path) == {"a": Measured("a", "1", "2", failed="no")}
    good = json.loads(path.read_text())
    for bad in ("no json", "[]", json.dumps(good | {"schema_version": 9}), json.dumps(good | {"other": 1})):
        path.write_text(f"{json.dumps(good)}\n{bad}\n")
        with pytest.raises(RecordError, match="line 2"):
            read_record(path)
    assert zoo.main(["--list", "--record", str(path)]) == 2


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    stored = Stored("owner/name", "0123456789abcdef", "a/b.tflite")
    with pytest.raises(SourceError, match="checkout of owner/name"):
        stored.path([tmp_path])
    (tmp_path / "name" / "a").mkdir(parents=True)
    (tmp_path / "name" / "a" / "b.tflite").write_bytes(b"")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert stored.path(folders_of([])) == tmp_path / "name" / "a" / "b.tflite"
    with pytest.raises(SourceError, match="is not a folder"):
        folders_of([tmp_path / "none"])
    with pytest.raises(SystemExit):
        zoo.main(["no_such_network"])
    assert "no network no_such_network" in capsys.readouterr().err


def test_the_checked_in_page_follows_from_the_record() -> None:
    record = read_record(RECORD)
    assert PAGE.read_text() == page(record), "run python -m benchmarks.zoo"
    assert len([found for found in record.values() if not found.failed]) >= 25
    assert set(record) <= set(BY_NAME)


def test_a_page_shows_what_is_wrong() -> None:
    found = read_record(RECORD)["mlperf_kws"]
    assert found.agreement is not None
    beyond = replace(found.agreement, reasons=("layer 'x' differs by 9 steps",), same_classes=False)
    text = page({"mlperf_kws": replace(found, match=False, first_difference="conv[3]", agreement=beyond)})
    assert "**MISMATCH**" in text and "conv[3]" in text and "layer 'x' differs by 9 steps" in text
    assert ", other class; **beyond the bound** |" in text and "0 of 1 match" in text
    text = page({"mlperf_kws": replace(found, failed="no | such\noperator")})
    assert "| `mlperf_kws` | no \\| such operator |" in text and "No network was measured" in text


def test_integer_inputs_are_compared(tmp_path: Path) -> None:
    """The reference and the model get the same integers, whose random values are 0 and 1."""
    n = Network("integers", (1, 3, 8, 8), 3)
    y = n.add("Add", n.conv("image", 3, 8), n.add("Cast", "offset", to=onnx.TensorProto.FLOAT))
    model = n.model(n.relu(y))
    offset = onnx.helper.make_tensor_value_info("offset", onnx.TensorProto.INT64, [1, 8, 1, 1])
    model.graph.input.append(offset)
    path = tmp_path / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    found = compare(path)
    assert found.match and found.outputs[0].worst < 3e-3
    assert run_model(path, engine="golden").verdict["match"] is True
    image = np.zeros((1, 3, 8, 8), np.float32)
    far = compare(path, [[image, np.full((1, 8, 1, 1), 1000.0, np.float32)]])
    assert far.match and far.outputs[0].worst < 3e-3
