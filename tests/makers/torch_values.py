"""Cases of DIOPI's operators whose results PyTorch has computed: `torch_values.json`.

`python -m tests.makers.torch_values` writes the file again; it needs PyTorch (`pip install -e '.[diopi]'`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

FILE = Path(__file__).with_name("torch_values.json")

F, H, D, I64, I32, U8, B = "float32", "float16", "float64", "int64", "int32", "uint8", "bool"

SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.25, -7.5, 1e-4, 40.0, -40.0]
INSIDE = [0.0, 0.5, -0.5, 0.99, -0.99, 1.0, -1.0, 1e-5, 1.5]
ABOVE = [0.0, 1e-6, 0.5, 1.0, 2.0, 3.75, 1e6, -1.0]

Operand = tuple[list, str]
Case = tuple[str, tuple, str]
"""Operator, arguments (an operand of elements and type, or a number, or None), and PyTorch's expression on
t[0], t[1], ... and torch, F."""


def _grid(*shape: int, dtype: str = F, shift: int = 0) -> Operand:
    """Return an operand of numbers that differ, in this shape."""
    count = int(np.prod(shape))
    values = (np.arange(count) * 37 % 101 - 50 + shift).reshape(shape)
    if dtype in (F, H, D):
        values = values / 8
    return values.astype(dtype).tolist(), dtype


def _unary() -> list[Case]:
    """Functions of one number, on float32, float64 and integers."""
    made: list[Case] = []
    names = {
        "Sin": SPECIAL, "Cos": SPECIAL, "Tan": SPECIAL, "Asin": INSIDE, "Acos": INSIDE, "Atan": SPECIAL,
        "Sinh": SPECIAL, "Cosh": SPECIAL, "Asinh": SPECIAL, "Acosh": ABOVE, "Atanh": INSIDE, "Exp": SPECIAL,
        "Expm1": SPECIAL, "Log": ABOVE, "Log2": ABOVE, "Log10": ABOVE, "Log1p": INSIDE, "Sqrt": ABOVE,
        "Rsqrt": ABOVE, "Erf": SPECIAL, "Reciprocal": SPECIAL,
    }  # fmt: skip
    for name, values in names.items():
        for dtype in (F, D):
            made.append((name, ((values, dtype),), f"torch.{name.lower()}(t[0])"))
        made.append((name, (([1, 2, 3, 0], I64),), f"torch.{name.lower()}(t[0])"))
    for name in ("Abs", "Neg", "Floor", "Ceil", "Sign"):
        for operand in ((SPECIAL, F), ([-3, 0, 5, 127], I32), ([0, 1, 200], U8)):
            made.append((name, (operand,), f"torch.{name.lower()}(t[0])"))
    made.append(("IsNan", (([0.0, float("nan"), float("inf")], F),), "torch.isnan(t[0])"))
    made.append(("LogicalNot", (([0.0, 2.0, -1.0], F),), "torch.logical_not(t[0])"))
    made.append(("BitwiseNot", (([0, 5, -1], I32),), "torch.bitwise_not(t[0])"))
    return made


def _binary() -> list[Case]:
    """Comparisons, logic and bits, of tensors of several types and of numbers."""
    made: list[Case] = []
    a, b = ([1.0, 2.0, float("nan"), -1.0], F), ([1, 3, 1, -2], I64)
    for name in ("Eq", "Ne", "Ge", "Gt", "Le", "Lt"):
        made.append((name, (a, b), f"torch.{name.lower()}(t[0], t[1])"))
        made.append((f"{name}Scalar", (a, 1.0), f"torch.{name.lower()}(t[0], t[1])"))
        made.append((f"{name}Scalar", (([1, 2, 3], I32), 2.5), f"torch.{name.lower()}(t[0], t[1])"))
    first, second = ([12, 10, -1, 0], I32), ([10, 6, 5, 1], I32)
    for name, function in (("BitwiseAnd", "bitwise_and"), ("BitwiseOr", "bitwise_or")):
        made.append((name, (first, second), f"torch.{function}(t[0], t[1])"))
        made.append((f"{name}Scalar", (first, 6), f"torch.{function}(t[0], t[1])"))
    for name, function in (("LogicalAnd", "logical_and"), ("LogicalOr", "logical_or")):
        made.append((name, (([0.0, 2.0, 0.0, 1.0], F), ([1, 0, 0, 7], I32)), f"torch.{function}(t[0], t[1])"))
    return made


def _moves() -> list[Case]:
    """Movements of elements; sizes are lists."""
    x, m = _grid(2, 3, 4), ([[True, False, True, False]] * 3, B)
    return [
        ("Slice", (x, 2, 1, 4, 2), "t[0][:, :, 1:4:2]"),
        ("Permute", (x, [2, 0, 1]), "t[0].permute(2, 0, 1)"),
        ("Transpose", (x, 0, -1), "t[0].transpose(0, -1)"),
        ("Unfold", (x, 2, 3, 1), "t[0].unfold(2, 3, 1)"),
        ("Unfold", (x, 1, 2, 1), "t[0].unfold(1, 2, 1)"),
        ("Repeat", (x, [2, 1, 1, 3]), "t[0].repeat(2, 1, 1, 3)"),
        ("Flip", (x, [0, -1]), "t[0].flip(0, -1)"),
        ("Roll", (x, [1, -2], [0, 2]), "t[0].roll((1, -2), (0, 2))"),
        ("Roll", (x, [5], []), "t[0].roll(5)"),
        ("Select", (x, 1, -1), "t[0].select(1, -1)"),
        ("IndexSelect", (x, 2, ([3, 0, 0], I64)), "t[0].index_select(2, t[2])"),
        ("Gather", (x, 1, ([[[2, 0, 1]], [[0, 0, 2]]], I64)), "t[0].gather(1, t[2])"),
        ("Where", (m, _grid(3, 4), _grid(4, shift=9)), "torch.where(t[0], t[1], t[2])"),
        ("MaskedFillScalar", (_grid(3, 4), m, 0.1), "t[0].masked_fill(t[1], 0.1)"),
        ("MaskedFill", (_grid(3, 4), m, (2.5, F)), "t[0].masked_fill(t[1], t[2])"),
        ("Tril", (_grid(2, 3, 4), 1), "t[0].tril(1)"),
        ("Triu", (_grid(2, 3, 4), -1), "t[0].triu(-1)"),
        ("Expand", (_grid(3, 1),), "t[0].expand(2, 3, 4)"),
        ("CastDtype", (([1.9, -1.9, 300.5, -0.0], F),), "t[0].to(torch.int32)"),
        ("CastDtype", (([0.0, 0.1, -2.0], F),), "t[0].to(torch.bool)"),
        ("CastDtype", (([0.1, 65519.0, 65520.0, 1e-8], F),), "t[0].to(torch.float16)"),
        *(
            ("Pad", (_grid(1, 2, 3, 4), pads, mode, 0.5), f"F.pad(t[0], {pads}, '{mode}'{value})")
            for mode, value in (("constant", ", 0.5"), ("reflect", ""), ("replicate", ""), ("circular", ""))
            for pads in ([1, 2, 0, 1], [2, 0, 2, 2])
        ),
        (
            "Pad",
            (_grid(3, 4), [-1, 2, 1, -1], "constant", 0.5),
            "F.pad(t[0], [-1, 2, 1, -1], 'constant', 0.5)",
        ),
        ("Sum", (_grid(2, 3, 4, dtype=I32), [0, 2]), "t[0].sum((0, 2))"),
        ("Mean", (_grid(2, 3, 4), [1]), "t[0].mean(1)"),
    ]


def _windows() -> list[Case]:
    """Convolutions over two and three axes, and resized maps."""
    made: list[Case] = [
        (
            "Convolution3d",
            (_grid(2, 4, 3, 4, 3), _grid(6, 2, 2, 3, 1), _grid(6), [1, 2, 1], [1, 1, 0], [1, 1, 2], 2),
            "F.conv3d(t[0], t[1], t[2], (1, 2, 1), (1, 1, 0), (1, 1, 2), 2)",
        ),
        (
            "ConvTranspose3d",
            (_grid(1, 4, 2, 3, 2), _grid(4, 3, 2, 2, 3), None, [1, 2, 2], [0, 1, 1], [0, 1, 0], 2, [1, 1, 2]),
            "F.conv_transpose3d(t[0], t[1], None, (1, 2, 2), (0, 1, 1), (0, 1, 0), 2, (1, 1, 2))",
        ),
        (
            "Convolution2d",
            (_grid(2, 3, 6, 5), _grid(4, 3, 3, 2), _grid(4), [2, 1], [1, 0], [1, 2], 1),
            "F.conv2d(t[0], t[1], t[2], (2, 1), (1, 0), (1, 2))",
        ),
        (
            "ConvTranspose2d",
            (_grid(1, 2, 3, 4), _grid(2, 3, 3, 2), _grid(3), [2, 2], [1, 0], [1, 1], 1, [1, 1]),
            "F.conv_transpose2d(t[0], t[1], t[2], 2, (1, 0), 1)",
        ),
        ("Softmax", (_grid(2, 3, 4), 1), "t[0].softmax(1)"),
        ("LogSoftmax", (_grid(2, 3, 4), -1), "t[0].log_softmax(-1)"),
        *(
            (
                "AvgPool2d",
                (_grid(1, 2, 5, 6), [3, 2], [2, 2], [1, 1], True, counted),
                f"F.avg_pool2d(t[0], (3, 2), 2, 1, True, {counted})",
            )
            for counted in (False, True)
        ),
        ("AdaptiveAvgPool2d", (_grid(1, 2, 5, 7), [3, 2]), "F.adaptive_avg_pool2d(t[0], (3, 2))"),
        ("AdaptiveMaxPool2d", (_grid(1, 2, 5, 7), [3, 2]), "F.adaptive_max_pool2d(t[0], (3, 2))"),
        (
            "MaxPool2d",
            (_grid(1, 2, 5, 6), [3, 2], [2, 1], [1, 1], [1, 2], True),
            "F.max_pool2d(t[0], (3, 2), (2, 1), 1, (1, 2), True)",
        ),
    ]
    for size in ([7, 3], [1, 1], [4, 5], [2, 9], [1, 6]):
        made.append(("UpsampleNearest", (_grid(1, 2, 4, 5), size), f"F.interpolate(t[0], {size})"))
        for corners in (False, True):
            for mode in ("bilinear", "bicubic"):
                made.append((
                    "UpsampleLinear",
                    (_grid(1, 2, 4, 5), size, corners, mode),
                    f"F.interpolate(t[0], {size}, mode='{mode}', align_corners={corners})",
                ))  # fmt: skip
    return made


def cases() -> list[Case]:
    """Return all cases."""
    return [*_unary(), *_binary(), *_moves(), *_windows()]


def array_of(argument: Any) -> Array | None:
    """Return the array of an operand, None for another argument."""
    if isinstance(argument, tuple):
        return np.array(argument[0], argument[1])
    return None


def main() -> None:  # pragma: no cover - needs PyTorch
    """Write the results of PyTorch."""
    import torch

    torch.set_num_threads(1)
    functions: Callable[..., Any] = torch.nn.functional
    found = []
    for name, arguments, expression in cases():
        tensors = [
            argument if array is None else torch.tensor(argument[0], dtype=getattr(torch, argument[1]))
            for argument in arguments
            for array in [array_of(argument)]
        ]
        made = eval(expression, {"torch": torch, "F": functions, "t": tensors})
        found.append(
            [
                name,
                expression,
                str(made.dtype).removeprefix("torch."),
                list(made.shape),
                made.flatten().tolist(),
            ]
        )
    lines = ",\n".join(json.dumps(one) for one in found)
    FILE.write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
