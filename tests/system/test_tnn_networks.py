"""Whole networks of TNN: files written from ONNX models, sharing of memory, statuses, and the commands."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from rkcosim.apis.tnn import (
    TNN,
    DataFormat,
    DeviceType,
    Instance,
    Mat,
    MatType,
    ModelConfig,
    ModelType,
    NetworkConfig,
    NetworkType,
    ShareMemoryMode,
    StatusCode,
    get_device,
)
from rkcosim.apis.tnn.loader import TnnNetwork, join, to_onnx, write_network
from rkcosim.apis.tnn.loader.proto import LayerInfo, NetInput, NetStructure
from rkcosim.base.files import read_model
from rkcosim.cli.main import app
from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.makers.tnn_layers import run_instance

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
HELD_BACK = ROOT / "examples" / "digits" / "held_back.npz"

DEFAULT = ShareMemoryMode.SHARE_MEMORY_MODE_DEFAULT
ONE_THREAD = ShareMemoryMode.SHARE_MEMORY_MODE_SHARE_ONE_THREAD
EXTERNAL = ShareMemoryMode.SHARE_MEMORY_MODE_SET_FROM_EXTERNAL
NAIVE = NetworkConfig()
GOLDEN = NetworkConfig(device_type=DeviceType.DEVICE_RK3588, engine="golden")
LAYERS = replace(GOLDEN, network_type=NetworkType.NETWORK_TYPE_DEFAULT)


def _converted(model: onnx.ModelProto) -> TnnNetwork:
    made: TnnNetwork = runpy.run_path(str(ROOT / "examples/tnn/from_onnx.py"))["convert"](model)
    return made


@pytest.fixture(scope="module")
def digits() -> TnnNetwork:
    """The digits network, int8."""
    return _converted(onnx.load(DIGITS))


@pytest.fixture(scope="module")
def residual() -> onnx.ModelProto:
    """A network of floats."""
    made = runpy.run_path(str(ROOT / "examples/networks/make.py"))
    network, output = made["residual"]()
    model: onnx.ModelProto = network.model(output)
    return model


@pytest.fixture(scope="module")
def files(digits: TnnNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both files of the digits network; the path of the first."""
    path = tmp_path_factory.mktemp("tnn") / "digits.tnnproto"
    proto, model = write_network(digits)
    path.write_bytes(proto)
    path.with_suffix(".tnnmodel").write_bytes(model)
    return path


def _pictures(count: int) -> np.ndarray:
    with np.load(HELD_BACK) as data:
        made: np.ndarray = (data["images"][:count, None, None] * data["scale"]).astype(np.float32)
    return made


def _run(model: CompiledModel, inputs: np.ndarray, *names: str) -> list[tuple[np.ndarray, ...]]:
    found = []
    with LoadedModel(model, GoldenDriver()) as loaded:
        for values in inputs:
            loaded.set_input(0, values)
            loaded.run()
            found.append((loaded.get_output(0), *(loaded.tensor(name).copy() for name in names)))
    return found


def test_int8_codes_of_a_converted_network_equal_those_of_the_onnx_model(digits: TnnNetwork):
    ours = compile_model(join(*write_network(digits)))
    theirs = compile_model(DIGITS.read_bytes())
    head = "head_QuantizeLinear_Output"
    pairs = zip(_run(ours, _pictures(16), "head::codes"), _run(theirs, _pictures(16), head), strict=True)
    for (scores, codes), (expected, wanted) in pairs:
        np.testing.assert_array_equal(codes, wanted)
        assert scores.argmax() == expected.argmax()
        assert (
            np.abs(scores - expected).max() <= 0.5 / 255 + 1e-6
        )  # the ONNX model rounds its scores to 1/255


def test_bytes_of_a_converted_network_of_floats_equal_those_of_the_onnx_model(residual: onnx.ModelProto):
    ours = compile_model(join(*write_network(_converted(residual))))
    theirs = compile_model(residual.SerializeToString())
    inputs = np.random.default_rng(2).normal(0, 1, (3, 1, 3, 32, 32)).astype(np.float32)
    for (made,), (wanted,) in zip(_run(ours, inputs), _run(theirs, inputs), strict=True):
        assert made.tobytes() == wanted.tobytes()


def _inputs(seed: int = 1) -> dict[str, np.ndarray]:
    return {"image": _pictures(seed + 1)[seed]}


def _scores(instance: Instance, seed: int = 1) -> bytes:
    (values,) = run_instance(instance, _inputs(seed)).values()
    return values.tobytes()


@pytest.mark.parametrize("config", [NAIVE, GOLDEN, LAYERS], ids=["naive", "plan", "layers"])
def test_three_sharing_modes_give_equal_bytes(config: NetworkConfig, digits: TnnNetwork):
    found, use = {}, {}
    for mode in (DEFAULT, ONE_THREAD, EXTERNAL):
        with Instance(digits, replace(config, share_memory_mode=mode), {}) as instance:
            status, size = instance.GetForwardMemorySize()
            assert status
            if mode == EXTERNAL:
                device, context = get_device(config.device_type), instance.network.context
                assert instance.Forward().code == StatusCode.TNNERR_FORWARD_MEM_NOT_SET
                small = device.Allocate(size - 64, context)
                assert instance.SetForwardMemory(small).code == StatusCode.TNNERR_OUTOFMEMORY
                memory = device.Allocate(size + 64, context)
                assert instance.SetForwardMemory((memory, 64))
            else:
                assert instance.SetForwardMemory(None).code == StatusCode.TNNERR_SHARED_MODE
            found[mode], use[mode] = _scores(instance), instance.memory()
            assert use[mode].forward == size
    assert len(set(found.values())) == 1
    assert len({one.forward for one in use.values()}) == len({one.blobs for one in use.values()}) == 1
    assert use[DEFAULT].saved > 0 and use[DEFAULT].own == use[DEFAULT].forward
    assert use[ONE_THREAD].own == use[EXTERNAL].own == 0
    assert use[ONE_THREAD].shared >= use[ONE_THREAD].forward


@pytest.mark.parametrize("config", [NAIVE, GOLDEN], ids=["naive", "plan"])
def test_instances_of_one_thread_share_memory_that_grows(
    config: NetworkConfig, digits: TnnNetwork, residual: onnx.ModelProto
):
    """The smaller network first; both are used in turns, before and after the memory has grown."""
    shared = replace(config, share_memory_mode=ONE_THREAD)
    other = _converted(residual)
    values = {"image": np.random.default_rng(3).normal(0, 1, (1, 3, 32, 32)).astype(np.float32)}
    with Instance(digits, config, {}) as alone:
        wanted = [_scores(alone, 1), _scores(alone, 2)]
    with Instance(other, config, {}) as alone:
        (expected,) = run_instance(alone, values).values()
    with Instance(digits, shared, {}) as first:
        before = first.memory().shared
        assert _scores(first, 1) == wanted[0]
        with Instance(other, shared, {}) as second:
            assert second.memory().shared > before and first.memory().shared == second.memory().shared
            for number in (1, 2):
                (made,) = run_instance(second, values).values()
                np.testing.assert_array_equal(made, expected)
                assert _scores(first, number) == wanted[number - 1]
        assert _scores(first, 1) == wanted[0]
        codes = []
        thread = threading.Thread(target=lambda: codes.append(first.Forward().code))
        thread.start()
        thread.join(60)
        assert codes == [StatusCode.TNNERR_SHARED_THREAD]
    assert first.memory().shared == 0


def test_a_network_by_layers_is_within_a_step_of_the_plan(digits: TnnNetwork):
    tnn = TNN()
    assert tnn.Init(ModelConfig(params=write_network(digits))) and tnn.AddOutput("head")
    found = []
    for config in (NAIVE, GOLDEN, LAYERS):
        status, instance = tnn.CreateInst(config)
        assert status and instance is not None, status.description()
        with instance:
            found.append(run_instance(instance, _inputs())["head"])
    step = digits.scale_of("head", 10).first
    assert np.abs(found[0] - found[1]).max() <= 1.01 * step
    np.testing.assert_array_equal(found[1], found[2])


def test_inputs_may_have_other_shapes():
    layer = LayerInfo("ReLU", "relu", ("x",), ("y",))
    net = _of_layers(layer)
    tnn = TNN()
    assert tnn.Init(ModelConfig(params=write_network(net)))
    assert tnn.GetModelInputShapesMap()[1] == {"x": (1, 4, 6, 6)}
    for config in (NAIVE, GOLDEN):
        status, instance = tnn.CreateInst(config, {"x": (1, 4, 3, 9)})
        assert status and instance is not None
        with instance:
            assert instance.GetAllOutputBlobs()[1]["y"].desc.dims == (1, 4, 3, 9)
            assert instance.Reshape({"x": (1, 8, 2, 2)})
            values = np.random.default_rng(1).normal(0, 1, (1, 8, 2, 2)).astype(np.float16).astype(np.float32)
            np.testing.assert_array_equal(run_instance(instance, {"x": values})["y"], np.maximum(values, 0))
            assert instance.Reshape({"z": (1,)}).text == "the network has no input 'z'"


def _of_layers(*layers: LayerInfo, **resources: Any) -> TnnNetwork:
    return TnnNetwork(NetStructure((NetInput("x", (1, 4, 6, 6)),), layers[-1].outputs, layers), resources)


@pytest.mark.parametrize("config", [NAIVE, GOLDEN, LAYERS], ids=["naive", "plan", "layers"])
def test_layers_that_cannot_run_have_a_status_with_their_name(config: NetworkConfig):
    unknown = _of_layers(LayerInfo("GridSample", "warp", ("x",), ("y",)))
    wrong = _of_layers(LayerInfo("Permute", "turn", ("x",), ("y",), ("2", "0", "9")))
    missing = _of_layers(LayerInfo("PReLU", "slope", ("x",), ("y",), ("0", "1")), slope={})
    bare = _of_layers(LayerInfo("ReLU", "bare", ("x",), ("y",), (), quantized=True))
    faults = [(unknown, "GridSample 'warp'"), (wrong, "Permute 'turn'"), (bare, "blob 'x'")]
    for net, text in (*faults, (missing, "PReLU 'slope'")):
        tnn = TNN()
        assert tnn.Init(ModelConfig(params=write_network(net)))
        status, instance = tnn.CreateInst(config)
        assert instance is None and not status and text in status.text, status.description()
        assert status.code != StatusCode.TNN_OK and status.description().startswith("code: 0x")


def test_models_and_configurations_that_are_not_supported_have_a_status(digits: TnnNetwork):
    proto, model = write_network(digits)
    tnn = TNN()
    assert tnn.CreateInst(NAIVE)[0].code == StatusCode.TNNERR_NET_ERR
    assert tnn.GetModelInputShapesMap()[0].code == StatusCode.TNNERR_NET_ERR
    assert tnn.Init(ModelConfig(ModelType.MODEL_TYPE_NCNN)).code == StatusCode.TNNERR_FIND_MODEL
    assert tnn.Init(ModelConfig(params=[proto])).code == StatusCode.TNNERR_PARAM_ERR
    assert tnn.Init(ModelConfig(params=[proto, model[:99]])).code == StatusCode.TNNERR_INVALID_MODEL
    assert tnn.Init(ModelConfig(params=[proto.decode(), model]))
    assert tnn.AddOutput("nothing").code == StatusCode.TNNERR_PARAM_ERR
    arm = tnn.CreateInst(NetworkConfig(device_type=DeviceType.DEVICE_ARM))[0]
    assert arm.code == StatusCode.TNNERR_DEVICE_NOT_SUPPORT and "DEVICE_NAIVE, DEVICE_RK3588" in arm.text
    engine = tnn.CreateInst(replace(GOLDEN, engine="silver"))[0]
    assert engine.code == StatusCode.TNNERR_DEVICE_NOT_SUPPORT and "silver" in engine.text
    nhwc = tnn.CreateInst(NetworkConfig(data_format=DataFormat.DATA_FORMAT_NHWC))[0]
    assert nhwc.code == StatusCode.TNNERR_DATA_FORMAT
    whole = tnn.CreateInst(replace(NAIVE, network_type=NetworkType.NETWORK_TYPE_RK_NPU))[0]
    assert whole.code == StatusCode.TNNERR_NET_ERR
    status, instance = tnn.CreateInst(NAIVE)
    assert status and instance is not None
    with instance:
        flat = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, (1, 1, 4, 4))
        assert instance.SetInputMat(flat).code == StatusCode.TNNERR_INVALID_INPUT
        assert instance.SetInputMat(flat, name="nothing").code == StatusCode.TNNERR_INVALID_INPUT
        assert instance.GetOutputMat(name="nothing")[0].code == StatusCode.TNNERR_INVALID_INPUT
        assert instance.GetOutputMat(mat_type=MatType.NNV12)[0].code == StatusCode.TNNERR_PARAM_ERR


def _rkcosim(*words: object) -> tuple[int, str]:
    """Return the exit code and the text; with --json only standard output, which holds nothing else."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout if "--json" in words else result.output


def test_run_on_the_rtl_equals_the_golden_models(files: Path):
    code, text = _rkcosim("run", files, "--input", HELD_BACK, "--limit", "2", "--check")
    assert code == 0 and "every tensor, bit for bit" in text and "same label as NAIVE: 2 of 2" in text


def test_info_shows_models_of_every_kind(files: Path, tmp_path: Path):
    code, text = _rkcosim("info", files)
    assert code == 0 and "TNN network" in text and "8 QuantizedConvolution" in text and "input image" in text
    code, text = _rkcosim("regcmd", "dump", files)
    assert code == 0 and "CNA" in text
    container = tmp_path / "digits.rknn"
    assert _rkcosim("compile", files, "-o", container)[0] == 0
    code, text = _rkcosim("info", container)
    assert code == 0 and ".rknn file" in text
    code, text = _rkcosim("info", DIGITS, "--json", "-", "-q")
    found = json.loads(text)
    assert code == 0 and found["kind"] == "ONNX model" and found["operators"]["Conv"] == 7


def test_compare_uses_naive(files: Path):
    code, text = _rkcosim("compare", files, "--input", HELD_BACK, "--limit", "3", "--json", "-", "-q")
    found = json.loads(text)
    assert code == 0 and found["reference"] == "NAIVE" and found["match"]
    assert {row["name"] for row in found["layers"]} >= {"stem", "pool", "residual", "head"}
    code, text = _rkcosim("compare", files, "--reference", "litert")
    assert code == 2 and "litert does not read this format, naive does" in text


def test_damaged_files_are_bad_input(files: Path, tmp_path: Path):
    path = tmp_path / "net.tnnproto"
    path.write_bytes(files.read_bytes())
    for command in ("run", "info", "compile", "compare"):
        code, text = _rkcosim(command, path)
        assert code == 2 and "net.tnnmodel" in text and "No such file" in text
    path.with_suffix(".tnnmodel").write_bytes(files.with_suffix(".tnnmodel").read_bytes()[:500])
    code, text = _rkcosim("run", path)
    assert code == 2 and "damaged .tnnmodel" in text and str(path) in text


def test_the_example_shows_equal_scores_in_all_modes(files: Path):
    words = [sys.executable, "examples/tnn/classify.py", str(files), "--engine", "golden", "--count", "2"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("NAIVE ", "RK3588 "))]
    assert len(rows) == 6
    for device in ("NAIVE", "RK3588"):
        assert len({row[-1] for row in rows if row[0] == device}) == 1
        assert f"{device}: digits 0 7, truth 0 7" in done.stdout


def test_random_arrays_make_a_network_that_agrees_with_naive(tmp_path: Path):
    """An int8 network of text alone gets arrays; its outputs are within a step of NAIVE's."""
    text = tmp_path / "bare.tnnproto"
    text.write_text(
        "1 5 1 4206624770 , x 1 3 12 12 , x a b c d , d , 4 ,"
        "QuantizedConvolution one 1 1 x a 1 3 8 3 3 1 1 1 1 1 -1 1 1 1 ,"
        "QuantizedConvolution two 1 1 a b 8 1 8 3 3 2 2 1 1 1 -1 1 1 2 ,"
        "QuantizedPooling pool 1 1 b c 1 0 0 1 1 0 0 -1 -1 -1 0 ,"
        "QuantizedInnerProduct last 1 1 c d 10 1 0 1 ,"
    )
    words = [sys.executable, "examples/tnn/random_arrays.py", str(text), str(tmp_path / "full.v1")]
    subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    code, printed = _rkcosim("compare", tmp_path / "full.v1.tnnproto", "--json", "-", "-q")
    found = json.loads(printed)
    assert code == 0 and [row["name"] for row in found["layers"]] == ["one", "two", "pool", "last:Gemm1"]
    assert all(row["unit"] == "step" and row["worst"] <= 1 for row in found["layers"])


def test_the_example_writes_files(tmp_path: Path, digits: TnnNetwork):
    words = [sys.executable, "examples/tnn/from_onnx.py", str(DIGITS), str(tmp_path / "made")]
    subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert read_model(tmp_path / "made.tnnproto") == join(*write_network(digits))
    onnx.checker.check_model(to_onnx(digits))
