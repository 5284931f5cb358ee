"""Mathematical values of the nodes of a `.rknn` file, and the error that their arithmetic may have.

The values are computed without intermediate rounding: convolutions are sums in binary64, factors are those of
the file's operand blocks and converters, and functions are evaluated directly. The remaining difference has a
bound per node: one step of an int8 output, two units in the last place of an fp16 output, and for a function
that is computed by a table the largest distance of the table from the function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Tensor, from_cube, to_cube
from rkcosim.compiler.programs.task import Ref, Task
from rkcosim.compiler.steps import HostStep
from rkcosim.rknn_file.constants import FileStep, step_weights, weights, weights_of
from rkcosim.rknn_file.host import permutation
from rkcosim.rknn_file.memory import graph_tensor
from rkcosim.rknn_file.plan import FilePlan
from rkcosim.rknn_file.tasks import field_of, values_of
from rkcosim.spec.layouts import unpack_feature
from rkcosim.spec.types import ATOM, BF16, DEPTHWISE, FLOAT_CODES, FP32
from rkcosim.verify.crosscheck.file_attention import attention
from rkcosim.verify.crosscheck.file_norms import converted, normalised, product, softmax
from rkcosim.verify.crosscheck.file_tables import NotJudged, Real, Table, function_name

Cube = npt.NDArray[Any]

STEPS_INT8 = 1.0
"""Allowed distance of an int8 output from its mathematical value, in steps."""

ULPS_FP16 = 2.0
"""Allowed distance of an fp16 output from its mathematical value, in units in the last place."""


@dataclass(frozen=True)
class Meaning:
    """Mathematical values of a node's output and the allowed distances from them, float64 (C, H, W)."""

    values: Real
    bound: Real


def ulp16(values: Real) -> Real:
    """Return the unit in the last place of fp16 at each value, at least 2^-24."""
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0**-14)))
    return np.exp2(np.minimum(exponent, 15.0) - 10)


def meaning(plan: FilePlan, index: int, cubes: Sequence[Cube]) -> Meaning:
    """Compute the mathematical value of a step for given inputs.

    Parameters
    ----------
    plan
        Plan of the file.
    index
        Index of the step.
    cubes
        Its inputs, int8 or float16 (C, H, W) each.

    Raises
    ------
    NotJudged
        if the step's value is not computed here.
    """
    step = plan.steps[index]
    if isinstance(step, HostStep):
        raise NotJudged("the host computes it")
    assert isinstance(step, FileStep)
    found = _Node(plan, index, step, cubes).meaning()
    values, extra = found
    if step.output.real:
        return Meaning(values, ULPS_FP16 * ulp16(values) + extra)
    bound = np.maximum(STEPS_INT8, extra + 1e-6)
    return Meaning(np.clip(values, -128, 127), np.broadcast_to(bound, values.shape))


@dataclass(frozen=True)
class Judgement:
    """Comparison of a node's output with its mathematical value.

    Members
    -------
    meaning : the expected values.
    wrong : bool (C, H, W); elements outside of their bounds.
    cancelled : number of elements that are more than two units in the last place away, but within the error
        of the binary32 roundings of the array's partial sums, which is large where terms cancel.
    """

    meaning: Meaning
    wrong: npt.NDArray[np.bool_]
    cancelled: int = 0

    @property
    def right(self) -> bool:
        """Whether every element is within its bound."""
        return not self.wrong.any()


def judge(plan: FilePlan, index: int, cubes: Sequence[Cube], actual: Cube) -> Judgement:
    """Compare a step's output `actual` with its value; for the other parameters and errors see `meaning`."""
    found = meaning(plan, index, cubes)
    wrong = beyond(actual, found)
    if not wrong.any() or actual.dtype != np.float16:
        return Judgement(found, wrong)
    step = plan.steps[index]
    assert isinstance(step, FileStep)
    slack = _Node(plan, index, step, cubes).cancellation()
    still = wrong & beyond(actual, Meaning(found.values, found.bound + slack))
    return Judgement(found, still, int(wrong.sum() - still.sum()))


def beyond(actual: Cube, judged: Meaning) -> npt.NDArray[np.bool_]:
    """Return which elements of an output are outside of their bounds, bool (C, H, W)."""
    got = actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(got - judged.values) <= judged.bound)
    if actual.dtype == np.float16:  # infinity is right where the value is out of range
        wrong &= ~(np.isinf(got) & (np.sign(got) == np.sign(judged.values)) & (np.abs(judged.values) > 65487))
    return wrong


class _Node:
    """Evaluation of one step from the registers of its main task and its operands."""

    def __init__(self, plan: FilePlan, index: int, step: FileStep, cubes: Sequence[Cube]) -> None:
        self.plan, self.step, self.cubes = plan, step, cubes
        self.file, self.node = plan.file, plan.file.nodes[step.nodes[-1]]
        self.tasks = [task for task in plan.tasks if task.layer == index]
        self.main = self._main()
        self.registers = values_of(self.main.settings)
        self.real = step.output.real
        self.absolute = self.alone = False
        """Whether absolute values are computed; whether one task is evaluated, at its own addresses."""
        self.error: Any = 0.0
        """Largest accumulated error of integer rounding, in units of the value; (C, 1, 1) or a scalar."""

    def _main(self) -> Task:
        """Return the first task that writes to the output, not one that only loads a table or ends a part."""
        found = next(filter(self._writes, self.tasks), None)
        if found is None:
            raise NotJudged("no task writes its output directly")
        return found

    def _writes(self, task: Task) -> bool:
        """Return whether a task writes to the node's output."""
        place = self.plan.places[self.plan.graph.root(self.step.output.name)]
        ref = self._ref(task, "PPU" if "PPU" in task.blocks else "DPU", "DST_BASE_ADDR")
        if ref is None or ref.region != place.ref.region:
            return False
        return place.ref.offset <= ref.offset < place.ref.offset + place.size

    @staticmethod
    def _ref(task: Task, block: str, register: str) -> Ref | None:
        found = None
        for setting in task.settings:
            if (setting.block, setting.register) == (block, register):
                found = next((v for v in setting.fields.values() if isinstance(v, Ref)), None)
        return found

    def _lowest(self, block: str, register: str) -> Ref:
        """Return the start of an operand of the whole node: the lowest address in the tasks' registers."""
        tasks = [self.main] if self.alone else self.tasks
        refs = [ref for task in tasks if (ref := self._ref(task, block, register))]
        refs = [ref for ref in refs if ref.region == "weights"]
        if not refs:
            raise NotJudged(f"{block}.{register} names no constant")
        return min(refs, key=lambda ref: ref.offset)

    def get(self, block: str, register: str, name: str | None = None) -> int:
        """Return a register field of the main task."""
        return field_of(self.registers, block, register, name or register)

    def signed(self, block: str, register: str, name: str | None = None, bits: int = 32) -> int:
        """Return a register field as a signed number of `bits` bits."""
        value = self.get(block, register, name) & (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value

    def meaning(self) -> tuple[Real, Any]:
        """Return the output's values and the largest error of roundings or of a table."""
        found = self._values()
        return found if isinstance(found, tuple) else (found, 0.0 if self.real else self.error)

    def _values(self) -> Real | tuple[Real, Any]:
        if self.step.output.name in [tensor.name for tensor in self.step.inputs]:
            raise NotJudged("it changes its input in place")
        if self.node.type == "Concat" and self.node.attributes.get("axis"):
            self._reshape_inputs()
            return self._concatenated()
        if self.node.type == "Expand" and len(self.cubes) == 1:
            return self._expanded()
        parts = [(task.blocks, self._registers_of(task)) for task in self.tasks]
        if self.node.type == "exSDPAttention":
            return attention(self, parts)
        if self.node.type == "exNorm":
            return normalised(self, parts)
        if self.node.type == "exSoftmax13":
            return softmax(self)
        if self.node.type == "exMatMul":
            return product(self)
        if self.node.type == "exDataConvert":
            return converted(self)
        if self.node.type in ("Transpose", "Reshape", "Resize") and not self.file.ours:
            return to_cube(self._moved(), self.step.output).astype(np.float64)
        if "PPU" in self.main.blocks and "DPU" not in self.main.blocks:
            return self._pool()
        if "PPU" in self.main.blocks:
            raise NotJudged("its convolution is followed by a pooling in the same task")
        if "CNA" in self.main.blocks:
            self._reshape_inputs()
            shape = self.step.inputs[0].shape
            if len(shape) == 4 and shape[0] > 1:
                return self._samples()
            return self._rescaled(*self._dpu(self._convolution()))
        if self.get("DPU", "FEATURE_MODE_CFG", "TP_EN"):
            raise NotJudged("its tasks move packets")
        return self._element_wise()

    # nodes that only move elements

    def _reshape_inputs(self) -> None:
        """Give the inputs the shapes that they have behind preceding Reshape nodes without tasks.

        The elements keep their order in the tensors' own shapes, as the operator says. The comparison shows
        whether the bytes in memory are then those that the node reads.
        """
        before = [self.file.nodes[number] for number in self.step.nodes[:-1]]
        if not before:
            return
        if others := [node.type for node in before if node.type != "Reshape"]:
            raise NotJudged(f"{others[0]} without tasks precedes it")
        read = [self.file.tensors[n] for n in self.node.inputs if self.file.tensors[n].activation]
        if len(read) != len(self.cubes):
            raise NotJudged("a Reshape without tasks precedes it")
        inputs = [graph_tensor(tensor, tensor.name) for tensor in read]
        pairs = zip(self.cubes, self.step.inputs, inputs, strict=True)
        self.cubes = [to_cube(from_cube(cube, x).reshape(y.shape), y) for cube, x, y in pairs]
        self.step = replace(self.step, inputs=tuple(inputs), nodes=self.step.nodes[-1:])

    def _moved(self) -> Cube:
        """Return the elements in the output's shape."""
        array = from_cube(self.cubes[0], self.step.inputs[0])
        for number in self.step.nodes:
            node = self.file.nodes[number]
            shape = self.file.tensors[node.outputs[0]].shape
            if node.type == "Transpose":
                array = array.transpose(permutation(node, self._as_tensor(array)))
            elif node.type == "Reshape":
                array = array.reshape(shape)
            elif node.type == "Resize":
                array = self._resized(array, shape)
            else:
                raise NotJudged(f"{node.type} without tasks")
        if array.shape != self.step.output.shape:
            raise NotJudged(f"its output has the shape {array.shape}, in the file {self.step.output.shape}")
        return array

    def _as_tensor(self, array: Cube) -> Tensor:
        return Tensor("", array.shape, 1.0, 0, (1, 1, 1))

    def _concatenated(self) -> Real:
        """Return the concatenation of the inputs, converted to the output's quantisation."""
        y, axis = self.step.output, int(self.node.attributes["axis"]) - 1
        parts = [
            (cube.astype(np.float64) - x.zero_point) * (x.scale / y.scale) + y.zero_point
            for cube, x in zip(self.cubes, self.step.inputs, strict=True)
        ]
        try:
            whole = np.concatenate(parts, axis=axis)
        except ValueError as error:
            raise NotJudged(str(error)) from error
        if whole.shape != y.cube:
            raise NotJudged(f"its inputs together have the shape {whole.shape}, its output {y.cube}")
        return whole

    def _expanded(self) -> Real:
        """Return the input, repeated to the output's shape and converted to its quantisation."""
        x, y = self.step.inputs[0], self.step.output
        real = (from_cube(self.cubes[0], x).astype(np.float64) - x.zero_point) * (x.scale / y.scale)
        try:
            whole = np.broadcast_to(real + y.zero_point, y.shape)
        except ValueError as error:
            raise NotJudged(str(error)) from error
        return to_cube(np.ascontiguousarray(whole), y)

    @staticmethod
    def _resized(array: Cube, shape: tuple[int, ...]) -> Cube:
        if len(shape) != 4 or shape[2] % array.shape[2] or shape[3] % array.shape[3]:
            raise NotJudged(f"a resize from {array.shape} to {shape}")
        return array.repeat(shape[2] // array.shape[2], 2).repeat(shape[3] // array.shape[3], 3)

    # element-wise tasks

    def _element_wise(self) -> tuple[Real, Any]:
        """Return the values that the node's element-wise tasks write, each task at the addresses it has."""
        y = self.step.output
        target = self._elements(y)
        values, bound = np.full(y.elements, np.nan), np.zeros(y.elements)
        wide: tuple[_Node, Real, Any] | None = None
        for task in self.tasks:
            if not self._writes(task):
                continue
            if set(task.blocks) - {"DPU", "DPU_RDMA"}:
                raise NotJudged("its element-wise tasks follow others")
            part = self._of_task(task)
            if wide and part._ref(task, "DPU_RDMA", "SRC_BASE_ADDR") == part._ref(
                wide[0].main, "DPU", "DST_BASE_ADDR"
            ):
                found, extra = part._of_wide(*wide[1:])
            else:
                found, extra = part._dpu(part.gathered())
            if self.real and part.get("DPU", "DATA_FORMAT", "OUT_PRECISION") == FP32.dpu_code:
                wide = part, found, extra
                continue
            where = part._addresses("DST_BASE_ADDR", target)
            kept = where >= 0
            values[where[kept]] = found[kept]
            bound[where[kept]] = np.broadcast_to(extra, found.shape)[kept]
        if missing := int(np.isnan(values).sum()):
            raise NotJudged(f"{missing:,} of its {values.size:,} elements follow from nothing that it reads")
        return values.reshape(y.cube), bound.reshape(y.cube)

    def _of_task(self, task: Task) -> _Node:
        """Return the evaluation of one of the node's tasks alone, on the elements at its own addresses."""
        part = copy(self)
        part.main, part.registers, part.error, part.alone = task, values_of(task.settings), 0.0, True
        for block, register in (("BS_OW_CFG", "TP_ORG_EN"), ("FEATURE_MODE_CFG", "TP_EN")):
            if part.get("DPU", block, register):
                raise NotJudged("its tasks move packets")
        if part.get("DPU_RDMA", "SRC_DMA_CFG", "UNPOOLING_EN"):
            raise NotJudged("its tasks repeat pixels")
        if not part.get("DPU", "FEATURE_MODE_CFG", "FLYING_MODE"):
            raise NotJudged("its tasks take no cube from memory")
        return part

    def _registers_of(self, task: Task) -> _Node:
        part = copy(self)
        part.main, part.registers = task, values_of(task.settings)
        return part

    def _elements(self, tensor: Tensor) -> tuple[Ref, npt.NDArray[np.int64]]:
        """Return the place of a tensor, and the index in its cube of each element in memory; -1 in gaps."""
        place = self.plan.place(tensor.name)
        if place.argb:
            raise NotJudged(f"'{tensor.name}' has packed pixels")
        numbers = np.arange(1, math.prod(place.cube) + 1, dtype=np.float64).reshape(place.cube)
        return place.ref, place.pack(numbers).view(np.float64).astype(np.int64) - 1

    def _cube(self) -> tuple[int, int, int]:
        """Return surfaces, rows and columns of the task's cube; those of DPU and DPU_RDMA must be equal."""
        sizes = [
            tuple(
                self.get(block, f"DATA_CUBE_{name}", field) + 1
                for name, field in (("CHANNEL", "CHANNEL"), ("HEIGHT", "HEIGHT"), ("WIDTH", "WIDTH"))
            )
            for block in ("DPU", "DPU_RDMA")
        ]
        if sizes[0] != sizes[1]:
            raise NotJudged(f"its tasks read cubes of {sizes[1]} and write cubes of {sizes[0]}")
        channels, height, width = sizes[0]
        return -(-channels // self._lanes), height, width

    @property
    def _lanes(self) -> int:
        return ATOM // self.step.output.itemsize

    def _addresses(self, register: str, memory: tuple[Ref, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """Return the index of each element (channels, rows, columns) of the task's cube in a tensor's cube.

        Parameters
        ----------
        register
            Register of the cube's address [HW 7.11] [HW 8.2] [HW 8.4].
        memory
            See `_elements`.
        """
        surfaces, height, width = self._cube()
        s = np.arange(surfaces)

        def rdma(name: str, field: str | None = None) -> int:
            return (
                self.signed("DPU_RDMA", name, field) if field is None else self.get("DPU_RDMA", name, field)
            )

        pixel = 1
        if register == "DST_BASE_ADDR":
            series = self.get("DPU", "BS_OW_CFG", "SIZE_E_1") + 1
            line = width + self.get("DPU", "DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
            add, stride = self.signed("DPU", "SURFACE_ADD", "SURF_ADD"), self.signed("DPU", "DST_SURF_STRIDE")
            at = s // series * add + s % series * stride
        elif register == "SRC_BASE_ADDR":
            line = width + rdma("SRC_DMA_CFG", "LINE_NOTCH_ADDR")
            notch = self.signed("DPU_RDMA", "SURF_NOTCH", "SURF_NOTCH_ADDR")
            at = s * ((height - 1) * line + width + notch)
        elif rdma("ERDMA_CFG", "ERDMA_DATA_MODE"):
            line = width + rdma("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
            at = s * ((height - 1) * line + width + rdma("EW_SURF_NOTCH"))
        else:
            line = pixel = 0
            at = s * rdma("EW_SURF_STRIDE")
        ref = self._ref(self.main, "DPU" if register == "DST_BASE_ADDR" else "DPU_RDMA", register)
        base, held = memory
        if ref is None or ref.region != base.region:
            raise NotJudged(f"{register} names no tensor")
        atoms = at[:, None, None] + np.arange(height)[:, None] * line + np.arange(width) * pixel
        first = (ref.offset - base.offset) // self.step.output.itemsize
        places = first + atoms[:, :, :, None] * self._lanes + np.arange(self._lanes)
        inside = (places >= 0) & (places < held.size)
        found = np.where(inside, held[np.where(inside, places, 0)], -1)
        return found.transpose(0, 3, 1, 2).reshape(surfaces * self._lanes, height, width)

    def gathered(self, register: str = "SRC_BASE_ADDR") -> Real:
        """Return the elements that a reader of the task delivers, float64; NaN where a tensor has a gap."""
        ref = self._ref(self.main, "DPU_RDMA", register)
        for tensor, cube in zip(self.step.inputs, self.cubes, strict=True):
            place = self.plan.place(tensor.name)
            if ref is None or ref.region != place.ref.region:
                continue
            if 0 <= ref.offset - place.ref.offset < place.size:
                if tensor.itemsize != self.step.output.itemsize:
                    raise NotJudged("its tasks read and write elements of different sizes")
                where = self._addresses(register, self._elements(tensor))
                flat = cube.astype(np.float64).reshape(-1)
                return np.where(where >= 0, flat[np.maximum(where, 0)], np.nan)
        if ref is not None and ref.region == "weights":
            return self._constants_at(register, ref)
        if ref is not None and (found := self._repeated(register, ref)) is not None:
            return found
        if ref is not None and self._within(self.step.output, ref):
            surfaces, height, width = self._cube()
            return np.full((surfaces * self._lanes, height, width), np.nan)
        raise NotJudged(f"{register} of its task names none of its inputs")

    def _within(self, tensor: Tensor, ref: Ref) -> bool:
        """Return whether an address lies in a tensor."""
        place = self.plan.places[self.plan.graph.root(tensor.name)]
        return ref.region == place.ref.region and 0 <= ref.offset - place.ref.offset < place.size

    def _constants_at(self, register: str, ref: Ref) -> Real:
        """Return constants that a reader of the task delivers, of the output's type."""
        item = self.step.output.itemsize
        whole = len(self.plan.weights) // item * item
        held = np.frombuffer(bytes(self.plan.weights[:whole]), self.step.output.dtype)
        where = self._addresses(register, (replace(ref, offset=0), np.arange(held.size)))
        if (where < 0).any():
            raise NotJudged(f"the constants at {register} end before its cube")
        return held[where].astype(np.float64)

    def _repeated(self, register: str, ref: Ref) -> Real | None:
        """Return an operand of fp16 that a convolution of the node has repeated into scratch memory.

        An operand with one row or column is repeated by a depthwise convolution of one tap, whose factors are
        1, with a stride of 0 [HW 5.4]. None if no task of the node has written at the address.
        """
        for task in self.tasks:
            if "CNA" not in task.blocks or self._ref(task, "DPU", "DST_BASE_ADDR") != ref:
                continue
            part = copy(self)
            part.main, part.registers = task, values_of(task.settings)
            source = part._ref(task, "CNA", "FEATURE_DATA_ADDR")
            cubes = [
                cube
                for tensor, cube in zip(self.step.inputs, self.cubes, strict=True)
                if self.plan.place(tensor.name).ref == source
            ]
            size = part.get("CNA", "WEIGHT_SIZE2", "WEIGHT_WIDTH") * part.get(
                "CNA", "WEIGHT_SIZE2", "WEIGHT_HEIGHT"
            )
            depthwise = part.get("CNA", "CONV_CON1", "CONV_MODE") == DEPTHWISE
            if not self.real or not cubes or not depthwise or size != 1:
                raise NotJudged("a convolution prepares its operand")
            factors = part._lowest("CNA", "DCOMP_ADDR0").offset
            count = cubes[0].shape[0]
            if set(np.frombuffer(bytes(self.plan.weights[factors:])[: 2 * count], "<f2").tolist()) != {1.0}:
                raise NotJudged("a convolution scales its operand")
            rows, columns = (part.get("DPU", f"DATA_CUBE_{name}", name) + 1 for name in ("HEIGHT", "WIDTH"))
            pitch = part.signed("DPU", "DST_SURF_STRIDE")
            whole = np.broadcast_to(cubes[0].astype(np.float64), (count, rows, columns))
            return self._from_surfaces(register, ref, whole, pitch)
        return None

    def _from_surfaces(self, register: str, ref: Ref, cube: Real, pitch: int) -> Real:
        """Return what a reader of the task delivers from a cube whose surfaces are `pitch` atoms apart."""
        channels, height, width = cube.shape
        surfaces = -(-channels // self._lanes)
        if pitch < height * width or surfaces * pitch > 1 << 24:
            raise NotJudged(f"its operand has surfaces {pitch} atoms apart")
        full = np.full((surfaces * self._lanes, height, width), np.nan)
        full[:channels] = cube
        memory = np.full((surfaces, pitch, self._lanes), np.nan)
        memory[:, : height * width] = full.reshape(surfaces, self._lanes, -1).transpose(0, 2, 1)
        where = self._addresses(register, (ref, np.arange(memory.size)))
        return np.where(where >= 0, memory.reshape(-1)[np.maximum(where, 0)], np.nan)

    # windows

    def _window(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return kernel, strides, pads (top, left, bottom, right) and dilations.

        Those of a transposed convolution are the ones after pixels have been inserted [HW 5.6].
        """
        given = self.node.attributes

        def pair(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(given.get(name) or default)

        kernel = pair("kernel_shape", ())
        if len(kernel) != 2:
            raise NotJudged("it has no kernel of two dimensions")
        found = kernel, pair("strides", (1, 1)), pair("pads", (0,) * 4), pair("dilations", (1, 1))
        if [len(part) for part in found] != [2, 2, 4, 2] or min(found[1] + found[3] + kernel) < 1:
            raise NotJudged(f"its window is {found}")
        if self._transposed:
            reach = [(k - 1) * d for k, d in zip(kernel, found[3], strict=True)]
            pads = tuple(reach[n % 2] - pad for n, pad in enumerate(found[2]))
            if min(pads) < 0:
                raise NotJudged(f"its window is {found}")
            return kernel, (1, 1), pads, found[3]
        return found

    @property
    def _transposed(self) -> bool:
        return "CNA" in self.main.blocks and bool(self.get("CNA", "CONV_CON1", "DECONV"))

    def _taps(self, cube: Real, fill: float) -> tuple[Real, tuple[int, int]]:
        """Return the padded input, and the rows and columns of the output."""
        kernel, strides, pads, dilations = self._window()
        _, rows, columns = self.step.output.cube
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        height = max((rows - 1) * strides[0] + reach[0], pads[0] + cube.shape[1])
        width = max((columns - 1) * strides[1] + reach[1], pads[1] + cube.shape[2])
        if height > 1 << 14 or width > 1 << 14:
            raise NotJudged(f"its window needs {height} x {width} elements")
        padded = np.full((cube.shape[0], height, width), fill)
        padded[:, pads[0] : pads[0] + cube.shape[1], pads[1] : pads[1] + cube.shape[2]] = cube
        return padded, (rows, columns)

    def _slice(self, padded: Real, y: int, x: int, size: tuple[int, int]) -> Real:
        _, strides, _, dilations = self._window()
        top, left = y * dilations[0], x * dilations[1]
        rows = slice(top, top + (size[0] - 1) * strides[0] + 1, strides[0])
        return padded[:, rows, left : left + (size[1] - 1) * strides[1] + 1 : strides[1]]

    def _pool(self) -> Real:
        kernel = self._window()[0]
        method = self.get("PPU", "OPERATION_MODE_CFG", "POOLING_METHOD")
        if method not in (0, 1):
            raise NotJudged(f"pooling method {method}")
        padded, size = self._taps(self.cubes[0].astype(np.float64), -np.inf if method else 0.0)
        taps = [self._slice(padded, y, x, size) for y in range(kernel[0]) for x in range(kernel[1])]
        if method:
            return np.maximum.reduce(taps)
        pads = self._window()[2]
        if any(pads) and self.node.attributes.get("count_include_pad") == 0 and not self.file.ours:
            raise NotJudged("it is an average without the padding")
        return np.add.reduce(taps) / len(taps)

    # convolutions

    def _pad_value(self) -> float:
        if self.real:
            return float(np.uint16(self.get("CNA", "PAD_CON1", "PAD_VALUE") & 0xFFFF).view(np.float16))
        return float(self.signed("CNA", "PAD_CON1", "PAD_VALUE", 8))

    def _samples(self) -> tuple[Real, Any]:
        """Return the values of a convolution of several samples, which follow each other in memory."""
        x, y = self.step.inputs[0], self.step.output
        if len(y.shape) != 4 or y.shape[0] != x.shape[0] or len(self.cubes) != 1:
            raise NotJudged(f"{x.shape} to {y.shape} is no convolution of {x.shape[0]} samples")
        operands = {self._ref(task, "CNA", "DCOMP_ADDR0") for task in self.tasks if "CNA" in task.blocks}
        if len(operands) != 1:
            raise NotJudged("its samples have different weights")
        _, *own = y.shape
        values, bounds = [], []
        for sample in from_cube(self.cubes[0], x):
            part = copy(self)
            part.cubes, part.error = [sample], 0.0
            part.step = replace(self.step, output=replace(y, shape=(1, *own), cube=(own[0], own[1], own[2])))
            found, extra = part._dpu(part._convolution())
            values.append(found)
            bounds.append(np.broadcast_to(extra, found.shape))
        return to_cube(np.stack(values), y), to_cube(np.stack(bounds), y)

    def _convolution(self) -> Real:
        """Return the sums of the array with the part of CPEND, float64 (kernels, rows, columns)."""
        tensors = weights_of(self.file, self.step)
        if not tensors:
            raise NotJudged("it has no weights")
        if not self.get("CNA", "CVT_CON0", "CVT_BYPASS") and not self.step.inputs[0].unsigned:
            raise NotJudged("its input converter is enabled")
        w = step_weights(self.file, self.step)
        depthwise = self.get("CNA", "CONV_CON1", "CONV_MODE") == 3
        x, w = self.cubes[0].astype(np.float64), w.astype(np.float64)
        w = np.abs(w) if self.absolute else w
        if self._transposed:
            x = self._spread(x)
        elif not self.real and not depthwise:
            x, w = self._with_padded_channels(x, w)
        if w.shape[1] not in (1, x.shape[0]) or w.shape[0] != self.step.output.cube[0]:
            raise NotJudged(
                f"weights {w.shape} do not match input {x.shape} and output {self.step.output.cube}"
            )
        padded, size = self._taps(x, self._pad_value())
        total = np.zeros((w.shape[0], *size))
        window = np.zeros((x.shape[0] if depthwise else 1, *size))
        for y in range(w.shape[2]):
            for z in range(w.shape[3]):
                part = self._slice(padded, y, z, size)
                if depthwise:
                    total += w[:, 0, y, z][:, None, None] * part
                    window += part
                else:
                    total += np.tensordot(w[:, :, y, z], part, axes=(1, 0))
                    window += part.sum(0, keepdims=True)
        if self.real or self.get("DPU", "BS_OW_CFG", "OD_BYPASS"):
            return total if self.real else total / 2.0 ** self.get("CORE", "CLIP_TRUNCATE")
        if self.get("DPU", "BS_OW_CFG", "OW_SRC"):
            zero = self._channels("BS", "cpend")
        else:
            zero = np.full((1, 1, 1), float(self.signed("DPU", "BS_OW_OP", "OW_OP", 16)))
        return (total + window * zero) / 2.0 ** self.get("CORE", "CLIP_TRUNCATE")

    def _with_padded_channels(self, x: Real, w: Real) -> tuple[Real, Real]:
        """Add the channels up to DATAIN_CHANNEL that the model does not have: 0 in memory, and the pad value
        beyond its border [HW 5.5].

        CPEND counts them as well. Toolkits from 1.3 on fill their weights with the kernel's zero point, so
        that they cancel; toolkit 1.2 leaves zeros, so that results at a border are not those of the model.
        """
        tensors = weights_of(self.file, self.step)
        count = self.get("CNA", "DATA_SIZE1", "DATAIN_CHANNEL") - x.shape[0]
        if count <= 0 or any(tensor.segments for tensor in tensors) or w.shape[1] != x.shape[0]:
            return x, w
        wide = [
            replace(tensor, shape=(tensor.shape[0], tensor.shape[1] + count, *tensor.shape[2:]))
            for tensor in tensors
        ]
        more = np.concatenate([weights(tensor, 1) for tensor in wide])[:, x.shape[0] :].astype(np.float64)
        more = np.abs(more) if self.absolute else more
        return np.concatenate([x, np.zeros((count, *x.shape[1:]))]), np.concatenate([w, more], axis=1)

    def cancellation(self) -> Any:
        """Return the largest error of rounding partial sums to binary32, once for each weight tile.

        Each rounding error is at most half a unit in the last place of a partial sum, which is not larger
        than the sum of all absolute terms.
        """
        if "CNA" not in self.main.blocks:
            return 0.0
        self._reshape_inputs()
        tensors = weights_of(self.file, self.step)
        channels = 1 if self.get("CNA", "CONV_CON1", "CONV_MODE") == 3 else self.cubes[0].shape[0]
        tiles = -(-channels // 32) * math.prod(tensors[0].shape[2:])
        self.cubes = [np.abs(cube) for cube in self.cubes]
        self.absolute = True
        return tiles * 2.0**-24 * self._convolution()

    def _spread(self, x: Real) -> Real:
        """Insert the pad value between the pixels of a transposed convolution [HW 5.6]."""
        steps = [self.get("CNA", "CONV_CON3", f"DECONV_{axis}_STRIDE") + 1 for axis in "YX"]
        sizes = [(size - 1) * step + 1 for size, step in zip(x.shape[1:], steps, strict=True)]
        wide = np.full((x.shape[0], *sizes), self._pad_value())
        wide[:, :: steps[0], :: steps[1]] = x
        return wide

    # the output stages

    def _channels(self, stage: str, part: str) -> Real:
        """Return one part of a stage's operand block, float64 (channels, 1, 1)."""
        client = "BRDMA" if stage == "BS" else "NRDMA"
        use = self.get("DPU_RDMA", f"{client}_CFG", f"{client}_DATA_USE")
        kinds = {"alu": np.dtype("<f4" if self.real else "<i4"), "cpend": np.dtype("<i2")}
        kinds["mul"] = np.dtype("<u2" if self.real else "<i2")
        fields = [name for bit, name in enumerate(kinds) if use >> bit & 1]
        if part not in fields or self.get("DPU_RDMA", f"{client}_CFG", f"{client}_DISABLE"):
            raise NotJudged(f"{stage} needs '{part}' operands, which its operand block does not have")
        block = np.dtype([(name, kinds[name], (8,)) for name in fields])
        count = self._cube()[0] * self._lanes if self.alone else self.step.output.cube[0]
        start = self._lowest("DPU_RDMA", f"{stage}_BASE_ADDR").offset
        size = -(-count // 8) * block.itemsize
        data = bytes(self.plan.weights[start : start + size])
        if len(data) < size:
            raise NotJudged(f"its operand block has {len(data)} bytes of {size}")
        words = np.frombuffer(data, block)[part].reshape(-1)[:count]
        if part == "mul" and self.real:
            words = self._half(words)
        return words.astype(np.float64)[:, None, None]

    @property
    def _floats(self) -> bool:
        """Whether the DPU computes with floating-point numbers, with which 0 times a NaN is a NaN."""
        return self.get("DPU", "DATA_FORMAT", "PROC_PRECISION") in FLOAT_CODES

    def _half(self, words: npt.NDArray[np.uint16]) -> npt.NDArray[Any]:
        """Return factors of 16 bits as numbers: bf16 with PROC_PRECISION 3, else fp16 [HW 7.5.5]."""
        if self.get("DPU", "DATA_FORMAT", "PROC_PRECISION") == BF16.dpu_code:
            return (words.astype(np.uint32) << 16).view(np.float32)
        return words.astype(np.uint16).view(np.float16)

    def _rounded(self, factor: Any, shift: float) -> None:
        """Update the error for a product with a factor and the rounding of its shift."""
        self.error = self.error * np.abs(factor) / 2.0**shift + (0.5 if shift else 0.0)

    def _dpu(self, v: Real) -> tuple[Real, Any]:
        """Return what the output stages make of values, with the largest error of roundings or of a table."""
        found = self._stages(v)
        return found if isinstance(found, tuple) else (found, 0.0 if self.real else self.error)

    def _stages(self, v: Real) -> Real | tuple[Real, Any]:
        for stage in ("BS", "BN"):
            if not self.get("DPU", f"{stage}_CFG", f"{stage}_BYPASS"):
                v = self._stage(stage, v)
        if self.get("DPU", "EW_CFG", "EW_BYPASS"):
            return self._converted(v)
        if not self.get("DPU", "EW_CFG", "EW_LUT_BYPASS"):
            return self._function(v)
        if not self.get("DPU", "EW_CFG", "EW_OP_BYPASS"):
            v = self._operation(v)
        return self._converted(self._limits("EW", v))

    def _stage(self, stage: str, v: Real) -> Real:
        """Apply ALU, multiplier and limits of a stage: BS adds first, BN multiplies first."""
        cfg = f"{stage}_CFG"
        order = ["alu", "mul"] if stage == "BS" else ["mul", "alu"]
        for part in order:
            if self.get("DPU", cfg, f"{stage}_{part.upper()}_BYPASS"):
                continue
            v = self._added(stage, v) if part == "alu" else self._multiplied(stage, v)
        return self._limits(stage, v)

    def _added(self, stage: str, v: Real) -> Real:
        if self.get("DPU", f"{stage}_CFG", f"{stage}_ALU_SRC"):
            operand: Any = self._channels(stage, "alu")
        else:
            operand = self._number(self.get("DPU", f"{stage}_ALU_CFG", f"{stage}_ALU_OPERAND"))
        algorithm = self.get("DPU", f"{stage}_CFG", f"{stage}_ALU_ALGO")
        if algorithm not in (2, 4):
            raise NotJudged(f"{stage} uses algorithm {algorithm}")
        if stage == "BN" and not self.real and not self.get("DPU", "BN_CFG", "BN_MUL_BYPASS"):
            down = self.get("DPU", "BN_MUL_CFG", "BN_MUL_SHIFT_VALUE")  # of the sum [HW 7.7]
            if down != self.get("DPU", "DATA_FORMAT", "BN_MUL_SHIFT_VALUE_NEG"):
                raise NotJudged("BN shifts sums of different signs differently")
            if self.get("DPU", "BN_CFG", "BN_MUL_PRELU"):
                raise NotJudged("BN multiplies negative values alone and adds")
            operand = operand / 2.0**down
        return v - operand if algorithm == 4 else v + operand

    def _multiplied(self, stage: str, v: Real) -> Real:
        register = f"{stage}_MUL_CFG"
        if self.get("DPU", register, f"{stage}_MUL_SRC"):
            factor: Any = self._channels(stage, "mul")
        elif self.real:
            bits = self.get("DPU", register, f"{stage}_MUL_OPERAND") & 0xFFFF
            factor = float(self._half(np.array([bits], np.uint16))[0])
        else:
            factor = self.signed("DPU", register, f"{stage}_MUL_OPERAND", 16)
        product = v * factor
        if np.ndim(factor) == 0 and factor == 0 and not self._floats:
            product = np.zeros_like(v)  # of any operand, also of memory that holds nothing yet
        if not self.real:
            down = self.get("DPU", register, f"{stage}_MUL_SHIFT_VALUE")
            negative = self.get("DPU", "DATA_FORMAT", f"{stage}_MUL_SHIFT_VALUE_NEG")
            before = self.error
            self._rounded(factor, min(down, negative))
            if self.get("DPU", f"{stage}_CFG", f"{stage}_MUL_PRELU"):
                self.error = np.maximum(self.error, before)
            product = np.where(product < 0, product / 2.0**negative, product / 2.0**down)
        if self.get("DPU", f"{stage}_CFG", f"{stage}_MUL_PRELU"):
            return np.where(v >= 0, v, product)
        return product

    def _limits(self, stage: str, v: Real) -> Real:
        cfg = f"{stage}_CFG"
        if not self.get("DPU", cfg, f"{stage}_RELU_BYPASS"):
            v = np.maximum(v, 0.0)
        if self.get("DPU", cfg, f"{stage}_RELUX_EN"):
            limit = self.get("DPU", f"{stage}_RELUX_CMP_VALUE", f"{stage}_RELUX_CMP_DAT")
            v = np.minimum(v, self._number(limit))
        return v

    def _number(self, bits: int) -> float:
        """Return the value of a 32-bit operand: binary32 for fp16 layers, else signed."""
        bits &= 0xFFFF_FFFF
        if self.real:
            return float(np.uint32(bits).view(np.float32))
        return float(bits - (1 << 32) if bits >> 31 else bits)

    def _operand(self) -> Real:
        """Return the second operand of EW after its converter."""
        tasks = [self.main] if self.alone else self.tasks
        refs = [ref for task in tasks if (ref := self._ref(task, "DPU_RDMA", "EW_BASE_ADDR"))]
        if not self.get("DPU", "EW_CFG", "EW_OP_SRC"):
            return np.full((1, 1, 1), self._number(self._register_operand()))
        if not refs:
            raise NotJudged("EW has no operand in memory")
        found = self.gathered("EW_BASE_ADDR") if self.alone and refs[0].region == "activations" else None
        for tensor, cube in zip(self.step.inputs, self.cubes, strict=True):
            place = self.plan.place(tensor.name)
            if found is None and any(
                ref.region == place.ref.region and 0 <= ref.offset - place.ref.offset < place.size
                for ref in refs
            ):
                found = cube.astype(np.float64)
        if found is None:
            found = self._constant_operand(refs)
        if self.real or self.get("DPU", "EW_CFG", "EW_OP_CVT_BYPASS"):
            return found
        if self.get("DPU", "EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT"):
            self.error = self.error + 0.5
        scale = self.signed("DPU", "EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE", 16)
        offset = self.signed("DPU", "EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET")
        shift = 2.0 ** self.get("DPU", "EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT")
        if self.get("DPU", "EW_CFG", "EW_CVT_TYPE"):
            return (found + offset) * scale / shift
        return (found * scale + offset) / shift

    def _register_operand(self) -> int:
        """Return the operand of EW that all its registers hold, 32 bits."""
        if self.get("DPU", "EW_CFG", "EW_OP_TYPE"):
            raise NotJudged("EW multiplies by operands from registers")
        bits = {self.get("DPU", f"EW_OP_VALUE_{n}", f"EW_OPERAND_{n}") & 0xFFFF_FFFF for n in range(8)}
        if len(bits) > 1:
            raise NotJudged("EW takes different operands from its registers")
        return bits.pop()

    def _constant_operand(self, refs: Sequence[Ref]) -> Real:
        """Return the second operand of EW if it is a constant of the output's type."""
        start = min((ref.offset for ref in refs if ref.region == "weights"), default=-1)
        size = self.get("DPU", "EW_CFG", "EDATA_SIZE")
        if start < 0 or size != (2 if self.real else 1):
            raise NotJudged("the operand of EW is a constant of another type")
        if self.alone:
            whole = len(self.plan.weights) // size * size
            held = np.frombuffer(bytes(self.plan.weights[:whole]), self.step.output.dtype)
            where = self._addresses("EW_BASE_ADDR", (replace(refs[0], offset=0), np.arange(held.size)))
            if (where < 0).any():
                raise NotJudged("the operand of EW ends before its cube")
            return held[where].astype(np.float64)
        per_channel = self.get("DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_MODE") == 0
        channels, height, width = self.step.output.cube
        cube = (channels, 1, 1) if per_channel else (channels, height, width)
        data = np.frombuffer(bytes(self.plan.weights[start:]), np.uint8)
        try:
            return unpack_feature(data, cube, self.step.output.dtype).astype(np.float64)
        except ValueError as error:
            raise NotJudged(str(error)) from error

    def _operation(self, v: Real) -> Real:
        operand = self._operand()
        if self.get("DPU", "EW_CFG", "EW_OP_TYPE"):
            product = v * operand
            if not self.real:
                down = self.get("DPU", "EW_CVT_SCALE_VALUE", "EW_TRUNCATE") % 64
                negative = self.get("DPU", "DATA_FORMAT", "EW_TRUNCATE_NEG") % 64
                self._rounded(128.0, min(down, negative))
                product = np.where(product < 0, product / 2.0**negative, product / 2.0**down)
            return np.where(v >= 0, v, product) if self.get("DPU", "EW_CFG", "EW_MUL_PRELU") else product
        return self._combined(v, operand)

    def _combined(self, v: Real, operand: Real) -> Real:
        """Apply the ALU of EW."""
        algorithm = self.get("DPU", "EW_CFG", "EW_ALU_ALGO")
        done = {0: np.maximum, 1: np.minimum, 2: np.add, 4: np.subtract}
        raw = not self.get("DPU_RDMA", "FEATURE_MODE_CFG", "MRDMA_FP16TOFP32_EN")
        if self.real and raw and not self.get("DPU", "OUT_CVT_SCALE", "FP32TOFP16_EN"):
            done[3] = np.divide  # of fp16 bits [HW 7.8.10]
        if algorithm not in done:
            raise NotJudged(f"EW uses algorithm {algorithm}")
        return done[algorithm](v, operand)

    def _converted(self, v: Real) -> Real:
        if self.real:
            return v
        shift = self.get("DPU", "OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64
        self._rounded(self.signed("DPU", "OUT_CVT_SCALE", "OUT_CVT_SCALE", 16), shift)
        return self._out(v)

    def _out(self, v: Real) -> Real:
        scale = self.signed("DPU", "OUT_CVT_SCALE", "OUT_CVT_SCALE", 16)
        offset = self.signed("DPU", "OUT_CVT_OFFSET", "OUT_CVT_OFFSET")
        shift = 2.0 ** (self.get("DPU", "OUT_CVT_SHIFT", "OUT_CVT_SHIFT") % 64)
        if self.get("DPU", "OUT_CVT_SHIFT", "CVT_TYPE"):
            y = (v + offset) * scale / shift
        else:
            y = v * scale / shift + offset
        return y / 2.0 ** self.get("DPU", "OUT_CVT_SHIFT", "MINUS_EXP") if self.real else y

    # tables

    def _behind_table(self, v: Real) -> Real:
        """Apply what EW does behind its table, on integers [HW 7.8] [HW 7.9]: a maximum with 0 cuts off where
        the line beyond the end of a Sigmoid's table becomes negative."""
        if not self.get("DPU", "EW_CFG", "EW_OP_BYPASS"):
            if self.get("DPU", "EW_CFG", "EW_OP_SRC"):
                raise NotJudged("EW combines its table with an operand from memory")
            bits = self._register_operand()
            v = self._combined(v, np.full((1, 1, 1), float(bits - (1 << 32) if bits >> 31 else bits)))
        return v if self.get("DPU", "EW_CFG", "EW_RELU_BYPASS") else np.maximum(v, 0.0)

    def _rescaled(self, v: Real, error: Any) -> tuple[Real, Any]:
        """Return what flying tasks make of the values that a convolution's tasks have left in the output.

        Vendor-compiled fp16 layers with a table whose 1.0 is not 32768 have one such task: it takes the scale
        of the table from the binary32 results.
        """
        later = [task for task in self.tasks if self._writes(task) and "CNA" not in task.blocks]
        if not later:
            return v, error
        place = self.plan.place(self.step.output.name)
        for task in later:
            ref = self._ref(task, "DPU_RDMA", "SRC_BASE_ADDR")
            here = ref.offset - place.ref.offset if ref and ref.region == place.ref.region else -1
            if not 0 <= here < place.size:
                raise NotJudged("its tasks behind the convolution read something else than its result")
        part = copy(self)
        part.main, part.registers, part.error = later[0], values_of(later[0].settings), 0.0
        return part._of_wide(v, error)

    def _of_wide(self, v: Real, error: Any) -> tuple[Real, Any]:
        """Return what the task makes of binary32 values that are `error` away from exact ones."""
        (low, _), (middle, more), (high, _) = (self._dpu(v + side * error) for side in (-1, 0, 1))
        return middle, np.abs(high - low) / 2 + more

    def _function(self, v: Real) -> tuple[Real, Any]:
        """Return the values of a function that the node computes by a table; `v` is the real index."""
        table = Table(self)
        name = function_name(self.node.type)
        if name is None or self.file.ours:
            low, high = (self._behind_table(side) for side in table.around(v, self.error))
            a, b = self._out(low), self._out(high)
            return (a + b) / 2, np.abs(a - b) / 2 + (0.0 if self.real else 0.5)
        units, error = table.judged(name, table.fit(name), v, self.error)
        values = self._out(self._behind_table(units))
        step = abs(self._out(np.array([1.0]))[0] - self._out(np.array([0.0]))[0])
        offset = abs(float(self._out(np.array([0.0]))[0])) if self.real else 0.0
        if self.real:  # the offset only serves for rounding
            values = values - self._out(np.array([0.0]))[0]
        return values, error * step + offset + (0.0 if self.real else 0.5)
