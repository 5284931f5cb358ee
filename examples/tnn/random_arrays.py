"""Write a .tnnmodel with random arrays for a .tnnproto that has none, as TNN's benchmark mode does.

    python examples/tnn/random_arrays.py quant_mobilenet_v1.tnnproto build/quant_mobilenet_v1
    rkcosim compare build/quant_mobilenet_v1.tnnproto

The network is written again, in the second version of the format, beside its arrays.  Weights have the
variance that keeps activations in their range; int8 blobs of one network have one of two scales.  Such a
network shows operators and sizes; it classifies nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from rkcosim.apis.tnn.loader import TnnNetwork, write_network
from rkcosim.apis.tnn.loader.params import BINARY, Params, read_params
from rkcosim.apis.tnn.loader.proto import VERSION_2, LayerInfo, NetStructure, read_proto
from rkcosim.apis.tnn.loader.resources import SCALE_SUFFIX
from rkcosim.apis.tnn.loader.shapes import bind

INPUT, INNER = 2 / 127, 4 / 127
"""Scales of int8 blobs: of those that are quantised, and of those that an int8 layer computes."""

KEEPING = ("Pooling", "ReLU", "Reshape", "Permute", "Flatten", "Concat")
"""Int8 layers whose results have the scale of their input."""


def product(layer: LayerInfo, params: Params, dims: tuple[int, ...], scale: float, rng: np.random.Generator):
    """Return the arrays of a convolution or inner product."""
    if layer.type == "Convolution":
        name, count = "filter", params["output_channel"]
        shape = (count, dims[1] // params["group"], *params["kernels"])
    else:
        name, count = "weight", params["num_output"]
        shape = (count, prod(dims[params["axis"] :]))
    deviation = np.sqrt(2 / prod(shape[1:]))
    bias = rng.normal(0, 0.1, count)
    if not layer.quantized:
        weights = rng.normal(0, deviation, shape)
        return {name: weights.astype(np.float32), "bias": bias.astype(np.float32)}
    codes = np.clip(np.rint(rng.normal(0, 40, shape)), -127, 127).astype(np.int8)
    scales = (deviation / 40 * rng.uniform(0.7, 1.3, count) * scale).astype(np.float32)
    return {name: codes, "bias": np.rint(bias / scales).astype(np.int32), "scale": scales}


def filled(structure: NetStructure, seed: int) -> TnnNetwork:
    """Return a network with random arrays."""
    rng = np.random.default_rng(seed)
    dims = {item.name: item.dims for item in structure.inputs}
    scales: dict[str, float] = {}
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for layer in structure.layers:
        params, shapes = read_params(layer), [dims[name] for name in layer.inputs]
        made: dict[str, np.ndarray] = {}
        if layer.quantized:
            for name in layer.inputs:
                scales.setdefault(name, INPUT)
        if layer.type in ("Convolution", "InnerProduct"):
            made = product(layer, params, shapes[0], scales.get(layer.inputs[0], 1.0), rng)
        elif layer.type in ("BatchNormCxx", "Scale", "InstBatchNormCxx"):
            made = {"scale": rng.uniform(0.5, 1.5, shapes[0][1]), "bias": rng.normal(0, 0.1, shapes[0][1])}
        elif layer.type == "PReLU":
            made = {"slope": rng.uniform(0, 0.3, shapes[0][1])}
        elif layer.type in BINARY and len(shapes) == 1:
            made = {"element": rng.uniform(0.5, 1.5, 1)}
        if made:
            arrays[layer.name] = {
                name: values.astype(np.float32) if values.dtype == np.float64 else values
                for name, values in made.items()
            }
        dims.update(zip(layer.outputs, bind(layer, arrays.get(layer.name), shapes).outputs, strict=True))
        if layer.quantized:
            kept = scales[layer.inputs[0]] if layer.type in KEEPING else INNER
            scales.update(dict.fromkeys(layer.outputs, kept))
    for name, scale in scales.items():
        arrays[name + SCALE_SUFFIX] = {"scale": np.array([scale], np.float32)}
    return TnnNetwork(replace(structure, version=VERSION_2), arrays)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("proto", type=Path, help=".tnnproto file")
    parser.add_argument("stem", type=Path, help="path of the files to write, without their ending")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random numbers")
    given = parser.parse_args()
    proto, arrays = write_network(filled(read_proto(given.proto.read_bytes()), given.seed))
    given.stem.parent.mkdir(parents=True, exist_ok=True)
    for ending, data in ((".tnnproto", proto), (".tnnmodel", arrays)):
        path = given.stem.with_name(given.stem.name + ending)
        path.write_bytes(data)
        print(f"{path}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
