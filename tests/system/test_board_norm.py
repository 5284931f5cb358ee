"""The vendor's addition with RMS norm as a chain of tasks, by fields.

A program that its author drives on boards (source `norm-chain` of docs/reference) runs y = (x + r) * gamma /
sqrt(mean((x + r)^2) + 1e-5) on rows of 4096 numbers as 11 tasks for one row and 18 for 128. What the result
has to be follows from mathematics alone; what the tasks have to mean for it is witnessed here: the type of
multipliers and operands by the DPU's PROC_PRECISION, lanes past ORIG_CHANNEL that stay finite, column tiles
of features, and the operand that two readers share.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.makers.board_bench import (
    ADD,
    BASE,
    BF16,
    FP16,
    INT16,
    Board,
    Task,
    f16,
    flying,
    open_board,
    operation,
    stage,
)

TILE = 16
"""Pixels (rows of the matrix) that a convolution of sums takes."""

EPSILON = 1e-5


class Chain:
    """The tasks for some rows of a depth; tensors are NC1HWC2 cubes whose width is the number of rows."""

    def __init__(self, rows: int, depth: int) -> None:
        self.rows, self.depth = rows, depth
        tensor = rows * depth * 2
        sizes = {"x": tensor, "r": tensor, "sum": tensor, "y": tensor, "squares": tensor}
        sizes |= {"mean": 2 * rows * 16, "scale": rows * 16, "half": rows * 16}
        sizes |= {"gamma": depth * 2, "spread": depth * 16, "ones": depth * 2}
        self.at, address = {}, BASE
        for name, size in sizes.items():
            self.at[name] = address
            address += -(-size // 64) * 64
        self.tasks = [self.add(), self.square(), *self.means(), self.seed()]
        for kind in (BF16, FP16):
            self.tasks += self.newton(kind)
        self.tasks.append(self.scale())

    def _flying(self, kind: int, out: int, channels: int, source: str, target: str) -> Task:
        """A task from one cube to another; of eight channels only the first is real."""
        task = flying(
            kind, out, channels=channels, width=self.rows, original=1 if channels == 8 else channels
        )
        task.word("DPU_RDMA", "SRC_BASE_ADDR", self.at[source])
        return task.word("DPU", "DST_BASE_ADDR", self.at[target])

    def _operand(self, task: Task, algorithm: int | None, source: str) -> Task:
        operation(task, algorithm, bits=16, bypass=algorithm is None)
        return task.word("DPU_RDMA", "EW_BASE_ADDR", self.at[source])

    def add(self) -> Task:
        return self._operand(self._flying(FP16, FP16, self.depth, "x", "sum"), ADD, "r")

    def square(self) -> Task:
        return self._operand(self._flying(FP16, BF16, self.depth, "sum", "squares"), None, "sum")

    def means(self) -> list[Task]:
        """Products with ones, a tile of rows each: (sum + depth * epsilon) / depth, by two multipliers."""
        root = int(np.float32(self.depth**-0.5).view(np.uint32)) >> 16
        tasks = []
        for first in range(0, self.rows, TILE):
            width = min(TILE, self.rows)
            task = Task("CNA", "CORE", "DPU")
            narrow = self.rows > width
            task.set("CNA", "CONV_CON1", IN_PRECISION=BF16, PROC_PRECISION=BF16, GROUP_LINE_OFF=int(narrow))
            self._convolution(
                task, BF16, width, self.depth, 1, self.at["squares"] + 16 * first, self.at["ones"]
            )
            if narrow:
                task.set("CNA", "DMA_CON1", LINE_STRIDE=self.rows)
                task.set("CNA", "DMA_CON2", SURF_STRIDE=self.rows - width)
            task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=15)
            self._output(task, BF16, BF16, width, 16, 1, self.at["mean"] + 16 * first)
            stage(task, "BS", ALU_BYPASS=0, ALU_ALGO=2, MUL_BYPASS=0)
            task.word("DPU", "BS_ALU_CFG", int(np.float32(self.depth * EPSILON).view(np.uint32)))
            stage(task, "BN", MUL_BYPASS=0)
            for name in ("BS", "BN"):
                task.set("DPU", f"{name}_MUL_CFG", **{f"{name}_MUL_OPERAND": root})
            tasks.append(task)
        return tasks

    def seed(self) -> Task:
        """0x5F37 - (bits >> 1) of bf16 numbers, in int16."""
        task = self._flying(INT16, INT16, 8, "mean", "scale")
        task.set("DPU", "DATA_FORMAT", BS_MUL_SHIFT_VALUE_NEG=1)
        stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=-1, BS_MUL_SHIFT_VALUE=1)
        return stage(task, "BN", ALU_BYPASS=0, ALU_ALGO=2).word("DPU", "BN_ALU_CFG", 0x5F37)

    def newton(self, kind: int) -> list[Task]:
        """scale * (1.5 - 0.5 * mean * scale^2), where main data and operand have different types.

        `kind` is the type of the scale, an operand, and of the DPU's PROC_PRECISION.
        """
        half = {BF16: 0xBF00, FP16: 0xB800}[kind]
        first = self._operand(self._flying(BF16, FP16, 8, "mean", "half"), None, "scale")
        stage(first, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=half)
        second = self._operand(self._flying(FP16, FP16, 8, "half", "half"), None, "scale")
        third = self._operand(self._flying(FP16, FP16, 8, "half", "scale"), None, "scale")
        stage(third, "BS", ALU_BYPASS=0, ALU_ALGO=2).word("DPU", "BS_ALU_CFG", 0x3FC00000)
        for task in (first, second, third):
            task.set("DPU", "DATA_FORMAT", IN_PRECISION=kind, PROC_PRECISION=kind)
        return [first, second, third]

    def scale(self) -> Task:
        """The scale of each row for all channels (a product with ones), times gamma, times the sum."""
        task = Task("CNA", "CORE", "DPU", "DPU_RDMA")
        task.set("CNA", "CONV_CON1", IN_PRECISION=FP16, PROC_PRECISION=FP16)
        self._convolution(task, FP16, self.rows, 8, self.depth, self.at["scale"], self.at["spread"])
        task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=self.depth - 1)
        self._output(task, FP16, FP16, self.rows, self.depth, self.depth, self.at["y"])
        stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_SRC=1)
        task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=self.rows - 1)
        task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=0)
        task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=self.depth - 1)
        task.set("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=4).word("DPU_RDMA", "BS_BASE_ADDR", self.at["gamma"])
        task.set("DPU_RDMA", "NRDMA_CFG", NRDMA_DISABLE=0)
        operation(task, None, bits=16, bypass=True)
        features = {"IN_PRECISION": FP16, "PROC_PRECISION": FP16, "BURST_LEN": 15}
        if self.rows == 1:
            task.set("DPU", "EW_CFG", EW_DATA_MODE=0)
            task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=0)
            task.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=1, **features)
            return task.word("DPU_RDMA", "EW_BASE_ADDR", self.at["sum"])
        task.set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=5, **features)
        task.word("DPU_RDMA", "SRC_BASE_ADDR", self.at["sum"])
        task.word("DPU_RDMA", "EW_BASE_ADDR", self.at["sum"] + 16 * self.rows)
        task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=self.rows)
        return task.set("DPU_RDMA", "EW_SURF_NOTCH", EW_SURF_NOTCH=self.rows)

    def _convolution(
        self, task: Task, kind: int, width: int, channels: int, kernels: int, features: int, weights: int
    ) -> None:
        """A product of one row of pixels with 1x1 kernels; features are contiguous by default."""
        set_ = task.set
        set_("CNA", "CONV_CON2", FEATURE_GRAINS=2)
        set_("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
        set_("CNA", "DATA_SIZE0", DATAIN_WIDTH=width, DATAIN_HEIGHT=1)
        set_("CNA", "DATA_SIZE1", DATAIN_CHANNEL=channels, DATAIN_CHANNEL_REAL=63 if channels > 8 else 0)
        set_("CNA", "DATA_SIZE2", DATAOUT_WIDTH=width).set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=width)
        set_("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=2 * channels * kernels)
        set_("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=2 * channels)
        set_("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=kernels)
        entries = width * channels * 2 // 64 if channels >= 32 else -(-width // 4)
        data = max(1, -(-entries // 512))
        set_("CNA", "CBUF_CON0", DATA_BANK=data, WEIGHT_BANK=12 - data)
        set_("CNA", "CBUF_CON1", DATA_ENTRIES=entries)
        set_("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
        set_("CNA", "FC_DATA_SIZE0", DMA_WIDTH=width, DMA_HEIGHT=1)
        set_("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=channels)
        task.word("CNA", "FEATURE_DATA_ADDR", features).word("CNA", "DCOMP_ADDR0", weights)
        set_("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
        set_("CNA", "DMA_CON1", LINE_STRIDE=4 * width).set("CNA", "DMA_CON2", SURF_STRIDE=-3 * width)
        set_("CORE", "MISC_CFG", PROC_PRECISION=kind)
        set_("CORE", "DATAOUT_SIZE_0", DATAOUT_WIDTH=width - 1, DATAOUT_HEIGHT=0)
        set_("CORE", "CLIP_TRUNCATE", CLIP_TRUNCATE=0)

    def _output(
        self, task: Task, kind: int, out: int, width: int, channels: int, original: int, target: int
    ) -> None:
        """The DPU's registers of a convolution: those of a flying task, with two surfaces for a group."""
        plain = flying(kind, out, channels=channels, width=width, original=original, size_e=1)
        task.values |= {place: value for place, value in plain.values.items() if place[0] == "DPU"}
        task.set("DPU", "FEATURE_MODE_CFG", FLYING_MODE=0).word("DPU", "DST_BASE_ADDR", target)
        task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=self.rows)
        task.set("DPU", "SURFACE_ADD", SURF_ADD=2 * self.rows)

    def data(self, x: np.ndarray, r: np.ndarray, gamma: np.ndarray) -> dict[int, bytes]:
        """Contents of memory by address; gamma is one of BRDMA, and products with ones spread and sum."""
        spread = np.zeros((self.depth, 8), np.float16)
        spread[:, 0] = 1
        ones = np.full(self.depth, 0x3F80, np.uint16)
        named = {"gamma": gamma, "spread": spread, "ones": ones, "x": self.cube(x), "r": self.cube(r)}
        return {self.at[name]: array.tobytes() for name, array in named.items()}

    def cube(self, matrix: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(matrix.reshape(self.rows, -1, 8).transpose(1, 0, 2))

    def result(self, board: Board, name: str) -> np.ndarray:
        raw = board.read(self.rows * self.depth, "<f2", self.at[name])
        return raw.reshape(-1, self.rows, 8).transpose(1, 0, 2).reshape(self.rows, self.depth)


@pytest.fixture(scope="module", params=["golden", "verilator"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with open_board(request.param, 0x80_0000) as opened:
        yield opened


def exact(x: np.ndarray, r: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    total = x.astype(np.float64) + r
    return total * gamma / np.sqrt((total * total).mean(1, keepdims=True) + EPSILON)


def run(board: Board, chain: Chain, x: np.ndarray, r: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    board.load(chain.data(x, r, gamma))
    state = board.kick(chain.tasks, 100_000_000)
    assert not state, state
    np.testing.assert_array_equal(chain.result(board, "sum"), x + r)
    return chain.result(board, "y").astype(np.float64)


def draw(rows: int, depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of 0.5 and 1.5 in equal numbers, halved in each second row: bf16 holds their mean squares."""
    rng = np.random.default_rng(58)
    total = np.tile(np.where(np.arange(depth) % 2, 0.5, 1.5), (rows, 1))
    total = (
        rng.permuted(total, axis=1)
        * rng.choice([-1, 1], (rows, depth))
        / 2.0 ** (np.arange(rows)[:, None] % 2)
    )
    r = (rng.integers(-64, 65, (rows, depth)) / 32).astype(np.float16)
    return (total - r).astype(np.float16), r, rng.uniform(0.5, 1.5, depth).astype(np.float16)


ROUNDED = 2**-11 + 2**-12
"""Relative error of a product of fp16 (2^-11) whose factor, the scale, is rounded to fp16 halfway to that."""

RULES = ("7.5.5", "7.7.1", "7.8.2", "8.4.2", "7.11.1", "4.1.2", "8.5.1")


@pytest.mark.board(*RULES, source="norm-chain", place="templates M 1, D 4096")
def test_vendor_norm_of_one_row(board: Board) -> None:
    chain = Chain(1, 4096)
    assert len(chain.tasks) == 11
    x, r, gamma = draw(1, 4096)
    expected = exact(x, r, gamma)
    assert np.abs(run(board, chain, x, r, gamma) / expected - 1).max() < 6e-4


@pytest.mark.board(*RULES, source="norm-chain", place="templates M 128, D 4096, with fewer rows and channels")
def test_vendor_norm_of_rows_in_tiles(board: Board) -> None:
    chain = Chain(48, 256)
    x, r, gamma = draw(48, 256)
    expected = exact(x, r, gamma)
    assert np.abs(run(board, chain, x, r, gamma) / expected - 1).max() < ROUNDED


@pytest.mark.board(*RULES, source="norm-chain", place="templates M 128, D 4096")
def test_vendor_norm_of_128_rows(board: Board) -> None:
    chain = Chain(128, 4096)
    assert len(chain.tasks) == 18
    x, r, gamma = draw(128, 4096)
    expected = exact(x, r, gamma)
    assert np.abs(run(board, chain, x, r, gamma) / expected - 1).max() < ROUNDED


@pytest.mark.board(*RULES, source="norm-chain", place="templates M 1, D 4096")
def test_vendor_norm_of_any_numbers(board: Board) -> None:
    """The mean square is written as bf16, half of whose error of up to 2^-8 every element of the row gets."""
    rng = np.random.default_rng(3)
    x, r = (rng.standard_normal((1, 4096)).astype(np.float16) for _ in range(2))
    gamma = rng.uniform(0.5, 1.5, 4096).astype(np.float16)
    expected = exact(x, r, gamma)
    large = np.abs(expected) > 0.01
    got = run(board, Chain(1, 4096), x, r, gamma)
    assert np.abs(got / expected - 1)[large].max() < 2**-9 + 2 * ROUNDED


# --- what single tasks of the chain mean ----------------------------------------------------------


def bf16(*values: float) -> bytes:
    return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def single(board: Board, task: Task, main: bytes, element: bytes = b"", count: int = 4) -> bytes:
    board.run(task, main, element)
    return board.read(count, "<u2").tobytes()


@pytest.mark.parametrize("name", ["BS", "BN"])
@pytest.mark.board(
    "7.5.5", "7.7.1", source="norm-chain", place="tasks 2 and 4: BS_MUL_OPERAND 0xBF00 is -0.5"
)
def test_multipliers_are_bf16_where_the_dpu_works_in_bf16(board: Board, name: str) -> None:
    task = flying(BF16)
    stage(task, name, MUL_BYPASS=0).set("DPU", f"{name}_MUL_CFG", **{f"{name}_MUL_OPERAND": 0xBF00})
    assert single(board, task, bf16(1, 2, 4, 8)) == bf16(-0.5, -1, -2, -4)


@pytest.mark.parametrize("name", ["BS", "BN"])
@pytest.mark.board("7.5.5", "7.7.1", source="norm-chain", place="task 7: BS_MUL_OPERAND 0xB800 is -0.5")
def test_multipliers_are_fp16_where_the_dpu_works_in_fp16(board: Board, name: str) -> None:
    task = flying(FP16)
    stage(task, name, MUL_BYPASS=0).set("DPU", f"{name}_MUL_CFG", **{f"{name}_MUL_OPERAND": 0xB800})
    assert single(board, task, f16(1, 2, 4, 8)) == f16(-0.5, -1, -2, -4)


@pytest.mark.parametrize(("main", "operand"), [(FP16, BF16), (BF16, FP16), (BF16, BF16), (FP16, FP16)])
@pytest.mark.board("7.8.2", "8.4.2", source="norm-chain", place="tasks 4 to 9: IN and PROC of both blocks")
def test_main_data_by_their_reader_and_operand_by_the_dpu(board: Board, main: int, operand: int) -> None:
    """DPU_RDMA's IN_PRECISION is the main data's type, and the DPU's PROC_PRECISION that of the operand."""
    task = flying(main, FP16)
    operation(task, None, bits=16, bypass=True)
    task.set("DPU", "DATA_FORMAT", IN_PRECISION=operand, PROC_PRECISION=operand)
    given = {FP16: f16, BF16: bf16}
    assert single(board, task, given[main](1, 2, 3, 4), given[operand](0.5, 0.5, -0.25, 2)) == f16(
        0.5, 1, -0.75, 8
    )


@pytest.mark.board("7.7.1", "7.5.1", source="norm-chain", place="task 3: 0x5F37 - (bits >> 1) in int16")
def test_first_estimate_of_the_inverse_root(board: Board) -> None:
    chain = Chain(1, 4096)
    board.load({chain.at["mean"]: bf16(1, 4, 0.25, 2, 0.5, 3, 100, 1e-4)})
    task = chain.seed().set("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=7)
    assert not board.kick([task])
    got = board.read(8, "<u2", chain.at["scale"]).astype(np.uint32) << 16
    root = 1 / np.sqrt(np.array([1, 4, 0.25, 2, 0.5, 3, 100, 1e-4]))
    assert np.abs(got.view(np.float32) / root - 1).max() < 0.04
