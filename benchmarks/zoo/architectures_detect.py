"""Detectors of published shapes with random weights, beyond those of `examples/networks/make.py`.

Heads end before the decoding of boxes, as in networks that are exported for NPUs.
"""

from __future__ import annotations

from benchmarks.zoo.architectures_classify import Made
from rkcosim.examples.networks.make import Network, Yolo


def ssd_mobilenet_v1() -> Made:
    """SSD with MobileNetV1 at 300 x 300, 91 classes (TensorFlow's object detection models): 1.2 G MACs."""
    n = Network("ssd_mobilenet_v1", (1, 3, 300, 300), 21)
    x, maps = n.clip(n.conv("image", 3, 32, 3, 2)), []
    shapes = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    for number, (cin, cout, stride) in enumerate(
        [*shapes, *[(512, 512, 1)] * 5, (512, 1024, 2), (1024, 1024, 1)]
    ):
        x = n.clip(n.conv(x, cin, cin, 3, stride, groups=cin))
        x = n.clip(n.conv(x, cin, cout, 1))
        if number in (10, 12):
            maps.append((x, cout, 3 if number == 10 else 6))
    cin = 1024
    for narrow, cout in ((256, 512), (128, 256), (128, 256), (64, 128)):
        x = n.clip(n.conv(n.clip(n.conv(x, cin, narrow, 1)), narrow, cout, 3, 2))
        maps.append((x, cout, 6))
        cin = cout
    ends: list[str] = []
    for x, channels, anchors in maps:
        ends += [n.conv(x, channels, 4 * anchors, 1)]
        ends += [n.add("Sigmoid", n.conv(x, channels, 91 * anchors, 1))]
    return n, ends


class RetinaFace:
    """RetinaFace on MobileNetV1 0.25 (Deng et al. 2020; layer tables of biubug6/Pytorch_Retinaface)."""

    def __init__(self) -> None:
        self.n = Network("retinaface_mobile320", (1, 3, 320, 320), 22)

    def leaky(self, x: str) -> str:
        """LeakyRelu with slope 0.1."""
        return self.n.add("LeakyRelu", x, alpha=0.1)

    def separable(self, x: str, cin: int, cout: int, stride: int) -> str:
        """A depthwise and a 1x1 convolution."""
        x = self.leaky(self.n.conv(x, cin, cin, 3, stride, groups=cin))
        return self.leaky(self.n.conv(x, cin, cout, 1))

    def context(self, x: str) -> str:
        """The context module of one map: 64 channels of 3x3 windows one behind the other."""
        n = self.n
        wide = n.conv(x, 64, 32)
        narrow = self.leaky(n.conv(x, 64, 16))
        middle = n.conv(narrow, 16, 16)
        deep = n.conv(self.leaky(n.conv(narrow, 16, 16)), 16, 16)
        return n.relu(n.add("Concat", wide, middle, deep, axis=1))


def retinaface_mobile320() -> Made:
    """RetinaFace with MobileNetV1 0.25 at 320 x 320; two anchors for each place of three maps."""
    net = RetinaFace()
    n, maps = net.n, []
    x = net.leaky(n.conv("image", 3, 8, 3, 2))
    stages = [(8, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)], [(64, 128, 2)]
    for stage in (stages[0], [*stages[1], *[(128, 128, 1)] * 5], [(128, 256, 2), (256, 256, 1)]):
        for cin, cout, stride in stage:
            x = net.separable(x, cin, cout, stride)
        maps.append((x, cout))
    low, middle, high = (net.leaky(n.conv(x, channels, 64, 1)) for x, channels in maps)
    middle = net.leaky(n.conv(n.add("Add", middle, n.twice(high)), 64, 64))
    low = net.leaky(n.conv(n.add("Add", low, n.twice(middle)), 64, 64))
    ends = []
    for x in map(net.context, (low, middle, high)):
        ends += [n.conv(x, 64, 2 * values, 1) for values in (4, 2, 10)]
    return n, ends


class Yolo11(Yolo):
    """Blocks of yolo11 (layer table and modules of ultralytics' yolo11)."""

    def bottleneck_of(self, x: str, width: int, narrow: int) -> str:
        """Two 3x3 convolutions, the inner one of `narrow` channels, and the sum with `x`."""
        y = self.conv(self.conv(x, width, narrow, 3), narrow, width, 3)
        return self.n.add("Add", x, y)

    def c3k(self, x: str, width: int) -> str:
        """Two bottlenecks on half of the channels beside a 1x1 convolution."""
        half = width // 2
        y = self.conv(x, width, half, 1)
        for _ in range(2):
            y = self.bottleneck_of(y, half, half)
        return self.conv(self.join(y, self.conv(x, width, half, 1)), width, width, 1)

    def c3k2(self, x: str, cin: int, cout: int, deep: bool, part: int = 2) -> str:
        """The stage with `cout // part` inner channels; the halves of the first convolution are apart."""
        inner = cout // part
        parts = [self.conv(x, cin, inner, 1), self.conv(x, cin, inner, 1)]
        for _ in range(self.repeats(2)):
            last = parts[-1]
            parts.append(self.c3k(last, inner) if deep else self.bottleneck_of(last, inner, inner // 2))
        return self.conv(self.n.add("Concat", *parts, axis=1), inner * len(parts), cout, 1)

    def attention(self, x: str, channels: int, side: int) -> str:
        """Attention over the places of a map, in heads of 64 channels with keys of 32."""
        n, heads, places = self.n, channels // 64, side * side

        def shaped(y: str, width: int) -> str:
            return n.add("Reshape", y, n.constant([1, heads, width, places], int))

        q, k = (shaped(n.conv(x, channels, 32 * heads, 1), 32) for _ in range(2))
        map_ = n.conv(x, channels, channels, 1)
        scores = n.add("MatMul", n.add("Transpose", q, perm=[0, 1, 3, 2]), k)
        scores = n.add("Softmax", n.add("Mul", scores, n.constant(32**-0.5)), axis=-1)
        mixed = n.add("MatMul", shaped(map_, 64), n.add("Transpose", scores, perm=[0, 1, 3, 2]))
        mixed = n.add("Reshape", mixed, n.constant([1, channels, side, side], int))
        place = n.conv(map_, channels, channels, 3, groups=channels)
        return n.conv(n.add("Add", mixed, place), channels, channels, 1)

    def c2psa(self, x: str, channels: int, side: int) -> str:
        """Attention and two 1x1 convolutions with sums, on half of the channels."""
        n, half = self.n, channels // 2
        kept, y = self.conv(x, channels, half, 1), self.conv(x, channels, half, 1)
        y = n.add("Add", y, self.attention(y, half, side))
        y = n.add("Add", y, n.conv(self.conv(y, half, 2 * half, 1), 2 * half, half, 1))
        return self.conv(self.join(kept, y), channels, channels, 1)

    def head(self, x: str, channels: int, box: int, classes: int) -> list[str]:
        """The bins of the box, and the Sigmoid of 80 classes by depthwise and 1x1 convolutions."""
        n = self.n
        y = self.conv(self.conv(x, channels, box, 3), box, box, 3)
        for cin in (channels, classes):
            x = n.silu(n.conv(x, cin, cin, 3, groups=cin))
            x = self.conv(x, cin, classes, 1)
        return [n.conv(y, box, 64, 1), n.add("Sigmoid", n.conv(x, classes, 80, 1))]


def yolo11n() -> Made:
    """yolo11n at 640 x 640 with 80 classes (ultralytics): 3.3 G MACs."""
    net = Yolo11("yolo11n", 0.5, 0.25, "silu")
    c64, c128, c256, c512, c1024 = (net.channels(c) for c in (64, 128, 256, 512, 1024))
    x = net.conv(net.conv("image", 3, c64, 3, 2), c64, c128, 3, 2)
    x = net.conv(net.c3k2(x, c128, c256, False, 4), c256, c256, 3, 2)
    small = net.c3k2(x, c256, c512, False, 4)
    middle = net.c3k2(net.conv(small, c512, c512, 3, 2), c512, c512, True)
    x = net.c3k2(net.conv(middle, c512, c1024, 3, 2), c1024, c1024, True)
    low = net.c2psa(net.sppf(x, c1024), c1024, 20)
    mid = net.c3k2(net.join(net.n.twice(low), middle), c1024 + c512, c512, False)
    p3 = net.c3k2(net.join(net.n.twice(mid), small), c512 + c512, c256, False)
    p4 = net.c3k2(net.join(net.conv(p3, c256, c256, 3, 2), mid), c256 + c512, c512, False)
    p5 = net.c3k2(net.join(net.conv(p4, c512, c512, 3, 2), low), c512 + c1024, c1024, True)
    box, classes = max(16, c256 // 4, 64), max(c256, 80)
    return net.n, [
        end for x, c in ((p3, c256), (p4, c512), (p5, c1024)) for end in net.head(x, c, box, classes)
    ]
