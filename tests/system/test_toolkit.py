"""Scripts of the vendor's toolkit: `from rknn.api import RKNN` under `rkcosim rknn`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.rknn_file import read_rknn
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
    from tests.models.tflite_models import Tf

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
    from tests.models.tflite_models import Tf

    t = Tf(dtype="float32")
    x = t.input((1, 12, 14, 3))
    (tmp_path / "small.tflite").write_bytes(t.bytes(t.conv(x, 16, 3, 2)))
    (tmp_path / "script.py").write_text(FLOAT_TFLITE)
    done = run("script.py", "small.tflite", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hybrid_quantization_step1: call load_onnx first" in done.stderr
    assert "CONV_2D" in (tmp_path / "snapshot" / "error_analysis.txt").read_text()
