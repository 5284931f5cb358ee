"""Layers of the estimator's data set: layers drawn with shapes of real networks, and whole networks.

The half of a layer is determined by its name before anything is measured: `held_out` layers are never used
for the fit, but only to determine the error of the estimates.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from rkcosim.compiler import CompiledModel, compile_model
from rkcosim.compiler.matmul import KINDS, Matmul
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf import layer_models
from rkcosim.measure.perf.boards.networks import network_file
from rkcosim.measure.perf.gate import NETWORKS as FILES

SEED = 8
DRAWN = 330
"""Number of layers that are drawn."""

BUDGET = (4_000, 250_000)
"""Smallest and largest cycles of a drawn layer by a rough bound; other layers are drawn again."""

DEFAULT = DramConfig()
SETTINGS: dict[str, DramConfig] = {
    "default": DEFAULT,
    "half": DEFAULT.faster(0.5),
    "slow": DEFAULT.faster(0.72),
    "whole": DEFAULT.unshared,
    "near": DramConfig(read_latency=60, write_latency=30),
    "far": DramConfig(read_latency=240, write_latency=120),
    "core at 600 MHz": DEFAULT.at_clock(0.6),
}
"""Memory timings for the measurements, by name."""

_OTHERS = [name for name in SETTINGS if name != "default"]

NETWORKS = ("residual", "separable", "upscaling", "mobilenet_v1", "resnet50")
"""Networks of examples/networks/make.py, in addition to the digits."""


def held_out(name: str) -> bool:
    """Whether a layer is excluded from all fitting (half of them are, by a hash of the name)."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


@dataclass(frozen=True)
class Layer:
    """A layer to be measured; `make` returns a compiled model or a product; `settings` are names."""

    name: str
    family: str
    make: Callable[[], CompiledModel | Matmul]
    settings: tuple[str, ...]
    cores: int = 1


def layers() -> Iterator[Layer]:
    """Return the whole data set in a fixed order."""
    yield from drawn()
    yield from long_products()
    yield from networks()


def drawn(count: int = DRAWN) -> Iterator[Layer]:
    """Draw layers with random shapes from a fixed seed, each for the default timing and one other."""
    rng = random.Random(SEED)
    names: set[str] = set()
    while len(names) < count:
        family = rng.choices(list(_FAMILIES), [weight for _, weight in _FAMILIES.values()])[0]
        found = _FAMILIES[family][0](rng)
        if found is None or found[0] in names:
            continue
        name, make = found
        names.add(name)
        cores = rng.choice((1, 1, 1, 2, 3)) if family in ("dense", "depthwise") else 1
        settings = ("default", rng.choice(_OTHERS)) if cores == 1 else (rng.choice(("default", "half")),)
        yield Layer(name if cores == 1 else f"{name} on {cores} cores", family, make, settings, cores)


LONG_PRODUCTS = ((64, 2048, 256), (128, 3840, 128), (256, 2048, 128), (128, 2048, 256), (256, 3072, 64))
"""Sizes of products with a long K; most are computed in parts, whose sums are read back by ERDMA."""


def long_products() -> Iterator[Layer]:
    """Return float products with a long K, each for the default timing and one other."""
    kinds = "float16 x float16 -> float32", "float16 x float16 -> float16"
    for (kind, sizes), other in zip(
        itertools.product(kinds, LONG_PRODUCTS), itertools.cycle(_OTHERS), strict=False
    ):
        name, make = _matmul(kind, *sizes)
        yield Layer(name, "product", make, ("default", other))


def networks() -> Iterator[Layer]:
    """Return whole networks; each of their layers gets a row."""
    for name in NETWORKS:
        yield Layer(name, "network", partial(_network, name), ("default",))
    yield Layer("digits", "network", partial(_network, "digits"), ("default", "half"))
    yield Layer("mobilenet_v1 on 3 cores", "network", partial(_network, "mobilenet_v1"), ("default",), 3)


def _network(name: str) -> CompiledModel:
    return compile_model((FILES.get(name) or network_file(name)).read_bytes())


# Families.  The draws and their order determine the data set; do not change them.

Found = tuple[str, Callable[[], CompiledModel | Matmul]] | None

_HEIGHTS = (7, 7, 8, 10, 13, 14, 14, 16, 19, 20, 26, 28, 28, 32, 38, 40, 52, 56, 56, 64, 80, 112)
_CHANNELS = (8, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128, 128, 160, 192, 256, 256, 320, 384, 512, 1024)
_DEPTHS = (64, 256, 512, 1024)


def _map(rng: random.Random, int8: float) -> tuple[bool, int, int]:
    """Draw whether it is int8 (with that probability), height and width."""
    drawn = rng.random() < int8
    height = rng.choice(_HEIGHTS)
    return drawn, height, rng.choice((height, height, height, height + 1, 2 * height, max(height // 2, 4)))


def _in_budget(cycles: float) -> bool:
    return BUDGET[0] <= cycles <= BUDGET[1]


def _kind(int8: bool) -> str:
    return "int8" if int8 else "fp16"


def _of(build: Callable[..., bytes], *sizes: object, **named: object) -> Callable[[], CompiledModel]:
    return lambda: compile_model(build(*sizes, **named))


def _dense(rng: random.Random) -> Found:
    int8, height, width = _map(rng, 0.65)
    cin, cout = rng.choice(_CHANNELS), rng.choice(_CHANNELS)
    kernel = rng.choice((1, 1, 1, 1, 3, 3, 3, 5, 7))
    stride = rng.choice((1, 1, 1, 2))
    pad = kernel // 2 if rng.random() < 0.9 else 0
    activation = rng.choice(("none",) * 6 + ("clip", "clip", "leaky", "swish"))
    if min(height, width) + 2 * pad < kernel:
        return None
    out = ((height + 2 * pad - kernel) // stride + 1) * ((width + 2 * pad - kernel) // stride + 1)
    scale = 1 if int8 else 2
    array = out * max(kernel**2 * -(-cin // 32) * -(-cout // 32) * scale, cout / 8)
    moved = (height * width * cin + out * cout + cin * cout * kernel**2) * scale / 23
    if not _in_budget(max(array, moved)):
        return None
    return _conv((height, width), cin, cout, kernel, stride, pad, int8, activation=activation)


def _depthwise(rng: random.Random) -> Found:
    int8, height, width = _map(rng, 0.7)
    channels, kernel, stride = rng.choice(_CHANNELS), rng.choice((3, 3, 3, 5)), rng.choice((1, 1, 2))
    array = height * width * -(-channels // 64) * kernel**2 / stride**2
    if not _in_budget(array) or min(height, width) < kernel:
        return None
    activation = rng.choice(("none", "none", "clip"))
    return _conv((height, width), channels, channels, kernel, stride, kernel // 2, int8, True, activation)


def _conv(
    size: tuple[int, int],
    cin: int,
    cout: int,
    kernel: int,
    stride: int,
    pad: int,
    int8: bool,
    depthwise: bool = False,
    activation: str = "none",
) -> Found:
    what = f"{_kind(int8)} {'depthwise' if depthwise else 'conv'} {kernel}x{kernel} {cin}->{cout}"
    name = f"{what} at {size[0]}x{size[1]} stride {stride} pad {pad}"
    options = {"kernel": kernel, "stride": stride, "pad": pad, "depthwise": depthwise}
    make = _of(layer_models.conv, cin, cout, size, int8=int8, activation=activation, **options)
    return name if activation == "none" else f"{name} {activation}", make


def _first(rng: random.Random) -> Found:
    size = rng.choice((64, 96, 112, 128, 160, 192, 224))
    kernel, stride = rng.choice(((3, 2), (3, 1), (5, 2), (7, 2)))
    cin, cout = rng.choice((1, 3, 3, 3, 4)), rng.choice((8, 16, 24, 32, 64))
    if not _in_budget((size / stride) ** 2 * kernel**2 * -(-cout // 32)):
        return None
    return _conv((size, size), cin, cout, kernel, stride, kernel // 2, True)


def _dot(rng: random.Random) -> Found:
    cin = rng.choice((64, 128, 256, 512, 784, 1024, 1280, 2048))
    cout = rng.choice((10, 64, 100, 256, 1000, 1024))
    int8 = rng.random() < 0.6
    if not _in_budget(cin * cout / (23 if int8 else 12)):
        return None
    return _conv((1, 1), cin, cout, 1, 1, 0, int8)


def _product(rng: random.Random) -> Found:
    kind = rng.choice([name for name in KINDS if "int4" not in name])
    m, k, n = rng.choice((1, 4, 16, 64, 128)), rng.choice(_DEPTHS), rng.choice(_DEPTHS)
    return _matmul(kind, m, k, n) if _in_budget(max(k * n / 23, m * k * n / 1024)) else None


def _matmul(kind: str, m: int, k: int, n: int) -> tuple[str, Callable[[], Matmul]]:
    return f"product {kind} {m}x{k}x{n}", lambda: Matmul(KINDS[kind], m, k, n)


def _add(rng: random.Random) -> Found:
    int8, height, width = _map(rng, 0.65)
    channels = rng.choice(_CHANNELS)
    if not _in_budget(channels * height * width * (1 if int8 else 2) * 3 / 23):
        return None
    name = f"{_kind(int8)} add {channels} at {height}x{width}"
    return name, _of(layer_models.add, (channels, height, width), int8=int8)


def _pool(rng: random.Random) -> Found:
    int8, height, width = _map(rng, 0.7)
    channels, kernel = rng.choice(_CHANNELS), rng.choice((2, 2, 3, 3, 5))
    stride = rng.choice((1, 2, 2)) if kernel > 2 else 2
    pad = kernel // 2 if kernel > 2 else 0
    if not _in_budget(channels * height * width / 16 * max(1, kernel / stride) ** 2 * (1 if int8 else 2)):
        return None
    name = f"{_kind(int8)} maxpool {kernel}x{kernel} {channels} at {height}x{width} stride {stride}"
    return name, _of(layer_models.max_pool, (channels, height, width), kernel, stride, pad, int8=int8)


def _move(rng: random.Random) -> Found:
    int8, height, width = _map(rng, 0.7)
    channels = rng.choice(_CHANNELS)
    if not _in_budget(channels * height * width * (1 if int8 else 2) / 8):
        return None
    if rng.choice(("concat", "resize")) == "resize":
        shape = channels, -(-height // 2), -(-width // 2)
        name = f"{_kind(int8)} resize {channels} at {shape[1]}x{shape[2]}"
        return name, _of(layer_models.resize, shape, 2, int8=int8)
    joined = 2 * max(channels // 2, 32)
    name = f"{_kind(int8)} concat {joined} at {height}x{width}"
    return name, _of(layer_models.concat, (joined, height, width), 2, int8=int8)


_FAMILIES: dict[str, tuple[Callable[[random.Random], Found], float]] = {
    "dense": (_dense, 10),
    "depthwise": (_depthwise, 4),
    "first": (_first, 2),
    "dot": (_dot, 2),
    "product": (_product, 2),
    "add": (_add, 2),
    "pool": (_pool, 2),
    "move": (_move, 2),
}
"""Name -> function that draws a layer, and relative frequency."""
