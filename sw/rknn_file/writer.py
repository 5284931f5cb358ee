"""Writer of compiled models as `.rknn` files of container version 6, with `rkcosim` as their compiler.

The file contains what a reader needs: tensors, nodes, command words with their relocations, task records,
what the runtime does with a program's numbers, and the JSON text in which other readers look for inputs and
outputs. Two conventions differ from the vendor's files: the surfaces of activations are not padded, and the
computation of a host node is described as JSON in a constant that the node reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import flatbuffers
import numpy as np

from rkcosim.base import version
from rkcosim.compiler.graph import channels_last
from rkcosim.compiler.model import CompiledModel
from rkcosim.compiler.plan import Plan
from rkcosim.compiler.preprocessing import Preprocessing
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.task import Ref
from rkcosim.compiler.steps import CallStep, ConvStep, CopyStep, HostStep, PoolStep, Step
from rkcosim.regcmd.job import completion_mask
from rkcosim.regcmd.tasks import TAIL_WORDS, TASK_ALIGN
from rkcosim.regcmd.word import WORD_BYTES
from rkcosim.rknn_file import schema
from rkcosim.rknn_file.container import PARTS
from rkcosim.rknn_file.host import FUNCTION, HOST_OP
from rkcosim.rknn_file.inputs import MOST_BATCH, check_preprocessing
from rkcosim.rknn_file.schema import (
    GraphSlot,
    Kind,
    Layout,
    NodeSlot,
    RelocationSlot,
    Root,
    Sizes,
    TensorSlot,
)
from rkcosim.rknn_file.tables import RknnFileError

_CODES = {np.dtype(kind): code for code, kind in schema.DTYPES.items()}
_ZERO_BASES = {"regcmd": 0, "weights": 0, "activations": 0}


@dataclass
class _Tensor:
    """A tensor to write; for the members see `container.FileTensor`."""

    name: str
    kind: int
    layout: int = Layout.PLAIN
    dtype: int = schema.RAW
    native: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    scale: float | None = None
    zero_point: int = 0
    size: int = 0
    offset: int = 0
    data: bytes = b""

    @property
    def quantised(self) -> bool:
        """Whether the elements are codes with a scale."""
        return self.scale is not None and schema.DTYPES.get(self.dtype, np.dtype(np.void)).kind in "iu"

    @property
    def range(self) -> tuple[float, float]:
        """Numbers of the lowest and of the highest code."""
        limits = np.iinfo(schema.DTYPES[self.dtype])
        scale = float(self.scale or 1.0)
        return (int(limits.min) - self.zero_point) * scale, (int(limits.max) - self.zero_point) * scale


@dataclass
class _Node:
    type: str
    name: str
    inputs: list[int]
    outputs: list[int]
    code: int = 0
    on_npu: bool = False
    attributes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tasks: list[int] = field(default_factory=lambda: [0] * 6)


def write_rknn(
    model: CompiledModel,
    preprocessing: Sequence[Preprocessing] = (),
    batch: int = 1,
    cores: Sequence[int] = (),
) -> bytes:
    """Return the bytes of a `.rknn` file with a model's plan.

    Parameters
    ----------
    model
        The model, for one sample.
    preprocessing
        What the runtime does with a program's numbers: one for all inputs, or one for each; none changes
        nothing. The model's inputs are those after it.
    batch
        Number of samples that the runtime takes at once; it runs the plan for each.
    cores
        Numbers of cores for which the file has plans; () for the model's own alone. The vendor's files have
        (1, 2, 3).

    Raises
    ------
    RknnFileError
        if the container cannot express a part of the model, or mean and std do not fit an input; the message
        names it.
    """
    given = list(preprocessing) or [Preprocessing()]
    each = given * len(model.inputs) if len(given) == 1 else given
    if len(each) != len(model.inputs):
        raise RknnFileError(f"mean and std of {len(each)} inputs; the model has {len(model.inputs)}")
    for info, before in zip(model.inputs, each, strict=True):
        check_preprocessing(before, info.shape, f"input '{info.name}'")
    if not 1 <= batch <= MOST_BATCH:
        raise RknnFileError(f"a batch of {batch}; 1 to {MOST_BATCH} are supported")
    if batch > 1 and any(
        len(port.shape) < 2 or port.shape[0] != 1 for port in (*model.inputs, *model.outputs)
    ):
        raise RknnFileError("a batch needs inputs and outputs whose first dimension is 1")
    plans = [model.plan if n == model.plan.cores else model.replanned(n).plan for n in sorted(set(cores))]
    return _Writer(model, each, batch, plans or [model.plan]).run()


class _Writer:
    def __init__(
        self, model: CompiledModel, preprocessing: Sequence[Preprocessing], batch: int, plans: Sequence[Plan]
    ) -> None:
        self.preprocessing, self.batch, self.plans = preprocessing, batch, plans
        self.starts = [0] * 5
        """Index of the first record of the plans for two and three cores, in the last two places."""
        self.model, self.plan, self.graph = model, model.plan, model.plan.graph
        self.tensors = [_Tensor("", Kind.NONE)]
        self.nodes: list[_Node] = []
        self.roots: dict[str, int] = {}
        """Index in the file of each root tensor of the graph, by name."""
        self.views: dict[tuple[str, tuple[int, ...]], int] = {}
        self.cubes: dict[str, tuple[int, int, int]] = {}
        self.constants: list[tuple[int, int]] = []
        """(first byte in the weights region, index) of each constant, by its first byte."""
        self.relocations: dict[int, list[tuple[int, int, int, int]]] = {}

    def run(self) -> bytes:
        if not self.plan.tasks:
            raise RknnFileError("no layer runs on the NPU, so there are no command lists to write")
        for step in self.plan.steps:
            if isinstance(step, CallStep):
                raise RknnFileError(
                    f"{step.kind} '{step.name}' runs on the host in {step.program.runtime}, which a .rknn "
                    "file cannot contain: write the compiled model to a file with another ending"
                )
        self._activations()
        self._constants()
        for item in self.graph.inputs:
            if self.graph.root(item.tensor) not in self.roots:
                raise RknnFileError(f"no layer reads input '{item.name}', so it has no place in the memory")
        inputs = [self.roots[self.graph.root(item.tensor)] for item in self.graph.inputs]
        for item, index in zip(self.graph.inputs, inputs, strict=True):
            self.nodes.append(_Node("InputOperator", f"InputOperator:{item.name}", [], [index]))
        numbers = [self._node(index, step) for index, step in enumerate(self.plan.steps)]
        outputs = [self._output(item) for item in self.graph.outputs]
        for result, index in zip(self.graph.outputs, outputs, strict=True):
            self.nodes.append(_Node("OutputOperator", f"OutputOperator:{result.name}", [index], []))
        commands, records = b"", b""
        for plan in self.plans:
            self._check(plan)
            if plan.cores > 1 and len(self.plans) > 1:
                self.starts[plan.cores + 1] = len(records) // schema.RECORD.size
            commands += b"\0" * (-len(commands) % TASK_ALIGN)
            words, own = self._tasks(plan, numbers, len(commands))
            commands, records = commands + words, records + own
        self.tensors.append(_Tensor("regcmd", Kind.REGCMD, data=commands))
        self.tensors.append(_Tensor("task", Kind.TASKS, data=records))
        self._name_apart()
        return _Buffer(self, inputs, outputs).file()

    def _name_apart(self) -> None:
        """Give tensors of equal names other ones, but inputs and outputs: relocations name their tensors.

        Steps of one operator have its name, as the two convolutions that place the parts of a Concat.
        """
        ports = {tensor.name for tensor in self.tensors if tensor.kind in (Kind.INPUT, Kind.OUTPUT)}
        used: set[str] = set()
        for number, tensor in enumerate(self.tensors):
            port = tensor.kind in (Kind.INPUT, Kind.OUTPUT)
            if tensor.name in used or (tensor.name in ports and not port):
                tensor.name = f"{tensor.name} #{number}"
            used.add(tensor.name)

    # tensors

    def _activations(self) -> None:
        given = {self.graph.root(item.tensor): item.shape for item in self.graph.inputs}
        taken = {
            self.graph.root(item.value): item.shape
            for item in self.graph.outputs
            if not item.real and self.graph.root(item.value) not in given
        }
        names = {self.graph.root(item.value): item.name for item in self.graph.outputs if not item.real}
        names |= {self.graph.root(item.tensor): item.name for item in self.graph.inputs}
        self.cubes = {  # an output may have other rows and columns than the tensor in whose place it is
            self.graph.root(item.value): self.graph.tensors[item.value].cube
            for item in self.graph.outputs
            if self.graph.root(item.value) in taken
        }
        for name, place in self.plan.places.items():
            if place.ref.region != "activations":
                continue
            place = replace(place, cube=self.cubes.get(name, place.cube))
            kind = Kind.INPUT if name in given else Kind.OUTPUT if name in taken else Kind.INTERNAL
            shape = given.get(name) or taken.get(name) or self._shape(name)
            self.roots[name] = len(self.tensors)
            made = self._activation(name, place, kind, tuple(int(n) for n in shape))
            made.name = names.get(name, name)
            self.tensors.append(made)

    def _shape(self, name: str) -> tuple[int, ...]:
        """Return the shape with which a tensor is written: (1, C, H, W), or that of a matrix, from which a
        reader finds that the channels are its last axis."""
        tensor = self.graph.tensors[name]
        if not channels_last(tensor):
            return (1, *tensor.cube)
        if len(tensor.shape) in (2, 3) and tensor.shape[-1] == tensor.cube[0] and tensor.cube[1] > 1:
            return tensor.shape
        if any(isinstance(s, HostStep) and tensor in (*s.inputs, s.output) for s in self.plan.steps):
            raise RknnFileError(
                f"tensor '{name}' of {list(tensor.shape)} has its channels last, which the file cannot "
                "express"
            )
        return (1, *tensor.cube)

    def _activation(self, name: str, place: Place, kind: Kind, shape: tuple[int, ...]) -> _Tensor:
        tensor = self.graph.tensors[name]
        if tensor.channels_last and len(shape) != 4:
            raise RknnFileError(
                f"tensor '{name}' is flattened with its channels last, which the file cannot express"
            )
        _, height, width = place.cube
        if place.argb:
            native = (1, 1, height, place.pitch, place.argb)
        else:
            native = (1, place.surface_count, height, width, place.c2)
        unsigned = bool(place.argb and place.unsigned_pixels)
        dtype = np.dtype(np.uint8) if unsigned else tensor.dtype
        zero = tensor.zero_point + (128 if unsigned else 0)
        return _Tensor(
            name,
            kind,
            Layout.NATIVE,
            _CODES[dtype],
            native,
            shape,
            tensor.scale,
            zero,
            place.size,
            place.ref.offset,
        )

    def _constants(self) -> None:
        """Divide the weights region into constants at each address that a command uses."""
        starts: dict[int, _Tensor] = {}
        kernels: dict[int, tuple[int, ...]] = {}
        for name, place in self.plan.places.items():
            if place.ref.region == "weights":
                made = self._activation(name, place, Kind.CONSTANT, (1, *place.cube))
                starts[place.ref.offset] = made
        for index, step in enumerate(self.plan.steps):
            for number, task in enumerate(t for t in self.plan.tasks if t.layer == index):
                for setting in task.settings:
                    for value in setting.fields.values():
                        if not isinstance(value, Ref) or value.region != "weights":
                            continue
                        if (setting.block, setting.register) == ("CNA", "DCOMP_ADDR0"):
                            tile = self.plan.tiles[index][number]
                            kernels.setdefault(value.offset, (index, tile.kernels))
                            starts.setdefault(value.offset, self._weights(step, tile.kernels, number))
        tables = self._tables(set(starts))
        starts |= {offset: _Tensor(name, Kind.CONSTANT) for offset, name in tables.items()}
        marks = sorted({0, *starts}) if self.plan.weights else []
        for start, end in zip(marks, [*marks[1:], len(self.plan.weights)], strict=False):
            tensor = starts.get(start, _Tensor(f"constant {start}", Kind.CONSTANT))
            tensor.data = bytes(self.plan.weights[start:end])
            tensor.size, tensor.offset = end - start, 0
            self.constants.append((start, len(self.tensors)))
            self.tensors.append(tensor)

    def _weights(self, step: Step, kernels: int, number: int) -> _Tensor:
        assert isinstance(step, ConvStep)
        shape = (1, kernels) if step.depthwise else (kernels, step.weights.shape[1])
        code = _CODES[np.dtype(np.float16 if step.output.real else np.int8)]
        dims = (*shape, *step.weights.shape[2:])
        return _Tensor(f"{step.name}.weight.{number}", Kind.CONSTANT, Layout.WEIGHTS, code, dims, dims)

    def _tables(self, known: set[int]) -> dict[int, str]:
        """Return first byte and name of each table of operands: the lowest address in a layer's register."""
        found: dict[tuple[int, str, str], int] = {}
        for task in self.plan.tasks:
            for setting in task.settings:
                for value in setting.fields.values():
                    if isinstance(value, Ref) and value.region == "weights" and value.offset not in known:
                        key = (task.layer, setting.block, setting.register)
                        found[key] = min(value.offset, found.get(key, value.offset))
        return {
            offset: f"{self.plan.steps[layer].name}.{register.lower()}"
            for (layer, _, register), offset in found.items()
        }

    # nodes

    def _view(self, name: str) -> int:
        """Return the index of the tensor that a step reads: the root, or a view of it with another shape."""
        root, cube = self.graph.root(name), self.graph.tensors[name].cube
        place = self.plan.places[root]
        if place.ref.region == "weights":
            return dict(self.constants)[place.ref.offset]
        index = self.roots[root]
        if cube == self.cubes.get(root, place.cube):
            return index
        if (root, cube) not in self.views:
            seen = self.graph.tensors[name]
            source = self.tensors[index]
            native = (1, place.surface_count, *cube[1:], place.c2)
            self.views[root, cube] = len(self.tensors)
            view = _Tensor(
                f"{name} view",
                Kind.INTERNAL,
                Layout.NATIVE,
                source.dtype,
                native,
                self._shape(name),
                seen.scale,
                seen.zero_point,
                source.size,
                source.offset,
            )
            self.tensors.append(view)
            self.nodes.append(
                _Node("Reshape", f"{name} view", [index], [self.views[root, cube]], on_npu=True)
            )
        return self.views[root, cube]

    def _operands(self, layer: int) -> list[int]:
        """Return the constants that a step's tasks read, in the order of the weights region."""
        found = set()
        for task in self.plan.tasks:
            for setting in task.settings if task.layer == layer else ():
                for value in setting.fields.values():
                    if isinstance(value, Ref) and value.region == "weights":
                        found.add(max(pair for pair in self.constants if pair[0] <= value.offset))
        return [index for _, index in sorted(found)]

    def _node(self, number: int, step: Step) -> int:
        """Add the node of a step and return its index."""
        inputs = [self._view(tensor.name) for tensor in step.inputs]
        inputs += [index for index in self._operands(number) if index not in inputs]
        outputs = [self.roots[self.graph.root(step.output.name)]]
        last = self.nodes[-1]
        if last.outputs == outputs and isinstance(step, CopyStep) and last.on_npu:  # same tensor
            last.inputs += [index for index in inputs if index not in last.inputs]
            self._part(last, step)
            return len(self.nodes) - 1
        if any(node.outputs == outputs for node in self.nodes):
            raise RknnFileError(f"{step.kind} '{step.name}' writes a tensor that another step has written")
        node = _Node(step.kind, step.name, inputs, outputs, on_npu=not isinstance(step, HostStep))
        if isinstance(step, HostStep):
            said: dict[str, Any] = {"function": step.function}
            said["attributes"] = _plain(step.attributes, step.name)
            shapes = [tensor.shape for tensor in step.inputs]
            if shapes != [self.tensors[index].shape for index in inputs[: len(shapes)]]:
                said["shapes"] = [list(shape) for shape in shapes]
            inputs.append(self._text(f"{step.name}{FUNCTION}", said))
        elif isinstance(step, ConvStep):
            window, node.code = step.window, schema.CODES["Conv"]
            groups = step.weights.shape[0] if step.depthwise else 1
            node.attributes = {
                "dilations": window.dilations,
                "group": (groups,),
                "kernel_shape": window.kernel,
                "pads": window.pads,
                "strides": window.strides,
            }
        elif isinstance(step, PoolStep):
            node.code = schema.CODES["MaxPool" if step.method == "max" else "AveragePool"]
            window = step.window
            node.attributes = {
                "kernel_shape": window.kernel,
                "pads": window.pads,
                "strides": window.strides,
            }
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _part(self, node: _Node, step: CopyStep) -> None:
        """Turn a node of several copies into a concatenation along the axis on which this part is offset."""
        axes = [axis for axis in range(3) if step.target[axis]]
        if len(axes) == 1 and step.size == step.inputs[0].cube:
            node.type, node.code = "Concat", schema.CODES["Concat"]
            node.attributes = {"axis": (axes[0] + 1,)}

    def _text(self, name: str, said: Mapping[str, Any]) -> int:
        """Add a constant of the host that holds JSON, and return its index."""
        data = json.dumps(said, separators=(",", ":"), allow_nan=False).encode()
        self.tensors.append(_Tensor(name, Kind.HOST_CONSTANT, data=data, size=len(data)))
        return len(self.tensors) - 1

    def _output(self, item: Any) -> int:
        """Return the index of an output's tensor; add nodes for host operations after the network."""
        if not item.real:
            return self.roots[self.graph.root(item.value)]
        return self._host_value(item.value, tuple(int(n) for n in item.shape))

    def _host_value(self, name: str, shape: tuple[int, ...]) -> int:
        """Return the index of the tensor of a value that the host computes."""
        op = next((op for op in self.graph.host_ops if op.output == name), None)
        if op is None:
            return self._view(name)
        source = self._host_value(op.input, shape)
        said = {HOST_OP: op.kind, "attributes": _plain(op.attributes, op.name), "output": op.output}
        text = self._text(f"{op.name}{FUNCTION}", said)
        kind = np.dtype(np.float32)
        index = len(self.tensors)
        size = int(np.prod(shape)) * kind.itemsize
        self.tensors.append(
            _Tensor(name, Kind.OUTPUT, Layout.PLAIN, _CODES[kind], shape, shape, None, 0, size, self._end())
        )
        self.nodes.append(_Node(op.kind, op.name, [source, text], [index]))
        return index

    def _end(self) -> int:
        """Return the first byte of the internal buffer after all activations."""
        ends = [t.offset + t.size for t in self.tensors if t.kind in (Kind.INPUT, Kind.OUTPUT, Kind.INTERNAL)]
        return -(-max(ends, default=0) // schema.WEIGHT_ALIGN) * schema.WEIGHT_ALIGN

    @property
    def internal_bytes(self) -> int:
        """Size of the internal buffer in bytes."""
        return max(self._end(), self.plan.activation_bytes)

    @property
    def weight_bytes(self) -> int:
        """Size of all constants in bytes, each rounded up to 64 bytes."""
        kept = (t for t in self.tensors if t.kind in (Kind.CONSTANT, Kind.HOST_CONSTANT))
        return sum(-(-t.size // schema.WEIGHT_ALIGN) * schema.WEIGHT_ALIGN for t in kept)

    # commands

    def _check(self, plan: Plan) -> None:
        """Raise RknnFileError if a plan for another number of cores has other steps, weights or places."""
        differ = {
            "steps": _named(self.plan) != _named(plan),
            "weights": self.plan.weights != plan.weights,
            "places of tensors": _placed(self.plan) != _placed(plan),
        }
        for what, found in differ.items():
            if found:
                raise RknnFileError(
                    f"the plans for {self.plan.cores} and {plan.cores} cores have different {what}; a .rknn "
                    "file has the same for all"
                )

    def _tasks(self, plan: Plan, numbers: Sequence[int], start: int) -> tuple[bytes, bytes]:
        """Return command words and task records of a plan, whose words begin at a byte of the commands."""
        listed = plan.task_list({**_ZERO_BASES, "regcmd": start})
        words = bytearray(listed.data)
        columns = PARTS[plan.cores - 1]
        records: list[bytes] = []
        for core, column in enumerate(columns):
            for task, entry in zip(plan.tasks, listed.tasks, strict=True):
                if task.core != core:
                    continue
                node = numbers[task.layer]
                self.nodes[node].tasks[column] += 1
                mask = completion_mask(entry.mask)
                amount = entry.n_words - TAIL_WORDS
                records.append(
                    schema.RECORD.pack(0, node, entry.mask, mask, 0x1FFFF, 0, amount, 0, entry.address)
                )
                for number, setting in enumerate(task.settings):
                    if any(isinstance(value, Ref) for value in setting.fields.values()):
                        place = entry.address + number * WORD_BYTES
                        part = plan.cores, core
                        self._relocate(words, place, start, setting, plan.steps[task.layer], part)
        return bytes(words), b"".join(records)

    def _relocate(
        self, words: bytearray, place: int, first: int, setting: Any, step: Step, part: tuple[int, int]
    ) -> None:
        """Replace the address in a word by the offset within its tensor, and add the relocation.

        `words` are those from the byte `first` of the commands on, in which the word has the offset `place`.
        """
        ref = next(v for v in setting.fields.values() if isinstance(v, Ref))
        tensor, start = self._owner(ref, step)
        offset = ref.offset - start
        bases = {**_ZERO_BASES, ref.region: -start}
        value = setting.word_value(bases)
        own = slice(place - first, place - first + WORD_BYTES)
        word = int.from_bytes(words[own], "little")
        low = 16
        word = word & ~(0xFFFF_FFFF << low) | value << low
        words[own] = word.to_bytes(WORD_BYTES, "little")
        self.relocations.setdefault(tensor, []).append((offset, place // WORD_BYTES, *part))

    def _owner(self, ref: Ref, step: Step) -> tuple[int, int]:
        """Return the tensor that contains a reference, and the tensor's first byte in its region."""
        if ref.region == "weights":
            start, index = max(pair for pair in self.constants if pair[0] <= ref.offset)
            return index, start
        for tensor in (step.output, *step.inputs):
            root = self.graph.root(tensor.name)
            place = self.plan.places[root]
            first = place.ref.offset
            if place.ref.region == "activations" and first <= ref.offset < first + place.size:
                return self.roots[root], first
        raise RknnFileError(f"{step.kind} '{step.name}' uses memory outside of its own tensors ({ref})")


def _named(plan: Plan) -> list[tuple[str, str]]:
    """Return names and kinds of a plan's steps."""
    return [(step.name, step.kind) for step in plan.steps]


def _placed(plan: Plan) -> dict[str, tuple[Ref, int]]:
    """Return first byte and size of each of a plan's tensors."""
    return {name: (place.ref, place.size) for name, place in plan.places.items()}


def _plain(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Convert attributes to JSON types; windows become objects of their members."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        if hasattr(value, "kernel"):
            members = ("kernel", "strides", "pads", "dilations")
            found[key] = {"window": {m: list(getattr(value, m)) for m in members}}
        elif isinstance(value, tuple | list):
            found[key] = [v.item() if isinstance(v, np.generic) else v for v in value]
        elif isinstance(value, np.generic):
            found[key] = value.item()
        elif value is None or isinstance(value, bool | int | float | str):
            found[key] = value
        else:
            raise RknnFileError(f"'{name}': attribute '{key}' ({type(value).__name__}) cannot be written")
    return found


def _each(numbers: Sequence[float], count: int) -> list[float]:
    """Return one number for each channel."""
    return list(numbers) if len(numbers) > 1 else [float(numbers[0])] * count


def _quantisation(tensor: _Tensor) -> dict[str, str]:
    """Return the type of a tensor in the form of the trailing JSON; empty texts mean floating point."""
    kind = schema.DTYPES[tensor.dtype].name if tensor.quantised else ""
    return {"qnt_method": "layer" if kind else "", "qnt_type": kind, "vx_type": kind}


class _Buffer:
    """Serialisation of the tensors, nodes and commands of a `_Writer`."""

    def __init__(self, writer: _Writer, inputs: list[int], outputs: list[int]) -> None:
        self.writer, self.inputs, self.outputs = writer, inputs, outputs
        self.builder = flatbuffers.Builder(1 << 16)
        self.sections: list[bytes] = [b""]

    def file(self) -> bytes:
        """Return header, flatbuffer and trailing JSON."""
        self.builder.Finish(self._root(), file_identifier=schema.IDENTIFIER)
        data = bytes(self.builder.Output())
        text = json.dumps(self._trailer(), separators=(",", ":")).encode()
        header = schema.HEADER.pack(schema.MAGIC, schema.Version.TOOLKIT_2, len(data))
        return header.ljust(schema.FLATBUFFER_AT, b"\0") + data + len(text).to_bytes(8, "little") + text

    def _trailer(self) -> dict[str, Any]:
        tensors = [self.writer.tensors[n] for n in (*self.inputs, *self.outputs)]
        sides = [("input", n) for n in range(len(self.inputs))]
        sides += [("output", n) for n in range(len(self.outputs))]
        listed = [
            {
                "dim_num": len(tensor.shape),
                "dtype": _quantisation(tensor),
                "size": list(tensor.shape),
                "tensor_id": number,
                "url": tensor.name,
            }
            for number, tensor in enumerate(tensors)
        ]
        ports = [
            {"left": side, "left_tensor_id": own, "right": "norm_tensor", "right_tensor_id": number}
            for number, (side, own) in enumerate(sides)
        ]
        joined = [
            {
                "left": side,
                "left_tensor_id": own,
                "node_id": 0,
                "right_tensor": {"tensor_id": number, "type": "norm_tensor"},
            }
            for number, (side, own) in enumerate(sides)
        ]
        node = {
            "input_num": len(self.inputs),
            "lid": "npu_network_bin_graph",
            "name": "nnbg",
            "nn": {"nbg": {"type": "RKNN_OP_NNBG"}},
            "op": "RKNN_OP_NNBG",
            "output_num": len(self.outputs),
            "uid": 0,
        }
        return {
            "connection": joined,
            "const_tensor": [],
            "graph": ports,
            "input_num": len(self.inputs),
            "name": "rknn model",
            "network_platform": schema.OURS,
            "node_num": 1,
            "nodes": [node],
            "norm_tensor": listed,
            "norm_tensor_num": len(listed),
            "ori_network_platform": schema.OURS,
            "output_num": len(self.outputs),
            "target_platform": [schema.TARGET],
            "version": f"{schema.OURS} {version()}",
            "virtual_tensor": [],
        }

    def _attributes_text(self) -> str:
        """Return mean, std, order of channels and quantisation of inputs and outputs as a Python literal."""
        attributes, table = dict[str, Any](), dict[str, Any]()
        for number, index in enumerate(self.inputs):
            tensor, before = self.writer.tensors[index], self.writer.preprocessing[number]
            count = tensor.shape[1] if len(tensor.shape) > 1 else 1
            attributes[tensor.name] = {
                "idx": number,
                "shape": list(tensor.shape),
                "layout": "nchw",
                "layout_ori": "nchw",
                "is_output": False,
                "range": [0, 1],
                "origin_dynamic": False,
                "dtype": "float32",
                "mean": _each(before.mean, count),
                "std": _each(before.std, count),
                "rgb2bgr": before.reverse,
            }
        for number, index in enumerate(self.outputs):
            tensor = self.writer.tensors[index]
            attributes[tensor.name] = {
                "is_output": True,
                "idx": number,
                "shape": list(tensor.shape),
                "dtype": "float32",
                "layout": "nchw",
            }
        for index in (*self.inputs, *self.outputs):
            tensor = self.writer.tensors[index]
            quantised = tensor.quantised
            low, high = tensor.range if quantised else (0.0, 0.0)
            table[tensor.name] = {
                "name": tensor.name,
                "dtype": "float32",
                "qmethod": "layer" if quantised else "",
                "qtype": "asym" if quantised else "",
                "min": [low] if quantised else [],
                "max": [high] if quantised else [],
                "scale": [],
                "zero_point": [],
            }
        return repr({"attrs": attributes, "quant_tab": table})

    def _types_text(self, numbers: Sequence[int], layout: str) -> str:
        """Return element types and layouts of inputs or outputs as JSON."""
        types = {}
        for number in numbers:
            tensor = self.writer.tensors[number]
            types[tensor.name] = {"dtype": schema.DTYPES[tensor.dtype].name, "layout": layout}
        return json.dumps(types)

    def _text(self, text: str) -> int:
        return int(self.builder.CreateString(text))

    def _numbers(self, values: Sequence[float], kind: Any = np.int32) -> int:
        return int(self.builder.CreateNumpyVector(np.array(values, kind)))

    def _pairs(self, values: Sequence[tuple[int, int]]) -> int:
        """Write a vector of structures of two 32-bit numbers."""
        self.builder.StartVector(8, len(values), 4)
        for first, second in reversed(values):
            self.builder.PrependUint32(second)
            self.builder.PrependUint32(first)
        return int(self.builder.EndVector())

    def _tables(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def _table(
        self,
        offsets: Mapping[int, int],
        bytes_: Mapping[int, int] | None = None,
        words: Mapping[int, int] | None = None,
        longs: Mapping[int, int] | None = None,
    ) -> int:
        """Write a table with slots for offsets, and for numbers of 1, 4 and 8 bytes."""
        slots = [*offsets, *(bytes_ or {}), *(words or {}), *(longs or {})]
        builder = self.builder
        builder.StartObject(max(slots, default=-1) + 1)
        for slot, value in (longs or {}).items():
            builder.PrependUint64Slot(slot, value, 0)
        for slot, value in (words or {}).items():
            builder.PrependUint32Slot(slot, value, 0)
        for slot, value in offsets.items():
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        for slot, value in (bytes_ or {}).items():
            builder.PrependUint8Slot(slot, value, 0)
        return int(builder.EndObject())

    def _tensor(self, tensor: _Tensor) -> int:
        section = 0
        if tensor.data:
            section = len(self.sections)
            self.sections.append(tensor.data)
        offsets: dict[int, int] = {
            TensorSlot.NATIVE: self._numbers(tensor.native),
            TensorSlot.SHAPE: self._numbers(tensor.shape),
            TensorSlot.NAME: self._text(tensor.name),
        }
        if tensor.scale is not None:
            offsets[TensorSlot.SCALE] = self._numbers([tensor.scale], np.float32)
            offsets[TensorSlot.ZERO_POINT] = self._numbers([tensor.zero_point])
        if tensor.quantised:
            low, high = tensor.range
            offsets[TensorSlot.QUANTISED_BY] = self._text("layer")
            offsets[TensorSlot.DTYPE_NAME] = self._text(schema.DTYPES[tensor.dtype].name)
            offsets[TensorSlot.LOW] = self._numbers([low], np.float32)
            offsets[TensorSlot.HIGH] = self._numbers([high], np.float32)
        return self._table(
            offsets,
            {
                TensorSlot.DTYPE: tensor.dtype,
                TensorSlot.LAYOUT: int(tensor.layout),
                TensorSlot.KIND: int(tensor.kind),
            },
            {TensorSlot.BYTES: tensor.size, TensorSlot.OFFSET: tensor.offset, TensorSlot.SECTION: section},
        )

    def _node(self, node: _Node) -> int:
        offsets: dict[int, int] = {
            NodeSlot.TYPE: self._text(node.type),
            NodeSlot.NAME: self._text(node.name),
            NodeSlot.INPUTS: self._numbers(node.inputs),
            NodeSlot.OUTPUTS: self._numbers(node.outputs),
            NodeSlot.TASKS: self._numbers(node.tasks),
            NodeSlot.TABLE_TASKS: self._numbers([0] * 6),
        }
        if node.attributes:
            offsets[NodeSlot.ATTRIBUTES] = self._attributes(node)
        numbers: dict[int, int] = {
            NodeSlot.CODE: node.code,
            NodeSlot.TARGET: schema.ON_NPU if node.on_npu else 0,
        }
        return self._table(offsets, numbers)

    def _attributes(self, node: _Node) -> int:
        names = schema.ATTRIBUTES[node.code]
        vectors, numbers = dict[int, int](), dict[int, int]()
        for name, value in node.attributes.items():
            if name in schema.NUMBERS:
                numbers[names.index(name)] = value[0]
            else:
                vectors[names.index(name)] = self._numbers(value)
        return self._table(vectors, words=numbers)

    def _relocation(self, tensor: int, found: list[tuple[int, int, int, int]]) -> int:
        name = self.writer.tensors[tensor].name
        words = self._pairs([item[:2] for item in found])
        parts = self._pairs([item[2:] for item in found])
        offsets: dict[int, int] = {
            RelocationSlot.TENSOR: self._text(name),
            RelocationSlot.WORDS: words,
            RelocationSlot.PARTS: parts,
        }
        return self._table(offsets)

    def _graph(self) -> int:
        writer = self.writer
        offsets: dict[int, int] = {
            GraphSlot.TENSORS: self._tables([self._tensor(tensor) for tensor in writer.tensors]),
            GraphSlot.NODES: self._tables([self._node(node) for node in writer.nodes]),
            GraphSlot.INPUTS: self._numbers(self.inputs),
            GraphSlot.OUTPUTS: self._numbers(self.outputs),
            GraphSlot.RELOCATIONS: self._tables(
                [self._relocation(tensor, found) for tensor, found in writer.relocations.items()]
            ),
            GraphSlot.PLANS: self._numbers(writer.starts),
        }
        return self._table(offsets)

    def _root(self) -> int:
        graphs = self._tables([self._graph()])
        sections = [
            self._table({0: int(self.builder.CreateByteVector(data))} if data else {})
            for data in self.sections
        ]
        sizes = self._table(
            {}, longs={Sizes.WEIGHTS: self.writer.weight_bytes, Sizes.INTERNAL: self.writer.internal_bytes}
        )
        offsets: dict[int, int] = {
            Root.GENERATOR: self._text(schema.FORMAT),
            Root.GRAPHS: graphs,
            Root.ATTRIBUTES: self._text(self._attributes_text()),
            Root.COMPILER: self._text(f"{schema.OURS} {version()}"),
            Root.TARGET: self._text(schema.TARGET),
            Root.FRAMEWORK: self._text("rkcosim plan"),
            Root.INPUTS_JSON: self._text(self._types_text(self.inputs, "NHWC")),
            Root.OUTPUTS_JSON: self._text(self._types_text(self.outputs, "NCHW")),
            Root.BATCH: self._text(str(self.writer.batch if self.writer.batch > 1 else 0)),
            Root.SHAPES: self._text("static_shape"),
            Root.SIZES: sizes,
            Root.SECTIONS: self._tables(sections),
        }
        total = sum(len(data) for data in self.sections)
        numbers: dict[int, int] = {Root.VERSION: int(schema.Version.TOOLKIT_2)}
        return self._table(offsets, words=numbers, longs={Root.TOTAL: total})
