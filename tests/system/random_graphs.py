"""Random TFLite networks of up to twelve nodes, for tests."""

from __future__ import annotations

import numpy as np

from tests.makers.tflite_models import Tf

FUSED = (0, 0, 1, 3)


class Draw:
    """A random network; `bytes` returns the file.  With `residual` mostly additions after convolutions."""

    def __init__(self, seed: int, residual: bool = False) -> None:
        self.residual = residual
        self.rng = np.random.default_rng(seed)
        self.t = Tf(seed=seed, dtype="uint8" if self.rng.random() < 0.2 else "int8")
        shape = (1, self.pick(3, 14), self.pick(3, 14), self.rng.choice([1, 3, 4, 7, 16, 20, 33, 48]))
        self.maps = [self.t.input(tuple(int(n) for n in shape))]
        for _ in range(self.pick(2, 12)):
            self.grow()

    def pick(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def scale(self) -> float:
        return float(self.rng.uniform(0.02, 0.15))

    def zero(self) -> int:
        shift = 128 if self.t.dtype == "uint8" else 0
        return int(self.rng.choice([-128, -3, 0, 17, 100])) + shift

    def coding(self) -> dict[str, object]:
        return {"scale": self.scale(), "zero": self.zero()}

    def shape(self, x: int) -> tuple[int, int, int, int]:
        return self.t.items[x].shape  # type: ignore[return-value]

    def same(self, x: int) -> dict[str, object]:
        return {"scale": self.t.items[x].scale, "zero": self.t.items[x].zero}

    def grow(self) -> None:
        """Add one node after a random map."""
        x = int(self.rng.choice(self.maps[-3:]))
        kinds = [self.conv, self.conv, self.depthwise, self.binary, self.pool, self.unary, self.move, self.up]
        if self.residual:
            kinds = [self.shortcut, self.shortcut, self.conv, self.pool]
        made = kinds[self.pick(0, len(kinds) - 1)](x)
        if made is not None:
            self.maps.append(made)

    def conv(self, x: int) -> int:
        kernel = self.pick(1, min(4, *self.shape(x)[1:3]))
        return self.t.conv(
            x,
            self.pick(1, 70),
            kernel,
            self.pick(1, 2),
            Padding=self.pick(0, 1),
            FusedActivationFunction=int(self.rng.choice(FUSED)),
            zero=self.zero(),
        )

    def depthwise(self, x: int) -> int:
        kernel = self.pick(1, min(3, *self.shape(x)[1:3]))
        fused = int(self.rng.choice(FUSED))
        return self.t.depthwise(
            x, kernel, self.pick(1, 2), Padding=self.pick(0, 1), FusedActivationFunction=fused
        )

    def binary(self, x: int) -> int | None:
        op = str(self.rng.choice(["ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"]))
        shape = self.shape(x)
        partners = [m for m in self.maps if self.shape(m) == shape]
        choice = self.pick(0, 2)
        if choice == 0:
            other = int(self.rng.choice(partners))
        else:
            other = self.t.constant((shape[3],) if choice == 1 else shape, self.scale(), self.zero())
        more = (
            {} if op in ("MAXIMUM", "MINIMUM") else {"FusedActivationFunction": int(self.rng.choice(FUSED))}
        )
        return self.t.add(op, [x, other], shape, **self.coding(), **more)

    def shortcut(self, x: int) -> int:
        """Add a convolution of x, and an addition: of x, of another convolution, or of a constant."""
        _, h, w, c = self.shape(x)
        kernel, fused = self.pick(1, min(3, h, w)), int(self.rng.choice(FUSED))
        kind = self.pick(0, 3)
        if kind == 0:
            made = self.t.depthwise(x, kernel, 1, Padding=0, FusedActivationFunction=fused)
        else:
            channels = c if kind == 1 else self.pick(1, 80)
            made = self.t.conv(x, channels, kernel, 1, Padding=0, FusedActivationFunction=fused)
        shape = self.shape(made)
        self.t.items[made].scale, self.t.items[made].zero = self.scale(), self.zero()
        partners = [m for m in self.maps if self.shape(m) == shape]
        if partners and self.rng.random() < 0.7:
            other = int(self.rng.choice(partners))
        elif self.rng.random() < 0.5:
            other = self.t.conv(x, shape[3], 1, 1, Padding=0, **self.coding())
        else:
            other = self.t.constant((shape[3],) if self.pick(0, 1) else shape, self.scale(), self.zero())
        pair = [made, other] if self.pick(0, 1) else [other, made]
        fused = int(self.rng.choice(FUSED))
        return self.t.add("ADD", pair, shape, FusedActivationFunction=fused, **self.coding())

    def pool(self, x: int) -> int | None:
        _, h, w, c = self.shape(x)
        kernel, stride, same = self.pick(1, min(3, h, w)), self.pick(1, 2), self.pick(0, 1)
        if self.rng.random() < 0.2:
            return self.t.add("MEAN", [x, self.t.ints([1, 2])], (1, 1, 1, c), KeepDims=True, **self.coding())
        size = [-(-n // stride) if same else (n - kernel) // stride + 1 for n in (h, w)]
        op = "MAX_POOL_2D" if self.rng.random() < 0.5 else "AVERAGE_POOL_2D"
        window = {"FilterHeight": kernel, "FilterWidth": kernel, "StrideH": stride, "StrideW": stride}
        return self.t.add(op, [x], (1, *size, c), Padding=1 - same, **window, **self.same(x))

    def unary(self, x: int) -> int:
        op = str(
            self.rng.choice(["LOGISTIC", "TANH", "HARD_SWISH", "RELU", "RELU6", "LEAKY_RELU", "QUANTIZE"])
        )
        more = {"Alpha": 0.2} if op == "LEAKY_RELU" else {}
        return self.t.add(op, [x], self.shape(x), **self.coding(), **more)

    def move(self, x: int) -> int:
        _, h, w, c = self.shape(x)
        kind = self.pick(0, 4)
        if kind == 0:
            edges = [[0, 0], [self.pick(0, 2), self.pick(0, 2)], [self.pick(0, 2), 1], [0, self.pick(0, 1)]]
            shape = tuple(n + sum(e) for n, e in zip((1, h, w, c), edges, strict=True))
            return self.t.add("PAD", [x, self.t.ints(edges)], shape, **self.same(x))
        if kind == 1:
            partners = [m for m in self.maps if self.shape(m)[1:3] == (h, w)]
            other = int(self.rng.choice(partners))
            shape = (1, h, w, c + self.shape(other)[3])
            return self.t.add("CONCATENATION", [x, other], shape, Axis=3, **self.coding())
        if kind == 2:
            return self.t.add("TRANSPOSE", [x, self.t.ints([0, 2, 1, 3])], (1, w, h, c), **self.same(x))
        if kind == 3:
            return self.t.add("RESHAPE", [x, self.t.ints([1, w, h, c])], (1, w, h, c), **self.same(x))
        begin, size = [0, self.pick(0, h - 1), 0, 0], [1, 0, w, c]
        size[1] = self.pick(1, h - begin[1])
        return self.t.add("SLICE", [x, self.t.ints(begin), self.t.ints(size)], tuple(size), **self.same(x))

    def up(self, x: int) -> int | None:
        _, h, w, c = self.shape(x)
        if h * w > 200:
            return None
        if self.rng.random() < 0.5:
            kernel = self.pick(1, 4)
            stride = self.pick(1, min(kernel, 3))
            return self.t.transpose_conv(x, self.pick(1, 40), kernel, stride, bool(self.pick(0, 1)))
        shape = (1, h * 2, w * self.pick(1, 2), c)
        return self.t.add("RESIZE_NEAREST_NEIGHBOR", [x, self.t.ints(shape[1:3])], shape, **self.same(x))

    def bytes(self) -> bytes:
        """Return the file: every map that no node reads is an output."""
        read = {n for _, inputs, _, _ in self.t.nodes for n in inputs}
        return self.t.bytes(*[m for m in self.maps[1:] if m not in read])
