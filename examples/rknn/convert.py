"""A conversion script for the vendor's toolkit: every call of the class RKNN that rkcosim has.

    python examples/networks/make.py build/networks residual
    rkcosim rknn --engine golden -- python examples/rknn/convert.py build/networks/residual_float.onnx

Without --dataset the script writes random pictures of the size that --size names and uses them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
from rknn.api import RKNN


def done(code: int, call: str) -> None:
    """End the script if a call failed, as the vendor's samples do."""
    if code != 0:
        raise SystemExit(f"{call} failed: {code}")
    print(f"{call}: ok")


def random_pictures(folder: Path, size: tuple[int, int], count: int = 8) -> Path:
    """Write pictures of noise (binary PPM) and the list that `build` reads; return its path."""
    rng = np.random.default_rng(1)
    height, width = size
    for number in range(count):
        pixels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
        (folder / f"{number}.ppm").write_bytes(f"P6 {width} {height} 255\n".encode() + pixels.tobytes())
    rows = folder / "dataset.txt"
    rows.write_text("".join(f"{number}.ppm\n" for number in range(count)))
    return rows


def main() -> None:
    """Convert, export, run and analyse a model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", help="float ONNX model of RGB pictures")
    parser.add_argument("--dataset", type=Path, help="text file with a picture on each line")
    parser.add_argument("--size", type=int, nargs=2, default=(32, 32), help="rows and columns of the input")
    parser.add_argument("--tflite", help="also convert this quantised TFLite model")
    given = parser.parse_args()

    folder = Path(tempfile.mkdtemp())
    dataset = (given.dataset and given.dataset.absolute()) or random_pictures(folder, tuple(given.size))
    picture = dataset.parent / dataset.read_text().split()[0]

    tflite = os.path.abspath(given.tflite) if given.tflite else None

    rknn = RKNN(verbose=False)
    print(f"load_caffe: {rknn.load_caffe('model.prototxt', 'model.caffemodel')}")
    print(f"load_darknet: {rknn.load_darknet('model.cfg', 'model.weights')}")
    mean, std = [[127.5, 127.5, 127.5]], [[73.6, 73.6, 73.6]]
    done(rknn.config(mean_values=mean, std_values=std, target_platform="rk3588"), "config")
    done(rknn.load_onnx(model=given.model), "load_onnx")
    done(rknn.build(do_quantization=True, dataset=str(dataset)), "build")
    done(rknn.export_rknn(str(folder / "model.rknn")), "export_rknn")
    print(f"init_runtime on another target: {rknn.init_runtime(target='rk3566')}")
    done(rknn.init_runtime(target=None, perf_debug=True, core_mask=RKNN.NPU_CORE_0), "init_runtime")
    pixels = np.random.default_rng(2).integers(0, 256, (1, *given.size, 3)).astype(np.uint8)
    outputs = rknn.inference(inputs=[pixels], data_format=["nhwc"])
    print(f"inference: {[(array.shape, array.dtype.name) for array in outputs]}")
    print(f"eval_perf: {rknn.eval_perf(is_print=False).splitlines()[-2]}")
    print(f"eval_memory: {sorted(rknn.eval_memory(is_print=False))}")
    print(rknn.get_sdk_version())
    done(
        rknn.accuracy_analysis(inputs=[str(picture)], output_dir=str(folder / "snapshot")),
        "accuracy_analysis",
    )
    print(sorted(path.name for path in (folder / "snapshot").iterdir()))
    rknn.release()

    again = RKNN()
    done(again.load_rknn(str(folder / "model.rknn")), "load_rknn")
    done(again.init_runtime(core_mask=RKNN.NPU_CORE_0_1_2), "init_runtime")
    same = again.inference(inputs=[pixels])
    print(f"the exported file gives the same: {all(map(np.array_equal, outputs, same))}")
    again.list_support_target_platform(str(folder / "model.rknn"))
    again.release()

    floats = RKNN()
    done(floats.config(mean_values=mean, std_values=std), "config")
    done(floats.load_onnx(model=given.model), "load_onnx")
    done(floats.build(do_quantization=False), "build in fp16")
    done(floats.init_runtime(), "init_runtime")
    real = floats.inference(inputs=[pixels])
    apart = max(np.abs(a - b).max() for a, b in zip(outputs, real, strict=True))
    print(f"int8 and fp16 differ by at most {apart:.3f}")
    floats.release()

    hybrid = RKNN()
    done(hybrid.config(mean_values=mean, std_values=std), "config")
    done(hybrid.load_onnx(model=str(Path(given.model).absolute())), "load_onnx")
    os.chdir(folder)  # step 1 writes its files into the working directory
    stem = Path(given.model).stem
    done(hybrid.hybrid_quantization_step1(dataset=str(dataset), proposal=True), "hybrid_quantization_step1")
    files = (f"{stem}.model", f"{stem}.data", f"{stem}.quantization.cfg")
    done(hybrid.hybrid_quantization_step2(*files), "hybrid_quantization_step2")
    done(hybrid.export_rknn(str(folder / "hybrid.rknn")), "export_rknn")
    hybrid.release()

    if tflite:
        lite = RKNN()
        done(lite.config(), "config")
        done(lite.load_tflite(model=tflite), "load_tflite")
        done(lite.build(do_quantization=False), "build")
        done(lite.init_runtime(), "init_runtime")
        print(f"eval_perf of the TFLite model: {lite.eval_perf(is_print=False)}")
        lite.release()


if __name__ == "__main__":
    main()
