"""Classify random pictures with onnxruntime; --provider runs the model on the simulated NPU.

python classify.py model.onnx                                   # on the processor
python classify.py model.onnx --provider $(rkcosim provider)    # on the simulated NPU
"""

import argparse

import numpy as np
import onnxruntime

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="ONNX file")
parser.add_argument("--provider", help="library of an execution provider")
parser.add_argument("--option", action="append", default=[], help="option of it, as engine=golden")
parser.add_argument("--count", type=int, default=2, help="number of pictures")
given = parser.parse_args()

providers: list = ["CPUExecutionProvider"]
if given.provider:
    onnxruntime.register_execution_provider_library("RkCosim", given.provider)
    providers.insert(0, ("RkCosim", dict(option.split("=", 1) for option in given.option)))
session = onnxruntime.InferenceSession(given.model, providers=providers)
source = session.get_inputs()[0]
shape = [size if isinstance(size, int) else 1 for size in source.shape]
rng = np.random.default_rng(1)
for number in range(given.count):
    picture = rng.random(shape).astype(np.float32)
    scores = session.run(None, {source.name: picture})[0]
    print(f"picture {number}: class {scores.argmax()}, bytes {scores.tobytes().hex()}")
