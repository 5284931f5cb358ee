"""Classify random pictures with LiteRT; --delegate runs the model on an NPU.

python classify.py model.tflite                                       # on the processor
python classify.py model.tflite --delegate $(rkcosim delegate)        # on the simulated NPU
python classify.py model.tflite --delegate /usr/lib/teflon/libteflon.so   # on a board, with Mesa
"""

import argparse

import numpy as np
from ai_edge_litert.interpreter import Interpreter, load_delegate

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", help="TFLite file")
parser.add_argument("--delegate", help="external delegate")
parser.add_argument("--option", action="append", default=[], help="option of the delegate, as engine=golden")
parser.add_argument("--count", type=int, default=2, help="number of pictures")
given = parser.parse_args()

options = dict(option.split("=", 1) for option in given.option)
delegates = [load_delegate(given.delegate, options)] if given.delegate else []
interpreter = Interpreter(given.model, experimental_delegates=delegates)
interpreter.allocate_tensors()
source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
rng = np.random.default_rng(1)
for number in range(given.count):
    if source["dtype"] == np.float32:
        picture = rng.normal(size=source["shape"]).astype(np.float32)
    else:
        limits = np.iinfo(source["dtype"])
        picture = rng.integers(limits.min, limits.max + 1, source["shape"]).astype(source["dtype"])
    interpreter.set_tensor(source["index"], picture)
    interpreter.invoke()
    scores = interpreter.get_tensor(result["index"])
    print(f"picture {number}: class {scores.argmax()}, bytes {scores.tobytes().hex()}")
