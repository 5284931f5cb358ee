"""Layers of the estimator's data set: drawn over the shapes of real networks, and networks whole.

A layer's half is fixed by its name before anything is measured: `held_out` layers are never fitted,
they only tell how far off the estimates are.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cosim.engines.library import DramConfig
from cosim.perf import layer_models
from sw.compiler import CompiledModel, compile_model
from sw.compiler.matmul import KINDS, Matmul

ROOT = Path(__file__).parents[3]
SEED = 8
DRAWN = 330
"""Layers that are drawn."""

BUDGET = (4_000, 250_000)
"""Cycles of a drawn layer, by a rough bound; others are drawn again."""

DEFAULT = DramConfig()
PEAK = DEFAULT.peak_bytes_per_cycle
SETTINGS: dict[str, DramConfig] = {
    "default": DEFAULT,
    "half": DramConfig(peak_bytes_per_cycle=PEAK / 2),
    "slow": DramConfig(peak_bytes_per_cycle=17.0),
    "double": DramConfig(peak_bytes_per_cycle=2 * PEAK),
    "near": DramConfig(read_latency=60, write_latency=30),
    "far": DramConfig(read_latency=240, write_latency=120),
    "core at 600 MHz": DramConfig(peak_bytes_per_cycle=PEAK / 0.6, read_latency=72, write_latency=36),
}
"""Memory timings under which layers are measured, by name."""

NETWORKS = ("residual", "separable", "upscaling", "mobilenet_v1", "resnet50")
"""Networks of examples/networks/make.py, beside the digits."""


def held_out(name: str) -> bool:
    """Whether a layer is kept away from all fitting (half of them, by a hash of the name)."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


@dataclass(frozen=True)
class Layer:
    """Something to measure: `make` gives a compiled model or a product; `settings` by name."""

    name: str
    family: str
    make: Callable[[], CompiledModel | Matmul]
    settings: tuple[str, ...]
    cores: int = 1


def layers() -> Iterator[Layer]:
    """All of the data set, in a fixed order."""
    yield from drawn()
    yield from long_products()
    yield from networks()


def drawn(count: int = DRAWN) -> Iterator[Layer]:
    """Layers with random shapes from a fixed seed, each under the default timing and one other."""
    rng = random.Random(SEED)
    others = [name for name in SETTINGS if name != "default"]
    names: set[str] = set()
    kinds = list(_FAMILIES)
    while len(names) < count:
        family = rng.choices(kinds, [weight for _, weight in _FAMILIES.values()])[0]
        found = _FAMILIES[family][0](rng)
        if found is None:
            continue
        name, make = found
        if name in names:
            continue
        names.add(name)
        cores = rng.choice((1, 1, 1, 2, 3)) if family in ("dense", "depthwise") else 1
        settings = ("default", rng.choice(others)) if cores == 1 else (rng.choice(("default", "half")),)
        yield Layer(name if cores == 1 else f"{name} on {cores} cores", family, make, settings, cores)


LONG_PRODUCTS = ((64, 2048, 256), (128, 3840, 128), (256, 2048, 128), (128, 2048, 256), (256, 3072, 64))
"""Sizes of products whose K is long: most are computed in parts, whose sums ERDMA brings back."""


def long_products() -> Iterator[Layer]:
    """Float products with a long K, each under the default timing and one other."""
    others = [name for name in SETTINGS if name != "default"]
    for kind in ("float16 x float16 -> float32", "float16 x float16 -> float16"):
        for m, k, n in LONG_PRODUCTS:
            other = others.pop(0)
            others.append(other)
            yield Layer(
                f"product {kind} {m}x{k}x{n}",
                "product",
                lambda kind=kind, m=m, k=k, n=n: Matmul(KINDS[kind], m, k, n),  # type: ignore[misc]
                ("default", other),
            )


def networks() -> Iterator[Layer]:
    """Whole networks; each of their layers is a row of its own."""
    for name in NETWORKS:
        yield Layer(name, "network", lambda name=name: _network(name), ("default",))  # type: ignore[misc]
    yield Layer("digits", "network", _digits, ("default", "half"))
    yield Layer("mobilenet_v1 on 3 cores", "network", lambda: _network("mobilenet_v1"), ("default",), 3)


def _digits() -> CompiledModel:
    return compile_model((ROOT / "examples" / "digits" / "digits_int8.onnx").read_bytes())


def _network(name: str) -> CompiledModel:
    return compile_model(_network_bytes(name))


@cache
def _network_bytes(name: str) -> bytes:
    path = ROOT / "build" / "networks" / f"{name}_int8.onnx"
    if path.exists():
        return path.read_bytes()
    spec = importlib.util.spec_from_file_location("make", ROOT / "examples" / "networks" / "make.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("examples/networks/make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data: bytes = module.make(name)[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return data


# ------------------------------------------------------------------ families

Found = tuple[str, Callable[[], Any]] | None


def _size(rng: random.Random) -> tuple[int, int]:
    height = rng.choice(
        (7, 7, 8, 10, 13, 14, 14, 16, 19, 20, 26, 28, 28, 32, 38, 40, 52, 56, 56, 64, 80, 112)
    )
    return height, rng.choice((height, height, height, height + 1, 2 * height, max(height // 2, 4)))


def _channels(rng: random.Random) -> int:
    return rng.choice(
        (8, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128, 128, 160, 192, 256, 256, 320, 384, 512, 1024)
    )


def _in_budget(cycles: float) -> bool:
    return BUDGET[0] <= cycles <= BUDGET[1]


def _dense(rng: random.Random) -> Found:
    int8 = rng.random() < 0.65
    height, width = _size(rng)
    cin, cout = _channels(rng), _channels(rng)
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
    return _conv(height, width, cin, cout, kernel, stride, pad, int8, activation=activation)


def _depthwise(rng: random.Random) -> Found:
    int8 = rng.random() < 0.7
    height, width = _size(rng)
    channels, kernel, stride = _channels(rng), rng.choice((3, 3, 3, 5)), rng.choice((1, 1, 2))
    array = height * width * -(-channels // 64) * kernel**2 / stride**2
    if not _in_budget(array) or min(height, width) < kernel:
        return None
    activation = rng.choice(("none", "none", "clip"))
    return _conv(height, width, channels, channels, kernel, stride, kernel // 2, int8, True, activation)


def _conv(
    height: int,
    width: int,
    cin: int,
    cout: int,
    kernel: int,
    stride: int,
    pad: int,
    int8: bool,
    depthwise: bool = False,
    activation: str = "none",
) -> Found:
    name = (
        f"{'int8' if int8 else 'fp16'} {'depthwise' if depthwise else 'conv'} {kernel}x{kernel} "
        f"{cin}->{cout} at {height}x{width} stride {stride} pad {pad}"
        + (f" {activation}" if activation != "none" else "")
    )
    return name, lambda: compile_model(
        layer_models.conv(
            cin,
            cout,
            (height, width),
            int8=int8,
            kernel=kernel,
            stride=stride,
            pad=pad,
            depthwise=depthwise,
            activation=activation,
        )
    )


def _first(rng: random.Random) -> Found:
    size = rng.choice((64, 96, 112, 128, 160, 192, 224))
    kernel, stride = rng.choice(((3, 2), (3, 1), (5, 2), (7, 2)))
    cin, cout = rng.choice((1, 3, 3, 3, 4)), rng.choice((8, 16, 24, 32, 64))
    if not _in_budget((size / stride) ** 2 * kernel**2 * -(-cout // 32)):
        return None
    return _conv(size, size, cin, cout, kernel, stride, kernel // 2, True)


def _dot(rng: random.Random) -> Found:
    cin, cout = (
        rng.choice((64, 128, 256, 512, 784, 1024, 1280, 2048)),
        rng.choice((10, 64, 100, 256, 1000, 1024)),
    )
    int8 = rng.random() < 0.6
    if not _in_budget(cin * cout / (23 if int8 else 12)):
        return None
    return _conv(1, 1, cin, cout, 1, 1, 0, int8)


def _product(rng: random.Random) -> Found:
    kind = rng.choice([name for name, kind in KINDS.items() if "int4" not in name])
    m, k, n = (
        rng.choice((1, 4, 16, 64, 128)),
        rng.choice((64, 256, 512, 1024)),
        rng.choice((64, 256, 512, 1024)),
    )
    if not _in_budget(max(k * n / 23, m * k * n / 1024)):
        return None
    return f"product {kind} {m}x{k}x{n}", lambda: Matmul(KINDS[kind], m, k, n)


def _add(rng: random.Random) -> Found:
    int8 = rng.random() < 0.65
    height, width = _size(rng)
    channels = _channels(rng)
    if not _in_budget(channels * height * width * (1 if int8 else 2) * 3 / 23):
        return None
    name = f"{'int8' if int8 else 'fp16'} add {channels} at {height}x{width}"
    return name, lambda: compile_model(layer_models.add((channels, height, width), int8=int8))


def _pool(rng: random.Random) -> Found:
    int8 = rng.random() < 0.7
    height, width = _size(rng)
    channels, kernel = _channels(rng), rng.choice((2, 2, 3, 3, 5))
    stride = rng.choice((1, 2, 2)) if kernel > 2 else 2
    pad = kernel // 2 if kernel > 2 else 0
    if not _in_budget(channels * height * width / 16 * max(1, kernel / stride) ** 2 * (1 if int8 else 2)):
        return None
    kind = "int8" if int8 else "fp16"
    name = f"{kind} maxpool {kernel}x{kernel} {channels} at {height}x{width} stride {stride}"
    return name, lambda: compile_model(
        layer_models.max_pool((channels, height, width), kernel, stride, pad, int8=int8)
    )


def _move(rng: random.Random) -> Found:
    int8 = rng.random() < 0.7
    height, width = _size(rng)
    channels = _channels(rng)
    if not _in_budget(channels * height * width * (1 if int8 else 2) / 8):
        return None
    what = rng.choice(("concat", "resize"))
    kind = "int8" if int8 else "fp16"
    if what == "resize":
        shape = channels, -(-height // 2), -(-width // 2)
        return f"{kind} resize {channels} at {shape[1]}x{shape[2]}", lambda: compile_model(
            layer_models.resize(shape, 2, int8=int8)
        )
    joined = 2 * max(channels // 2, 32)
    return f"{kind} concat {joined} at {height}x{width}", lambda: compile_model(
        layer_models.concat((joined, height, width), 2, int8=int8)
    )


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
"""Name -> how to draw, and how often."""
