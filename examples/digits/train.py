"""Train, quantise and save the digits network; writes the files that the demo reads.

    pip install -r requirements.txt
    python train.py

All random numbers are seeded, but a different PyTorch may round differently; the checked-in files were made
with the versions in `README.md`.  Takes about two minutes on two CPU cores.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 588
HELD_BACK = 360
"""Number of images that are used neither for training nor for calibration."""


def images() -> tuple[np.ndarray, np.ndarray]:
    """Return the 1797 digits as float32 (N, 1, 16, 16) in 0..1 (each pixel doubled) and labels."""
    digits = load_digits()
    pixels = (digits.images / 16.0).astype(np.float32)
    return pixels.repeat(2, axis=1).repeat(2, axis=2)[:, None], digits.target.astype(np.int64)


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return shuffled indices of the training and of the held-back images."""
    order = np.random.default_rng(SEED).permutation(len(labels))
    return order[HELD_BACK:], order[:HELD_BACK]


class Block(nn.Module):
    """A convolution with batch normalisation, and ReLU unless `relu` is false."""

    def __init__(self, cin: int, cout: int, kernel: int, stride: int = 1, *, dw=False, relu=True) -> None:
        super().__init__()
        groups = cin if dw else 1
        self.conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(cout)
        self.relu = relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        return torch.relu(y) if self.relu else y

    def folded(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and bias with the normalisation folded in."""
        gain = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
        weight = self.conv.weight * gain[:, None, None, None]
        bias = self.norm.bias - self.norm.running_mean * gain
        return weight.detach().numpy(), bias.detach().numpy()


class DigitsNet(nn.Module):
    """Stem, depthwise-separable block, max pool, residual block, strided block, pool, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Block(1, 16, 3)
        self.dw1, self.pw1 = Block(16, 16, 3, dw=True), Block(16, 32, 1)
        self.dw2, self.pw2 = Block(32, 32, 3, dw=True), Block(32, 32, 1, relu=False)
        self.dw3, self.pw3 = Block(32, 32, 3, 2, dw=True), Block(32, 64, 1)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pw1(self.dw1(self.stem(x)))
        x = nn.functional.max_pool2d(x, 2)
        x = torch.relu(x + self.pw2(self.dw2(x)))
        x = self.pw3(self.dw3(x))
        return self.head(x.mean(dim=(2, 3)))


def train(net: DigitsNet, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
    """Train in place with random shifts of up to two pixels."""
    generator = torch.Generator().manual_seed(SEED)
    data, target = torch.from_numpy(x), torch.from_numpy(y)
    optimiser = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 8e-3, total_steps=epochs * (len(x) // 64))
    net.train()
    for epoch in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        total = 0.0
        for step in range(len(x) // 64):
            batch = order[step * 64 : step * 64 + 64]
            dy, dx = (int(v) for v in torch.randint(-2, 3, (2,), generator=generator))
            shifted = torch.roll(data[batch], (dy, dx), (2, 3))
            loss = nn.functional.cross_entropy(net(shifted), target[batch], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        print(f"epoch {epoch + 1}/{epochs}: loss {total / (len(x) // 64):.4f}", flush=True)
    net.eval()


def export(net: DigitsNet, path: Path) -> None:
    """Write the float network, batch normalisation folded, node by node."""
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []

    def constant(name: str, value: np.ndarray) -> str:
        tensors.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name))
        return name

    def add(op: str, inputs: list[str], name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def block(name: str, x: str) -> str:
        module: Block = getattr(net, name)
        weight, bias = module.folded()
        kernel, pad = weight.shape[2], weight.shape[2] // 2
        y = add(
            "Conv",
            [x, constant(f"{name}.weight", weight), constant(f"{name}.bias", bias)],
            name,
            kernel_shape=[kernel, kernel],
            strides=[module.conv.stride[0]] * 2,
            pads=[pad] * 4,
            group=module.conv.groups,
        )
        return add("Relu", [y], f"{name}.relu") if module.relu else y

    x = block("pw1", block("dw1", block("stem", "image")))
    x = add("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = add("Add", [x, block("pw2", block("dw2", x))], "residual")
    x = add("Relu", [x], "residual.relu")
    x = block("pw3", block("dw3", x))
    x = add("GlobalAveragePool", [x], "average")
    x = add("Flatten", [x], "flatten", axis=1)
    weight, bias = (p.detach().numpy() for p in (net.head.weight, net.head.bias))
    x = add("Gemm", [x, constant("head.weight", weight), constant("head.bias", bias)], "head", transB=1)
    nodes.append(helper.make_node("Softmax", [x], ["probabilities"], name="softmax", axis=1))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 1, 16, 16])],
        [helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, [1, 10])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="digits")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


class Reader(CalibrationDataReader):
    """Calibration images, one at a time."""

    def __init__(self, x: np.ndarray) -> None:
        self.items = iter([{"image": image[None]} for image in x])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.items, None)


def accuracy(path: Path, x: np.ndarray, y: np.ndarray) -> float:
    """Return onnxruntime's top-1 accuracy on the images."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    best = [int(session.run(None, {"image": image[None]})[0].argmax()) for image in x]
    return float(np.mean(np.array(best) == y))


def main() -> None:
    """Train, export, quantise, measure, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    epochs = parser.parse_args().epochs
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    x, y = images()
    seen, held = split(y)
    net = DigitsNet()
    train(net, x[seen], y[seen], epochs)
    build = HERE / "build"
    build.mkdir(exist_ok=True)
    export(net, HERE / "digits_float.onnx")
    quant_pre_process(str(HERE / "digits_float.onnx"), str(build / "digits_prepared.onnx"))
    quantize_static(
        str(build / "digits_prepared.onnx"),
        str(HERE / "digits_int8.onnx"),
        Reader(x[seen][:400]),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    pixels = np.round(x[held][:, 0] * 16).astype(np.uint8)
    np.savez_compressed(
        HERE / "held_back.npz",
        images=pixels,
        labels=y[held].astype(np.uint8),
        scale=np.float32(1 / 16),
    )
    result = {
        "held_back": len(held),
        "float_top1": accuracy(HERE / "digits_float.onnx", x[held], y[held]),
        "int8_top1": accuracy(HERE / "digits_int8.onnx", x[held], y[held]),
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
