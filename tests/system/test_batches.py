"""First dimensions above 1 by a C program and by rknnlite, on one to three cores: what onnxruntime gives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

import rkcosim.rknn_api as rk
from rkcosim.compiler.batch import batch_size, one_of
from rkcosim.devices.native_library import c_compiler
from rkcosim.devices.rknn_library import environment, lay_out, rknn_library
from rkcosim.driver import Driver
from rkcosim.engines import BuildError
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.models.compare import compare
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.report.data import from_json
from rkcosim.rknn_api.server import RknnServer
from rkcosim.rknn_file.opening import open_file
from tests.makers.archives import arrays_of
from tests.makers.batch_models import APART, MIXED, N, Net, drawn, model

PROGRAM = Path(__file__).with_name("programs") / "floats.c"
LITE = """
import sys
import numpy as np
from rknnlite.api import RKNNLite

for name in sys.argv[2:]:
    given = np.load(f"{name}.npz")
    lite = RKNNLite()
    assert lite.load_rknn(f"{name}.onnx") == 0 and lite.init_runtime(core_mask=int(sys.argv[1])) == 0, name
    outputs = lite.inference([given[key] for key in given.files], data_format=["nchw"] * len(given.files))
    np.savez(f"{name}.out.npz", *outputs)
    lite.release()
"""
ALL = sorted((APART | MIXED).keys() - {"random_numbers"})


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library, the rknnlite module, and the program in C."""
    folder = tmp_path_factory.mktemp("prefix")
    try:
        lay_out(folder, rknn_library(), copy=True)
    except BuildError as error:
        pytest.skip(str(error))
    command = [*c_compiler(), "-O1", "-Wall", "-Wextra", "-Werror", f"-I{folder / 'include'}"]
    subprocess.run(
        [*command, "-o", folder / "floats", PROGRAM, f"-L{folder / 'lib'}", "-lrknnrt"], check=True
    )
    return folder


@pytest.fixture(params=[1, 3])
def server(request: pytest.FixtureRequest, prefix: Path) -> Iterator[RknnServer]:
    """A server on a golden device of one core, or of three."""
    rk.use_device(Driver(GoldenNpu(request.param), shared=True), quiet=True)
    with RknnServer(prefix / f"socket{request.param}") as server:
        yield server
    rk.use_device(None)


def run(prefix: Path, server: RknnServer, *words: object) -> None:
    done = subprocess.run(
        [str(word) for word in words],
        env=environment(prefix, server.path),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def written(folder: Path, protos: dict[str, onnx.ModelProto]) -> dict[str, list[np.ndarray]]:
    """Write models and inputs; return onnxruntime's outputs."""
    wanted = {}
    for name, proto in protos.items():
        feed = drawn(proto)
        (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
        np.savez(folder / f"{name}.npz", **feed)
        for place, array in enumerate(feed.values()):
            array.astype(np.float32).tofile(folder / f"{name}.{place}")
        session = InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        wanted[name] = [np.asarray(array) for array in session.run(None, feed)]
    return wanted


def same(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Compare with onnxruntime's numbers, which are those of float32; the NPU computes in fp16."""
    assert ours.shape == theirs.shape, name
    bound = 5e-3 * max(float(np.abs(theirs).max()), 1.0)
    np.testing.assert_allclose(ours, theirs.astype(np.float32), rtol=0, atol=bound, err_msg=name)


def host_models() -> dict[str, onnx.ModelProto]:
    """Models whose inputs only operators of the host read, with a layer of the NPU behind them."""
    protos = {}
    for size in (1, 4, 7):
        net = Net()
        y = net.add("Conv", net.add("Sin", net.input(size, 8, 6, 6)), net.drawn(8, 8, 1, 1))
        protos[f"first on the host, {size}"] = net.proto(y)
        net = Net()
        y = net.add("Conv", net.input(size, 8, 6, 6), net.drawn(8, 8, 1, 1))
        y = net.add("Conv", net.add("Cos", y), net.drawn(4, 8, 3, 3))
        protos[f"between layers, {size}"] = net.proto(net.add("Sin", y), y)
        net = Net()
        x = net.input(size, 5, 6, 6)
        protos[f"only on the host, {size}"] = net.proto(net.add("Mul", net.add("Sin", x), net.drawn(5, 1, 1)))
    return protos


@pytest.mark.parametrize("program", ["floats", "rknnlite"])
def test_outputs_are_those_of_onnxruntime(prefix: Path, server: RknnServer, tmp_path: Path, program: str):
    wanted = written(tmp_path, {name: model(name) for name in ALL} | host_models())
    names = [tmp_path / name for name in wanted]
    if program == "rknnlite":
        run(prefix, server, sys.executable, "-c", LITE, 0, *names)
    for name, path in zip(wanted, names, strict=True):
        if program == "rknnlite":
            with np.load(f"{path}.out.npz") as found:
                outputs = [found[key] for key in found.files]
        else:
            count = len(arrays_of(f"{path}.npz"))
            words = (f"{path}.onnx", 0, f"{path}.out", *(f"{path}.{place}" for place in range(count)))
            run(prefix, server, prefix / "floats", *words)
            data, at = np.fromfile(f"{path}.out", np.float32), 0
            outputs = []
            for array in wanted[name]:
                outputs.append(data[at : at + array.size].reshape(array.shape))
                at += array.size
            assert at == data.size, name
        for ours, theirs in zip(outputs, wanted[name], strict=True):
            same(name, ours, theirs)


COMMANDS = """heads_of_an_attention a_sequence_in_the_second_axis convolutions codes a_sequence
a_mean_of_the_samples a_bias_for_each_sample frames_as_channels more_samples""".split()


@pytest.mark.parametrize("name", [*COMMANDS, *host_models()])
def test_commands_take_the_same_models_in_the_same_way(name: str, tmp_path: Path):
    """`run --check` on random inputs, `compare`, `estimate` and a compiled file."""
    proto = model(name) if name in COMMANDS else host_models()[name]
    path, compiled = tmp_path / "model.onnx", tmp_path / "model.rkc"
    path.write_bytes(proto.SerializeToString())
    samples = batch_size(open_file(path))
    wanted = (N if name in APART else 1) if name in COMMANDS else int(name.rpartition(" ")[2])
    assert samples == wanted
    found = run_model(path, engine="golden", reference=True)
    assert found.verdict["match"] and found.samples == samples
    assert all(output["reference_worst"] < 5e-3 for output in found.outputs)
    assert compare(path).match
    estimated = estimate_model(path)
    assert estimated.samples == samples and len(estimated.jobs) == found.submits
    if samples > 1 and estimated.tasks:
        assert estimated.cycles == samples * estimate_model(one_of(open_file(path))).cycles
    compiled.write_bytes(open_file(path).save())
    again = run_model(compiled, engine="golden")
    assert again.verdict["match"] and again.samples == samples
    for ours, theirs in zip(again.results[0], found.results[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["rows_of_a_dense_layer", "between layers, 4"])
def test_samples_run_on_the_rtl(name: str, tmp_path: Path):
    """Cycles are those of all samples; every tensor of every sample is that of the golden models."""
    path = tmp_path / "model.onnx"
    path.write_bytes((model(name) if name in ALL else host_models()[name]).SerializeToString())
    found = run_model(path, reference=True)
    assert found.verdict["match"] and found.samples in (N, 4)
    assert all(output["reference_worst"] < 5e-3 for output in found.outputs)
    page = from_json(found.as_json())
    assert page.cycles == found.cycles // found.samples and page.submits * found.samples == found.submits
    assert page.in_rows <= page.cycles <= page.in_rows + 600 * page.submits  # a start is in no row


def test_onnxruntimes_provider_has_the_samples_on_the_npu(tmp_path: Path):
    from tests.makers.ort_scripts import inputs_of, results, session

    file = tmp_path / "run.json"
    data = model("convolutions").SerializeToString()
    ours, alone = session(data, check=1, json=file), session(data, alone=True)
    values = inputs_of(ours, 5)
    for mine, theirs in zip(results(ours, values), results(alone, values), strict=True):
        same("convolutions", mine, theirs)
    del ours
    document = json.loads(file.read_text())
    assert [(run["samples"], run["verdict"]["match"]) for run in document["models"]] == [(N, True)]
    assert document["left"] == []
