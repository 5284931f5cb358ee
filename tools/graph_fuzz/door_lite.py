"""Runs models by rknnlite, one for each line of the input; the lines of door.c, TYPE a dtype of numpy.

The first word of the answer is "ok" or "error".
"""

from __future__ import annotations

import sys

import numpy as np
from rknnlite.api import RKNNLite

SHAPES = "x"


def one(words: list[str]) -> str:
    """Run a model, and return the answer."""
    model, order, mask, count = words[0], words[1], int(words[2]), int(words[3])
    arrays = []
    for number in range(count):
        path, dtype, shape = words[4 + 3 * number : 7 + 3 * number]
        sizes = [int(n) for n in shape.split(SHAPES)]
        arrays.append(np.fromfile(path, dtype).reshape(sizes))
    lite = RKNNLite()
    try:
        if lite.load_rknn(model):
            return "error load_rknn"
        if lite.init_runtime(core_mask=mask):
            return "error init_runtime"
        found = lite.inference(inputs=arrays, data_format=[order] * count)
        if found is None:
            return "error inference"
        for number, array in enumerate(found):
            np.save(f"{words[-1]}.{number}.npy", array)
        return f"ok {len(found)}"
    finally:
        lite.release()


for line in sys.stdin:
    print(one(line.split()), flush=True)
