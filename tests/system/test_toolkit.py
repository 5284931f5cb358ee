"""Scripts of the vendor's toolkit: `from rknn.api import RKNN` under `rkcosim rknn`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.rknn_file import read_rknn
from tests import seeds
from tests.makers.archives import arrays_of
from tests.makers.shape_models import by_onnxruntime, enlarging
from tests.system.qdq_models import Net

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a small float classifier of pictures."""
    n = Net((1, 3, 16, 12), seed=2)
    x = n.add("Relu", n.conv("x", 3, 16, pads=[1] * 4))
    flat = n.add("Flatten", n.add("GlobalAveragePool", x))
    path = tmp_path / "small.onnx"
    path.write_bytes(n.model(n.gemm(flat, 16, 5)).SerializeToString())
    return path


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rkcosim", "rknn", "--engine", "golden", "--", sys.executable, *words]
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_example_has_every_call(model: Path, tmp_path: Path) -> None:
    done = run(ROOT / "examples" / "rknn" / "convert.py", model, "--size", 16, 12, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    text = done.stdout
    for line in ("load_caffe: -1", "load_darknet: -1", "init_runtime on another target: -1"):
        assert line in text
    for call in ("config", "load_onnx", "build", "export_rknn", "init_runtime", "accuracy_analysis"):
        assert f"{call}: ok" in text
    for step in (1, 2):
        assert f"hybrid_quantization_step{step}: ok" in text
    assert "inference: [((1, 5), 'float32')]" in text
    assert "'total_internal_allocation', 'total_model_allocation', 'total_weight_allocation'" in text
    assert "Total Time(us): " in text and "on the NPU: SQNR" in text
    assert "['error_analysis.html', 'error_analysis.json', 'error_analysis.txt']" in text
    assert "the exported file gives the same: True" in text
    assert float(text.partition("differ by at most ")[2].split()[0]) < 0.2
    assert "E RKNN: load_caffe: not available; convert the model to ONNX first" in done.stderr


MISUSE = """
import sys
import numpy as np
from rknn.api import RKNN

rknn = RKNN()
assert rknn.build(do_quantization=False) == -1
assert rknn.export_rknn("x.rknn") == rknn.init_runtime() == -1
assert rknn.inference(inputs=[]) is None and rknn.eval_perf() is None and rknn.eval_memory() is None
assert rknn.accuracy_analysis(["x.png"]) == -1
assert rknn.config(target_platform="rk3566") == -1
assert rknn.config(quantized_algorithm="gdq") == -1
assert rknn.config(quantized_dtype="w16a16i") == -1
assert rknn.config(mean_values=[["a"]]) == -1
assert rknn.config(no_such_option=1) == -1
assert rknn.config(mean_values=[[1, 2, 3]], std_values=[[1, 2]]) == -1
assert rknn.config(optimization_level=2) == 0 and rknn.config(optimization_level=2) == 0
assert rknn.load_onnx("none.onnx") == rknn.load_tflite("none.tflite") == rknn.load_rknn("none") == -1
assert rknn.load_tensorflow() == rknn.load_pytorch() == -1
assert rknn.hybrid_quantization_step1(dataset="none.txt") == -1
assert rknn.hybrid_quantization_step2("a.model", "a.data", "a.cfg") == -1
assert rknn.load_onnx(sys.argv[1], inputs=["x"], input_size_list=[[1, 3, 16, 12]]) == 0
assert rknn.build(do_quantization=True) == -1
assert rknn.build(do_quantization=True, dataset="none.txt") == -1
assert rknn.build(do_quantization=False, rknn_batch_size=2000) == -1
assert rknn.config(mean_values=[[1, 2]], std_values=[[1, 1]]) == 0
assert rknn.build(do_quantization=False) == -1
rknn.release()
rknn.release()
"""


def test_errors_are_named_and_options_once(model: Path, tmp_path: Path) -> None:
    (tmp_path / "misuse.py").write_text(MISUSE)
    done = run("misuse.py", model, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stderr
    assert said.count("the option 'optimization_level' has no effect") == 1
    for text in (
        "build: call load_onnx or load_tflite first",
        "config: target_platform 'rk3566': only rk3588 is simulated",
        "quantized_algorithm 'gdq' is not available, only normal, kl_divergence, mmse",
        "config: there is no option 'no_such_option'",
        "load_onnx: there is no file none.onnx",
        "build: do_quantization needs a dataset",
        "none.txt",
        "has 3 channels, but there are 2 means",
    ):
        assert text in said, (text, said)
    assert not list(tmp_path.glob("*.rknn"))


EXPORTED = """
import sys
from pathlib import Path
import numpy as np
from rknn.api import RKNN
from rknnlite.api import RKNNLite

rng = np.random.default_rng(3)
pixels = rng.integers(0, 256, (2, 16, 12, 3)).astype(np.uint8)
for number in range(2):
    np.save(f"{number}.npy", pixels[number : number + 1].astype(np.float32))
Path("dataset.txt").write_text("0.npy\\n1.npy\\n")
rknn = RKNN()
assert rknn.config(mean_values=[[120.0, 110.0, 100.0]], std_values=[[60.0, 65.0, 70.0]]) == 0
assert rknn.load_onnx(sys.argv[1]) == 0
assert rknn.build(dataset="dataset.txt", rknn_batch_size=2) == 0
assert rknn.export_rknn("small.rknn") == 0 and rknn.init_runtime() == 0
built = rknn.inference([pixels])[0]
rknn.release()
found = []
for mask in (RKNNLite.NPU_CORE_0, RKNNLite.NPU_CORE_0_1, RKNNLite.NPU_CORE_0_1_2):
    lite = RKNNLite()
    assert lite.load_rknn("small.rknn") == 0 and lite.init_runtime(core_mask=mask) == 0
    found.append(lite.inference(inputs=[pixels])[0])
    lite.release()
assert all((array == built).all() for array in found)
np.save("pixels.npy", pixels)
np.save("found.npy", built)
"""


def test_the_exported_file_has_the_vendors_form(model: Path, tmp_path: Path) -> None:
    """It has the plans, mean, std and batch, and gives what onnxruntime gives for the normalised pixels."""
    ort = pytest.importorskip("onnxruntime")
    (tmp_path / "script.py").write_text(EXPORTED)
    done = run("script.py", model, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "container of rkcosim" not in done.stderr
    data = (tmp_path / "small.rknn").read_bytes()
    file = read_rknn(data)
    assert data[:8] == b"RKNN\0\0\0\0" and sorted(file.plans) == [1, 2, 3] and file.batch == 2
    before = file.preprocessing[file.inputs[0]]
    assert (before.mean, before.std) == ((120.0, 110.0, 100.0), (60.0, 65.0, 70.0))
    pixels, found = (np.load(tmp_path / f"{name}.npy") for name in ("pixels", "found"))
    real = (pixels.astype(np.float32) - before.mean) / before.std
    session = ort.InferenceSession(str(model))
    for number, sample in enumerate(real.transpose(0, 3, 1, 2).astype(np.float32)):
        [wanted] = session.run(None, {"x": sample[None]})
        assert np.abs(found[number] - wanted[0]).max() < 0.05 * np.abs(wanted).max()


OWN = """
import sys
import numpy as np
from rknn.api import RKNN

rknn = RKNN()
assert rknn.config(mean_values=[[10.0] * 3], std_values=[[2.0] * 3]) == 0
assert rknn.load_onnx(sys.argv[1]) == 0
assert rknn.build(do_quantization=False, rknn_batch_size=2) == -1
assert rknn.build(do_quantization=False) == 0
assert rknn.export_rknn("small.rknn") == 0 and rknn.init_runtime() == 0
pixels = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3)
found = rknn.inference([pixels])[0]
wanted = np.sin((pixels.transpose(0, 3, 1, 2) - 10.0) / 2.0)
assert np.abs(found - wanted).max() < 0.02, np.abs(found - wanted).max()
again = RKNN()
assert again.load_rknn("small.rknn") == 0 and again.init_runtime() == 0
assert (again.inference([pixels])[0] == found).all()
"""


def test_a_model_without_a_vendors_form_is_in_our_container(tmp_path: Path) -> None:
    """A network that runs on the host alone has no command lists: its file says so and normalises itself."""
    n = Net((1, 3, 4, 4), seed=1)
    (tmp_path / "sine.onnx").write_bytes(n.model(n.add("Sin", "x")).SerializeToString())
    (tmp_path / "script.py").write_text(OWN)
    done = run("script.py", "sine.onnx", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "export_rknn: the file is a container of rkcosim, no .rknn file: " in done.stderr
    assert (tmp_path / "small.rknn").read_bytes()[:4] != b"RKNN"


HYBRID = """
import sys
from pathlib import Path
import numpy as np
from rknn.api import RKNN

rng = np.random.default_rng(3)
for number in range(2):
    np.save(f"{number}.npy", rng.integers(0, 256, (1, 16, 12, 3)).astype(np.float32))
Path("dataset.txt").write_text("0.npy\\n1.npy\\n")
pixels = rng.integers(0, 256, (1, 16, 12, 3)).astype(np.uint8)
outputs = {}
for form in ("float", "int8"):
    rknn = RKNN()
    assert rknn.config(mean_values=[127.5] * 3, std_values=[70.0] * 3) == 0
    assert rknn.load_onnx(sys.argv[1]) == 0
    assert rknn.build(do_quantization=form == "int8", dataset="dataset.txt") == 0
    assert rknn.init_runtime() == 0
    outputs[form] = rknn.inference(pixels)[0]
    assert (outputs[form] == rknn.inference([pixels])[0]).all()
    if form == "int8":
        assert rknn.hybrid_quantization_step1(dataset="dataset.txt", proposal=True) == 0
    rknn.release()

config = Path("small.quantization.cfg")
proposed = config.read_text()
assert proposed.count(": float16") == 3, proposed
head, _, names = proposed.partition("# The results of all layers:")
heading = "custom_quantize_layers:"
layers = [line[1:].strip() for line in names.splitlines() if line]
every = "".join(f"    {name}: float16\\n" for name in layers)
files = ("small.model", "small.data", str(config))
for form, text in {"none": f"{heading}\\n", "all": f"{heading}\\n{every}", "proposed": proposed}.items():
    config.write_text(text)
    rknn = RKNN()
    assert rknn.hybrid_quantization_step2(*files) == 0
    if form == "proposed":
        assert rknn.accuracy_analysis(["0.npy"], output_dir=None) == 0
    assert rknn.export_rknn("small.rknn") == 0 and rknn.init_runtime() == 0
    outputs[form] = rknn.inference([pixels])[0]
    rknn.release()
assert (outputs["none"] == outputs["int8"]).all()
errors = {form: float(np.abs(array - outputs["float"]).max()) for form, array in outputs.items()}
print(errors)
assert errors["all"] < errors["int8"] / 4, errors

rknn = RKNN()
means = {"mean_values": [127.5] * 3, "std_values": [70.0] * 3}
assert rknn.config(**means, quantized_algorithm="mmse", auto_hybrid_cos_thresh=1.0) == 0
assert rknn.load_onnx(sys.argv[1]) == 0
pair = [layers[0], layers[2]]
assert rknn.hybrid_quantization_step1(dataset="dataset.txt", custom_hybrid=[pair]) == 0
text = config.read_text()
kept = [line.strip() for line in text.splitlines() if line.endswith(": float16")]
assert kept == ["globalaveragepool2: float16", "flatten3: float16"], text
assert rknn.hybrid_quantization_step1(dataset="dataset.txt", custom_hybrid=[pair[::-1]]) == -1
assert rknn.hybrid_quantization_step1(dataset="dataset.txt", custom_hybrid=["a"]) == -1
assert rknn.build(dataset="dataset.txt", auto_hybrid=True) == 0 and rknn.init_runtime() == 0
assert np.abs(rknn.inference([pixels])[0] - outputs["float"]).max() < 0.02
for text in ("    nothing: float16", f"    {layers[0]}: int16"):
    config.write_text(f"{heading}\\n{text}\\n")
    assert rknn.hybrid_quantization_step2(*files) == -1
config.write_text(heading)
assert rknn.hybrid_quantization_step2("small.model", str(config), str(config)) == -1
rknn.release()
"""


SHARED = """
import ctypes
import os
import sys
import numpy as np
from rknn.api import RKNN

shapes = (16, 12), (40, 24)
for name, removes, (height, width) in zip(("full", "other"), (False, True), shapes):
    rknn = RKNN()
    assert rknn.config(remove_weight=removes, target_platform="rk3588") == 0
    assert rknn.load_onnx(sys.argv[1], inputs=["x"], input_size_list=[[1, 3, height, width]]) == 0
    assert rknn.build(do_quantization=False) == 0 and rknn.export_rknn(f"{name}.rknn") == 0
    assert rknn.init_runtime() == 0  # the built model has its weights
    x = np.linspace(-1, 1, 3 * height * width, dtype=np.float32).reshape(1, height, width, 3)
    (found,) = rknn.inference([x])
    rknn.release()
sizes = [os.path.getsize(f"{name}.rknn") for name in ("full", "other")]
rknn = RKNN()
assert rknn.load_rknn("other.rknn") == 0 and rknn.init_runtime() == -1  # alone it cannot run
library = ctypes.CDLL("librknnrt.so")


class Extend(ctypes.Structure):
    _fields_ = [("context", ctypes.c_uint64), ("rest", ctypes.c_uint8 * 128)]


class Input(ctypes.Structure):
    _fields_ = [("index", ctypes.c_uint32), ("buf", ctypes.c_void_p), ("size", ctypes.c_uint32)]
    _fields_ += [(name, ctypes.c_uint32) for name in ("pass_through", "type", "fmt")]


class Output(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint8) for name in ("want_float", "is_prealloc")]
    _fields_ += [("index", ctypes.c_uint32), ("buf", ctypes.c_void_p), ("size", ctypes.c_uint32)]


full, other = ctypes.c_uint64(), ctypes.c_uint64()
assert library.rknn_init(ctypes.byref(full), b"full.rknn", 0, 0, None) == 0
extend = Extend(full.value)
assert library.rknn_init(ctypes.byref(other), b"other.rknn", 0, 0x20, ctypes.byref(extend)) == 0
assert library.rknn_destroy(full) == 0
given = Input(0, x.ctypes.data, x.nbytes, 0, 0, 1)
result = np.zeros(found.shape, np.float32)
wanted = Output(1, 1, 0, result.ctypes.data, result.nbytes)
assert library.rknn_inputs_set(other, 1, ctypes.byref(given)) == library.rknn_run(other, None) == 0
assert library.rknn_outputs_get(other, 1, ctypes.byref(wanted), None) == 0
print(np.array_equal(result, found), sizes[0] - sizes[1])
"""


def test_weights_are_removed_and_shared(tmp_path: Path) -> None:
    n = Net((1, 3, "h", "w"), seed=2)
    x = n.add("Relu", n.conv("x", 3, 40, pads=[1] * 4))
    (tmp_path / "model.onnx").write_bytes(n.model(n.conv(x, 40, 24)).SerializeToString())
    (tmp_path / "shared.py").write_text(SHARED)
    done = run(tmp_path / "shared.py", tmp_path / "model.onnx", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    equal, saved = done.stdout.split()[-2:]
    assert equal == "True" and int(saved) > 2 * (40 * 27 + 24 * 40 * 9)
    assert "the model was made without weights" in done.stderr


def test_hybrid_quantisation_keeps_layers_in_floating_point(model: Path, tmp_path: Path) -> None:
    (tmp_path / "hybrid.py").write_text(HYBRID)
    done = run("hybrid.py", model, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no layer has the result 'nothing'" in done.stderr
    assert "does not depend on" in done.stderr and "list of pairs of names of tensors" in done.stderr
    assert "has the type 'int16', but only float16 and int8 are available" in done.stderr
    assert "was not written by hybrid_quantization_step1" in done.stderr


TFLITE = """
import sys
import numpy as np
from rknn.api import RKNN

results = []
for mean in (None, [[128.0] * 3]):
    rknn = RKNN()
    assert rknn.config(mean_values=mean, std_values=mean) == 0
    assert rknn.load_tflite(sys.argv[1]) == 0
    assert rknn.build(do_quantization=True, dataset="x.txt") == -1
    assert rknn.build(do_quantization=False) == 0 and rknn.init_runtime() == 0
    pixels = np.random.default_rng(1).integers(0, 256, (1, 12, 14, 3)).astype(np.uint8)
    results.append(rknn.inference([pixels if mean else (pixels - np.float32(128)) / np.float32(128)])[0])
    rknn.release()
assert (results[0] == results[1]).all() and results[0].std() > 0
"""


def test_quantised_tflite_models(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="needs the extra tflite")
    from tests.makers.tflite_models import Tf

    t = Tf()
    x = t.input((1, 12, 14, 3), scale=1 / 128, zero=0)
    (tmp_path / "small.tflite").write_bytes(t.bytes(t.conv(x, 16, 3, 2)))
    (tmp_path / "script.py").write_text(TFLITE)
    done = run("script.py", "small.tflite", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the model is already quantised" in done.stderr
    assert "the exported file" not in done.stderr  # it has the mean_values


FLOAT_TFLITE = """
import sys
from pathlib import Path
import numpy as np
from rknn.api import RKNN

rng = np.random.default_rng(3)
for number in range(3):
    np.save(f"{number}.npy", rng.integers(0, 256, (1, 12, 14, 3)).astype(np.float32))
Path("dataset.txt").write_text("0.npy\\n1.npy\\n2.npy\\n")
pixels = np.load("0.npy").astype(np.uint8)
outputs = {}
for form in ("float", "int8"):
    rknn = RKNN()
    assert rknn.config(mean_values=[[127.5] * 3], std_values=[[70.0] * 3]) == 0
    assert rknn.load_tflite(sys.argv[1]) == 0
    assert rknn.hybrid_quantization_step1(dataset="dataset.txt") == -1
    assert rknn.build(do_quantization=form == "int8", dataset="dataset.txt") == 0
    assert rknn.init_runtime() == 0
    outputs[form] = rknn.inference([pixels])[0]
    if form == "int8":
        assert rknn.accuracy_analysis(["0.npy"], output_dir="snapshot") == 0
    rknn.release()
apart = np.abs(outputs["int8"] - outputs["float"]).max()
assert 0 < apart < 0.03 * np.abs(outputs["float"]).max(), apart
"""


def test_float_tflite_models_are_quantised(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="needs the extra tflite")
    pytest.importorskip("ai_edge_quantizer", reason="needs the extra quantizer")
    from tests.makers.tflite_models import Tf

    t = Tf(dtype="float32")
    x = t.input((1, 12, 14, 3))
    (tmp_path / "small.tflite").write_bytes(t.bytes(t.conv(x, 16, 3, 2)))
    (tmp_path / "script.py").write_text(FLOAT_TFLITE)
    done = run("script.py", "small.tflite", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hybrid_quantization_step1: call load_onnx first" in done.stderr
    assert "CONV_2D" in (tmp_path / "snapshot" / "error_analysis.txt").read_text()


SHAPES = """
import ctypes
import json
import sys
import numpy as np
from rknn.api import RKNN
from rknnlite.api import RKNNLite

sets = json.loads(sys.argv[2])
rng = np.random.default_rng(int(sys.argv[3]))
np.save("sample.npy", rng.integers(0, 256, (1, 24, 40, 3)).astype(np.float32))
open("samples.txt", "w").write("sample.npy\\n")
rknn = RKNN()
assert rknn.load_onnx(sys.argv[1]) == 0 and rknn.build(do_quantization=False) == -1
assert rknn.load_onnx(sys.argv[1], inputs=["x"], input_size_list=[[1, 3, 8, 8]]) == 0
assert rknn.build(do_quantization=False) == 0
for wrong in ([[1, 3]], [[[1, 3, 8, 8]], [[1, 3, 8]]], 5):
    assert rknn.config(dynamic_input=wrong) == -1
assert rknn.config(dynamic_input=sets) == 0
assert rknn.load_onnx(sys.argv[1], inputs=["x"], input_size_list=[[1, 3, 8, 8]]) == -1
assert rknn.hybrid_quantization_step1(dataset="samples.txt") == -1
found = {}
for name, options in (("float", {}), ("int8", {"mean_values": [[128] * 3], "std_values": [[64] * 3]})):
    assert rknn.config(dynamic_input=sets, custom_string='{"kind": "é"}', **options) == 0
    assert rknn.load_onnx(sys.argv[1]) == 0
    assert rknn.build(do_quantization=name == "int8", dataset="samples.txt") == 0
    assert rknn.export_rknn(f"{name}.rknn") == 0 and rknn.init_runtime() == 0
    lite = RKNNLite()
    assert lite.load_rknn(f"{name}.rknn") == 0 and lite.init_runtime() == 0
    text = ctypes.create_string_buffer(1024)
    assert lite.rknn_runtime.query("RKNN_QUERY_CUSTOM_STRING", text) == 0
    assert text.value.decode() == '{"kind": "é"}'
    for (shape,) in sets:
        given = rng.integers(0, 256, shape).astype(np.uint8)
        if name == "float":
            given = (given.astype(np.float32) - 128) / 64
        (here,) = rknn.inference(inputs=[given], data_format="nchw")
        (there,) = lite.inference(inputs=[given.transpose(0, 2, 3, 1)])
        assert (here == there).all()
        found[f"{name} {shape[2]} given"], found[f"{name} {shape[2]} made"] = given, here
    assert rknn.inference(inputs=[np.zeros((1, 3, 8, 8), np.float32)], data_format="nchw") is None
    lite.release()
assert rknn.accuracy_analysis(["sample.npy"], output_dir="analysis") == 0
rknn.release()
np.savez("found.npz", **found)
"""


def test_several_shapes(tmp_path: Path) -> None:
    """`dynamic_input` of config: each shape gives onnxruntime's values, in fp16 and in int8."""
    sets = [[[1, 3, 16, 16]], [[1, 3, 24, 40]]]
    (tmp_path / "shapes.py").write_text(SHAPES)
    (tmp_path / "model.onnx").write_bytes(enlarging())
    done = run("shapes.py", "model.onnx", json.dumps(sets), seeds.number(), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = arrays_of(tmp_path / "found.npz")
    for (shape,) in sets:
        for name, error in (("float", 0.002), ("int8", 0.1)):
            given, made = (found[f"{name} {shape[2]} {what}"] for what in ("given", "made"))
            x = given if name == "float" else (given.astype(np.float32) - 128) / 64
            wanted = by_onnxruntime(enlarging(), x)
            assert made.shape == wanted.shape == (1, 4, *shape[2:])
            # values beyond those of the calibration's picture are clipped, so the largest error says little
            assert np.sqrt(np.mean((made - wanted) ** 2)) < error, (name, shape)
            assert wanted.std() > 8 * error
    for text in (
        "input 'x' has free dimensions [1, 3, h, w], and nobody named their sizes: "
        "use inputs and input_size_list of load_onnx, or dynamic_input of config",
        "config: dynamic_input must be a list of sets of shapes",
        "load_onnx: dynamic_input of config has all shapes: omit input_size_list",
        "hybrid_quantization_step1: not available with dynamic_input",
    ):
        assert text in done.stderr
    assert done.stderr.count("inference: Set input shape failed. error code: RKNN_ERR_FAIL") == 2
    assert "'dynamic_input' has no effect" not in done.stderr
