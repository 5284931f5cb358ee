"""The text of a `.tnnproto` file: inputs, outputs and layers of a network.

The grammar is that of TNN (Tencent/TNN f0cb0812, source/tnn/interpreter/tnn/model_interpreter.cc): quotes and
line ends are removed, the rest is divided at commas into a header, the inputs, the blobs, the outputs, the
number of layers, and one part for each layer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rkcosim.compiler.graph import MAX_ELEMENTS, ModelError

VERSION_1, VERSION_2 = 4206624770, 4206624772
"""Fourth number of the header: files of the first version have inputs of four dimensions without a type."""

MAX_LAYERS = 10_000
"""Layers that TNN accepts (its reader refuses a `.tnnmodel` with more)."""

MAX_RANK = 6
"""Largest number of dimensions of a blob."""

_ALIASES = {
    **{
        f"{name}_nhwc": name
        for name in (
            *(
                "Convolution",
                "BatchNormCxx",
                "Pooling",
                "Softmax",
                "Concat",
                "Flatten",
                "InnerProduct",
                "PReLU",
            ),
            "StridedSlice",
        )
    },
    "Pooling_split_CC": "Pooling",
    "Relu": "ReLU",
    "Relu6": "ReLU6",
    "SoftmaxCaffe": "Softmax",
    "BatchNormalization": "BatchNormCxx",
    "Split": "Split",
    "ReduceSum": "ReduceSum",
    "Reduce_Sum": "ReduceSum",
    "Tile": "Repeat",
}
"""Other names of layer types, as in TNN's table (source/tnn/core/layer_type.cc).

TNN has one class behind both names: layers named for NHWC compute on NCHW like the others.
"""


@dataclass(frozen=True)
class NetInput:
    """An input of a network: its name, shape, and TNN's number of its data type (0 is float)."""

    name: str
    dims: tuple[int, ...]
    data_type: int = 0


@dataclass(frozen=True)
class LayerInfo:
    """One layer of a network.

    Members
    -------
    type
        Type without prefix, one name for all aliases: "Convolution".
    name
        Name of the layer, which finds its resource.
    inputs, outputs
        Names of blobs.
    params
        The words after them.
    quantized
        Whether its blobs are int8.
    dynamic
        Whether only its weights are int8 ("DynamicRangeQuantized").
    """

    type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: tuple[str, ...] = ()
    quantized: bool = False
    dynamic: bool = False

    @property
    def label(self) -> str:
        """Type and name, for messages."""
        prefix = "Quantized" if self.quantized else "DynamicRangeQuantized" if self.dynamic else ""
        return f"{prefix}{self.type} '{self.name}'"


@dataclass(frozen=True)
class NetStructure:
    """The structure of a network, TNN's class of the same name: version, inputs, outputs and layers."""

    inputs: tuple[NetInput, ...]
    outputs: tuple[str, ...]
    layers: tuple[LayerInfo, ...]
    version: int = VERSION_1

    @property
    def blobs(self) -> tuple[str, ...]:
        """Names of all blobs: the inputs, then the outputs of each layer."""
        made = [name for layer in self.layers for name in layer.outputs]
        return tuple(dict.fromkeys([*(item.name for item in self.inputs), *made]))


def read_proto(data: bytes) -> NetStructure:
    """Read the text of a `.tnnproto` file; `check` checks its blobs.

    Raises
    ------
    ModelError
        If it is damaged; the message names the part.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"damaged .tnnproto: byte {error.start} is not text") from None
    parts = [part.strip() for part in re.sub(r'["\r\n]', "", text).split(",")]
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) < 6:
        raise ModelError(f"damaged .tnnproto: {len(parts)} parts between commas, at least 6 are needed")
    header = parts[0].split()
    version = int(header[3]) if len(header) > 3 and header[3].isdecimal() else 0
    if version not in (VERSION_1, VERSION_2):
        raise ModelError(f"damaged .tnnproto: the header '{parts[0][:60]}' has no known version")
    inputs = tuple(_input(part.split(), version) for part in parts[1].split(":") if part.strip())
    layers = tuple(_layer(part.split(), number) for number, part in enumerate(parts[5:]) if part)
    if len(layers) > MAX_LAYERS:
        raise ModelError(f"damaged .tnnproto: {len(layers)} layers, TNN reads at most {MAX_LAYERS}")
    return NetStructure(inputs, tuple(parts[3].split()), layers, version)


def _number(word: str, what: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,10}", word):
        raise ModelError(f"damaged .tnnproto: {what} is '{word[:40]}', not an integer")
    return int(word)


def _input(words: Sequence[str], version: int) -> NetInput:
    if len(words) < 2:
        raise ModelError(f"damaged .tnnproto: the input '{' '.join(words)[:60]}' has no shape")
    name, *rest = words
    what = f"a dimension of input '{name}'"
    kind = 0
    if version == VERSION_2:
        rank = _number(rest[0], f"the rank of input '{name}'")
        if not 0 <= rank <= MAX_RANK or len(rest) not in (rank + 1, rank + 2):
            raise ModelError(f"damaged .tnnproto: input '{name}' has rank {rank} and {len(rest) - 1} numbers")
        kind = _number(rest[rank + 1], f"the type of input '{name}'") if len(rest) > rank + 1 else 0
        rest = rest[1 : rank + 1]
    dims = tuple(_number(word, what) for word in rest)
    if len(dims) > MAX_RANK or min(dims, default=1) < 1 or math.prod(dims) > MAX_ELEMENTS:
        raise ModelError(f"damaged .tnnproto: input '{name}' has the shape {dims}")
    return NetInput(name, dims, kind)


def _layer(words: Sequence[str], number: int) -> LayerInfo:
    where = f"layer {number}"
    if len(words) < 4:
        raise ModelError(f"damaged .tnnproto: {where} '{' '.join(words)[:60]}' has fewer than four words")
    kind, name = words[:2]
    count = [_number(word, f"a number of blobs of {where} '{name}'") for word in words[2:4]]
    if min(count) < 0 or not count[1] or 4 + sum(count) > len(words):
        raise ModelError(f"damaged .tnnproto: {where} '{name}' has not the {count[0]} + {count[1]} blobs")
    inputs = tuple(words[4 : 4 + count[0]])
    outputs = tuple(words[4 + count[0] : 4 + sum(count)])
    params = tuple(words[4 + sum(count) :])
    dynamic = kind.startswith("DynamicRangeQuantized")
    quantized = not dynamic and kind.startswith("Quantized")
    plain = kind.removeprefix("DynamicRangeQuantized").removeprefix("Quantized")
    return LayerInfo(_ALIASES.get(plain, plain), name, inputs, outputs, params, quantized, dynamic)


def check(net: NetStructure, constants: Collection[str] = ()) -> None:
    """Check that every blob is made once, before it is used.

    Parameters
    ----------
    net
        The structure.
    constants
        Blobs whose values are in the `.tnnmodel` file.

    Raises
    ------
    ModelError
        If it is not; the message names layer and blob.
    """
    known = set(constants)
    for item in net.inputs:
        if item.name in known - set(constants):
            raise ModelError(f"damaged .tnnproto: two inputs are called '{item.name}'")
        known.add(item.name)
    names: set[str] = set()
    for layer in net.layers:
        if layer.name in names:
            raise ModelError(f"damaged .tnnproto: two layers are called '{layer.name}'")
        names.add(layer.name)
        if missing := [name for name in layer.inputs if name not in known]:
            raise ModelError(f"{layer.label}: no layer before it makes its input '{missing[0]}'")
        if again := [name for name in layer.outputs if name in known]:
            raise ModelError(f"{layer.label}: blob '{again[0]}' exists already")
        if len(set(layer.outputs)) != len(layer.outputs):
            raise ModelError(f"{layer.label}: two outputs have one name")
        known.update(layer.outputs)
    if missing := [name for name in net.outputs if name not in known]:
        raise ModelError(f"damaged .tnnproto: no layer makes the output '{missing[0]}'")
    if not net.outputs or not net.layers:
        raise ModelError("damaged .tnnproto: the network has no output or no layer")


def write_proto(net: NetStructure) -> bytes:
    """Return the text of a `.tnnproto` file, which `read_proto` reads.

    Raises
    ------
    ModelError
        If a name has a character that separates words, or an input does not fit the file's version.
    """
    for name in (*net.blobs, *(layer.name for layer in net.layers)):
        if not name or re.search(r'[\s,":]', name):
            raise ModelError(f"the name '{name}' cannot be written to a .tnnproto file")
    if net.version == VERSION_1 and (odd := [i.name for i in net.inputs if len(i.dims) != 4 or i.data_type]):
        raise ModelError(f"input '{odd[0]}': files of the first version have inputs of four dimensions")
    inputs = []
    for item in net.inputs:
        dims = " ".join(map(str, item.dims))
        head = f"{len(item.dims)} {dims} {item.data_type}" if net.version == VERSION_2 else dims
        inputs.append(f"{item.name} {head}")
    parts = [
        f"1 {len(net.blobs)} 1 {net.version} ",
        " : ".join(inputs) + " ",
        " " + " ".join(net.blobs) + " ",
        " ".join(net.outputs) + " ",
        f" {len(net.layers)} ",
    ]
    for layer in net.layers:
        kind = (
            "Quantized" if layer.quantized else "DynamicRangeQuantized" if layer.dynamic else ""
        ) + layer.type
        words = [kind, layer.name, str(len(layer.inputs)), str(len(layer.outputs))]
        parts.append(" ".join([*words, *layer.inputs, *layer.outputs, *layer.params]) + " ")
    return "".join(f'"{part},"\n' for part in parts).encode()
