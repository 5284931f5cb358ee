"""Damaged model files of every format give a clear error or a model, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from rkcosim.compiler import compile_model
from rkcosim.compiler.container import load_plan, save_plan
from rkcosim.compiler.graph import Graph, ModelError
from tests import seeds
from tools.file_fuzz import fuzz_files

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


def tflite_file() -> bytes:
    pytest.importorskip("tflite", reason="needs the extra tflite")
    from tests.makers.tflite_models import Tf

    t = Tf()
    x = t.input((1, 6, 7, 8))
    y = t.depthwise(t.conv(x, 16, 3, 2, FusedActivationFunction=3), 3)
    z = t.add("CONCATENATION", [y, y], (1, 3, 4, 32), Axis=3, **{"scale": t.items[y].scale})
    z = t.add("PAD", [z, t.ints([[0, 0], [1, 1], [1, 0], [0, 0]])], (1, 5, 5, 32))
    z = t.transpose_conv(z, 4, 2, 2, True)
    z = t.add("RESHAPE", [z, t.ints([1, 400])], (1, 400), scale=t.items[z].scale)
    return t.bytes(t.add("SOFTMAX", [t.dense(z, 5)], (1, 5), scale=1 / 256, zero=-128, Beta=1.0))


FILES = {
    "model.tflite": tflite_file,
    "model.onnx": DIGITS.read_bytes,
    "model.rknpu": lambda: compile_model(DIGITS.read_bytes()).save(),
}


def fuzz(name: str, inputs: int, folder: Path) -> None:
    seed = seeds.seed(__name__, 31)
    print(f"seed {seed}")
    path = folder / name
    path.write_bytes(FILES[name]())
    report = fuzz_files(seed, inputs, samples=[path])[name]
    print(f"{name}: {report.taken} taken, {dict(report.refused)}")
    assert not report.wrong, report.wrong[:3]
    assert report.inputs == inputs and report.taken and sum(report.refused.values()) > inputs // 4
    assert path.read_bytes() == FILES[name](), "a sample is not changed"


@pytest.mark.parametrize("name", FILES)
def test_some(name: str, tmp_path: Path) -> None:
    fuzz(name, 120, tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("name", FILES)
def test_many(name: str, tmp_path: Path) -> None:
    fuzz(name, 4000, tmp_path)


def test_samples_are_of_kinds_that_have_readers(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("some words")
    with pytest.raises(ValueError, match=r"notes\.txt: text file; samples may be"):
        fuzz_files(1, 1, samples=[path])


def _rename(kind: str) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        name = "tensor" if kind == "inputs" else "input" if kind == "host_ops" else "value"
        items = getattr(graph, kind)
        items[0] = dataclasses.replace(items[0], **{name: "nothing"})

    return change


def _circle(graph: Graph) -> None:
    first, second, *_ = graph.tensors
    graph.aliases |= {first: second, second: first}


def _shape(graph: Graph) -> None:
    graph.inputs[0] = dataclasses.replace(graph.inputs[0], shape=(1, 1, 16, 15))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_rename("inputs"), "'image' is an unknown tensor 'nothing'"),
        (_rename("outputs"), "is an unknown tensor 'nothing'"),
        (_rename("host_ops"), "reads an unknown value 'nothing'"),
        (_circle, "is an alias of an unknown tensor"),
        (_shape, "'image' has another shape than its tensor"),
    ],
)
def test_containers_whose_names_do_not_fit(change: Callable[[Graph], None], text: str) -> None:
    """The checksum of such a file is right."""
    plan = load_plan(FILES["model.rknpu"]())
    change(plan.graph)
    with pytest.raises(ModelError, match=text):
        load_plan(save_plan(plan))


def test_containers_with_compressed_weights() -> None:
    """No compiler writes them, so nobody has looked into them before the file runs."""
    plan = load_plan(FILES["model.rknpu"]())
    task = next(task for task in plan.tasks if "CNA" in task.blocks)
    task.settings.change("CNA", "DCOMP_CTRL", DECOMP_CONTROL=1)
    with pytest.raises(ModelError, match=f"'{plan.steps[task.layer].name}' has compressed weights"):
        load_plan(save_plan(plan))
