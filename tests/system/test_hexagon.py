"""Programs of Hexagon NN on both libraries, and a quantised network beside the same one as a TFLite model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")

from rkcosim.apis.hexagon.geometry import Padding
from rkcosim.apis.hexagon.library import environment, hexagon_library, lay_out
from rkcosim.apis.hexagon.npu import Npu
from rkcosim.apis.link.instruments import open_machine
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.devices.native_library import c_compiler, sanitizer_runtime
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from tests.makers.hexagon_graphs import Builder, execute
from tests.makers.hexagon_networks import Form, graph_of_tflite
from tests.makers.tflite_models import Tf
from tests.programs import needs_program

pytestmark = needs_program("cc")

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "tests" / "system" / "programs" / "hexagon_rules.c"
EXAMPLE = ROOT / "examples" / "hexagon" / "edges.c"

FORMS = {
    "nnlib 2.20": ((), "hexagon_nn"),
    "oldest": (("-DHEXAGON_NN_V1",), "hexagon_nn_v1"),
    "wide perfinfo": (("-DHEXAGON_NN_WIDE_PERFINFO",), "hexagon_nn"),
}
"""Flags of a program, and its library."""


def compiled(folder: Path, source: Path, form: str) -> Path:
    """Compile a program against the headers and libraries in a folder."""
    flags, library = FORMS[form]
    program = folder / source.stem
    command = [
        *c_compiler(),
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        f"-I{folder / 'include'}",
        "-o",
        program,
        source,
    ]
    subprocess.run([*command, f"-L{folder / 'lib'}", f"-l{library}", "-lpthread"], check=True)
    return program


def command(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `rkcosim hexagon`."""
    return subprocess.run(
        [sys.executable, "-m", "rkcosim", "hexagon", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("form", FORMS)
def test_rules(tmp_path: Path, form: str) -> None:
    """Order of calls, return codes, reserved numbers, memory, counters, texts, threads; with sanitizers."""
    wide = form == "wide perfinfo"
    library = hexagon_library(wide=wide, sanitize=True)
    lay_out(tmp_path, library, hexagon_library(v1=True, sanitize=True))
    program = compiled(tmp_path, RULES, form)
    variables = environment(tmp_path, {"engine": "golden"}) | {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [program],
        env=variables | {"LD_PRELOAD": sanitizer_runtime()},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all rules hold\n"
    assert "ERROR" not in done.stderr and "runtime error" not in done.stderr


@pytest.mark.parametrize("form", ["nnlib 2.20", "oldest"])
def test_example_on_the_rtl(tmp_path: Path, form: str) -> None:
    """The example's edges, its cycles by node, and the comparison with both golden models."""
    done = command(tmp_path, "--prefix", tmp_path)
    assert done.returncode == 0, done.stderr
    program = compiled(tmp_path, EXAMPLE, form)
    done = command(tmp_path, "--check", "--json", "run.json", "--", program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "1 x 8 x 8 x 2, 128 bytes"
    vertical, horizontal = (
        np.array([[int(n) for n in line.split("|")[side].split()] for line in lines[1:9]]) for side in (0, 1)
    )
    picture = np.full((18, 18), 20)
    picture[1:-1, 1:-1][4:12, 4:12] = 200
    picture[[0, -1]], picture[:, [0, -1]] = 0, 0
    kernel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    for found, one in ((vertical, kernel), (horizontal, kernel.T)):
        windows = np.lib.stride_tricks.sliding_window_view(picture, (3, 3))
        codes = np.clip(np.floor((windows * one).sum(axis=(2, 3)) / 4 + 0.5) + 128, 128, 255)
        assert (found == codes.reshape(8, 2, 8, 2).max(axis=(1, 3))).all()
    cycles = {row[0]: int(row[1]) for row in re.findall(r"^0x\w+ (\w+) .* (\d+) cycles$", done.stdout, re.M)}
    assert cycles["QuantizedConv2d_8x8to32"] > 1000 and cycles["QuantizedMaxPool_8"] > 300
    assert cycles["QuantizedRelu_8"] == cycles["INPUT"] == 0
    assert f"last execution: {sum(cycles.values())} cycles" in done.stdout
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["match"] is True and document["exit_code"] == 0
    (graph,) = document["graphs"]
    assert graph["cycles"] == sum(cycles.values())
    by_name = {node["operation"]: node for node in graph["nodes"]}
    conv = by_name["QuantizedConv2d_8x8to32"]
    assert 0 < conv["busy"] < conv["cycles"] and conv["bytes"] > 256
    assert by_name["Requantize_32to8"]["on"] == "npu" and by_name["OUTPUT"]["on"] == "host"
    assert "MATCH: every layer and every sum of the NPU, bit for bit" in done.stderr


def test_errors_of_the_command(tmp_path: Path) -> None:
    assert "name a program" in command(tmp_path).stderr
    assert "omit the program" in command(tmp_path, "--prefix", tmp_path, "--", "true").stderr
    done = command(tmp_path, "--engine", "golden", "--", "true")
    assert done.returncode == 0 and "no graph was executed" in done.stderr
    assert command(tmp_path, "--engine", "golden", "--", "false").returncode == 1


# -- networks ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden() -> Iterator[Machine]:
    """The golden engine, with every layer compared with both golden models."""
    made = open_machine(Settings(engine="golden", check=True))
    yield made
    made.close()


def tflite_codes(data: bytes, x: np.ndarray) -> np.ndarray:
    """The output of a TFLite model on the golden engine, for one input (1, H, W, C)."""
    engine = open_engine("golden")
    with LoadedModel(compile_model(data), Driver(engine)) as loaded:
        loaded.set_input(0, x.transpose(0, 3, 1, 2))
        loaded.run()
        found = loaded.get_output(0, raw=True)
    engine.close()
    return found.transpose(0, 2, 3, 1) if found.ndim == 4 else found


def network(seed: int, exact: bool) -> bytes:
    """A quantised network as a TFLite model: four convolutions and a maximum.

    With `exact` the ratios of all steps are powers of two, the weights even and the biases odd, so no sum is
    half-way between two codes, where the roundings of both formats differ.
    """
    t = Tf(seed=seed, dtype="uint8")
    rng = np.random.default_rng(seed)
    x = t.input((1, 16, 16, 3), 1 / 16, 128)
    for number, (kind, count, kernel, stride) in enumerate(
        [
            ("conv", 16, 3, 2),
            ("depthwise", 16, 3, 1),
            ("conv", 32, 1, 1),
            ("pool", 32, 2, 2),
            ("conv", 24, 3, 1),
        ]
    ):
        item = t.items[x]
        if kind == "pool":
            _, height, width, _ = item.shape
            options = {"FilterHeight": kernel, "FilterWidth": kernel, "StrideH": stride, "StrideW": stride}
            shape = (1, height // stride, width // stride, count)
            x = t.add("MAX_POOL_2D", [x], shape, scale=item.scale, zero=128, Padding=1, **options)
            continue
        scale = (2.0**-2 if number % 2 == 0 else 2.0**-4) if exact else rng.uniform(0.05, 0.4)
        more = {"scale": scale, "zero": 128, "FusedActivationFunction": number % 2}
        x = (
            t.conv(x, count, kernel, stride, **more)
            if kind == "conv"
            else t.depthwise(x, kernel, stride, **more)
        )
        weights, bias = (t.items[n] for n in t.nodes[-1][1][1:])
        weights.scale = rng.uniform(0.004, 0.012)
        weights.zero = 128
        if exact:
            spread = np.sqrt(weights.data[..., 0].size if kind == "depthwise" else weights.data[0].size) * 40
            weights.scale = 2.0 ** -round(np.log2(spread)) * scale / item.scale
            weights.data, bias.data = weights.data & 254, bias.data | 1
        bias.scale = weights.scale * item.scale
    return t.bytes(x)


@pytest.mark.parametrize("form", ["fused", "requantised"])
def test_network_equals_the_tflite_model(golden: Machine, form: Form) -> None:
    """Every byte of the output, in layers of the NPU only."""
    data = network(3, exact=True)
    graph, npu = graph_of_tflite(data, form), Npu(golden)
    for seed in range(2):
        x = np.random.default_rng(seed).integers(0, 256, (1, 16, 16, 3), dtype=np.uint8)
        outcome = execute(graph, [x], npu)
        assert outcome.result == 0, graph.take_log()
        found = outcome.outputs[0].codes
        assert np.unique(found).size > 60
        wanted = tflite_codes(data, x)
        difference = np.abs(found.astype(int) - wanted.astype(int))
        assert difference.max() == 0, f"{np.count_nonzero(difference)} of {difference.size} bytes differ"
    places = {node.name: node.place for node in graph.nodes if node.place}
    assert {name: place for name, place in places.items() if place == "host"} == {
        "INPUT": "host",
        "OUTPUT": "host",
    }
    npu.forget(graph)


def test_network_on_the_rtl() -> None:
    """Layers and sums on the default engine, each compared with both golden models or its definition."""
    data = network(3, exact=True)
    machine = open_machine(Settings(check=True))
    graph, npu = graph_of_tflite(data, "requantised"), Npu(machine)
    x = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), dtype=np.uint8)
    outcome = execute(graph, [x], npu)
    assert outcome.result == 0, graph.take_log()
    assert (outcome.outputs[0].codes == tflite_codes(data, x)).all()
    cycles = {node.name: node.totals for node in graph.nodes if node.totals[0]}
    assert set(cycles) == {
        "QuantizedConv2d_8x8to32",
        "QuantizedDepthwiseConv2d_8x8to32",
        "QuantizedMaxPool_8",
    }
    assert graph.last_cycles == sum(node.totals[0] for node in graph.nodes)
    npu.forget(graph)
    found, alone = ranges_in_the_data(), ranges_in_the_data()
    x = np.random.default_rng(1).normal(size=(1, 6, 6, 4)).astype(np.float32)
    reals = execute(found, [x], npu).outputs[0].reals
    assert (reals == execute(alone, [x]).outputs[0].reals).all()
    assert found.last_cycles > 500
    machine.close()


@pytest.mark.parametrize("form", ["fused", "requantised"])
def test_network_with_any_steps(golden: Machine, form: Form) -> None:
    """With arbitrary steps the roundings differ: the NPU gives what the definition gives, on the host too."""
    data = network(5, exact=False)
    x = np.random.default_rng(9).integers(0, 256, (1, 16, 16, 3), dtype=np.uint8)
    graph, npu = graph_of_tflite(data, form), Npu(golden)
    found = execute(graph, [x], npu).outputs[0].codes
    npu.forget(graph)
    alone = execute(graph_of_tflite(data, form), [x]).outputs[0].codes
    assert (found == alone).all()
    difference = np.abs(found.astype(int) - tflite_codes(data, x).astype(int))
    assert difference.max() <= 2, difference.max()
    assert np.mean(difference > 0) < 0.2


@pytest.mark.parametrize("form", ["fused", "requantised"])
def test_sums_joins_and_products(golden: Machine, form: Form) -> None:
    """Two branches that are added and joined, an average, and a product with a fused bias."""
    t = Tf(seed=11, dtype="uint8")
    x = t.input((1, 8, 8, 4), 1 / 16, 128)
    a, b = (t.conv(x, 16, rows, scale=0.3, zero=120) for rows in (1, 3))
    total = t.add("ADD", [a, b], (1, 8, 8, 16), scale=0.5, zero=110)
    both = t.add("CONCATENATION", [total, a], (1, 8, 8, 32), scale=0.5, zero=110, Axis=3)
    options = {"FilterHeight": 8, "FilterWidth": 8, "StrideH": 1, "StrideW": 1, "Padding": 1}
    mean = t.add("AVERAGE_POOL_2D", [both], (1, 1, 1, 32), scale=0.5, zero=110, **options)
    data = t.bytes(t.dense(mean, 10, scale=1.0, zero=128))
    graph, npu = graph_of_tflite(data, form), Npu(golden)
    x = np.random.default_rng(2).integers(0, 256, (1, 8, 8, 4), dtype=np.uint8)
    found = execute(graph, [x], npu).outputs[0].codes
    npu.forget(graph)
    assert (found == execute(graph_of_tflite(data, form), [x]).outputs[0].codes).all()
    assert np.abs(found.reshape(-1).astype(int) - tflite_codes(data, x).reshape(-1).astype(int)).max() <= 3
    places = {node.name: node.place for node in graph.nodes}
    assert places["SuperFC_8x8p32to8"] == places["QuantizedAvgPool_8"] == "npu"
    assert places["QuantizedAdd_8p8to8"] == places["QuantizedConcat_8"] == "host"


def test_limits_that_change(golden: Machine) -> None:
    """The threshold of an activation is an input of the graph: it counts in every execution."""
    b = Builder()
    x, *ends, most = b.input(4)
    w = b.constant(np.arange(100, 164).reshape(1, 1, 8, 8), np.uint8)
    sums = b.node(
        "QuantizedConv2d_8x8to32", [x, w, *ends, *b.range(-1, 1), b.shape(1, 1, 1, 1)], 3, Padding.SAME
    )
    codes = b.node("Requantize_32to8", [*sums, *b.range(-8, 8)], 3)
    b.output(b.node("QuantizedReluX_8", [*codes, most], 3)[:1])
    graph, npu = b.prepared(), Npu(golden)
    x = np.random.default_rng(4).integers(0, 256, (1, 5, 5, 8), dtype=np.uint8)
    tops = []
    for high, threshold in ((4.0, 0.5), (4.0, 1.0), (3.0, 0.5), (4.0, 0.5), (2.0, 0.3), (1.0, 0.1)):
        scalars = [np.array([n], np.float32) for n in (-4.0, high, threshold)]
        found, alone = (execute(graph, [x, *scalars], one).outputs[0].codes for one in (npu, None))
        assert (found == alone).all()
        tops.append(int(found.max()))
    assert tops[0] == tops[3] < tops[1]
    assert graph.by_number[sums[0].source].place == "npu"
    npu.forget(graph)


def ranges_in_the_data() -> Any:
    """A graph of a convolution whose output's range follows from the data."""
    b = Builder()
    codes = b.node("AutoQuantize", b.input(), 3)
    w = b.constant(np.random.default_rng(1).integers(0, 256, (3, 3, 4, 8)), np.uint8)
    inputs = [codes[0], w, *codes[1:], *b.range(-1, 1), b.shape(1, 1, 1, 1)]
    sums = b.node("QuantizedConv2d_8x8to32", inputs, 3, Padding.SAME)
    down = b.node("QuantizeDownAndShrinkRange_32to8", sums, 3)
    b.output(b.node("Dequantize", b.node("QuantizedRelu_8", down, 3)))
    return b.prepared()


def test_ranges_from_the_data(golden: Machine) -> None:
    """Sums on the NPU, their range found by the host: QuantizeDownAndShrinkRange, in every execution anew."""
    graph, alone, npu = ranges_in_the_data(), ranges_in_the_data(), Npu(golden)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(1, 6, 6, 4)).astype(np.float32)
        found = execute(graph, [x], npu).outputs[0].reals
        assert (found == execute(alone, [x]).outputs[0].reals).all()
        assert found.std() > 0.1
    places = {node.name: node.place for node in graph.nodes}
    assert places["QuantizedConv2d_8x8to32"] == "npu"
    assert places["QuantizeDownAndShrinkRange_32to8"] == "host"
