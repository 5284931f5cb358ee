"""An ONNX network that changes look at and edit: who makes and reads a value, with codings passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.loaders.onnx_fold import described
from rkcosim.compiler.loaders.onnx_node import reads
from rkcosim.measure.advice.change import NotApplicable, Subject, replace

CODINGS = ("QuantizeLinear", "DequantizeLinear")

CLIPPING = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Mul", "Sub")
"""Operators whose task can clip their results."""


class Net:
    """A network.

    Members
    -------
    proto
        The model; editing methods change it.
    shapes
        Shapes of values by name, as far as onnx' inference finds them.
    """

    def __init__(self, data: bytes) -> None:
        self.proto = onnx.load_model_from_string(data)
        self.graph = self.proto.graph
        self.shapes: dict[str, tuple[int, ...]] = {}
        typed = described(self.proto).graph
        for item in (*typed.input, *typed.value_info, *typed.output):
            dims = item.type.tensor_type.shape.dim
            if item.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
                self.shapes[item.name] = tuple(dim.dim_value for dim in dims)
        self._index()

    def _index(self) -> None:
        self.makers = {name: node for node in self.graph.node for name in node.output if name}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in dict.fromkeys(reads(node)):
                self.readers.setdefault(name, []).append(node)
        self.constants = {item.name: item for item in self.graph.initializer}
        self.outputs = [item.name for item in self.graph.output]

    @property
    def quantised(self) -> bool:
        """Whether the network has values of codes."""
        return any(node.op_type in CODINGS for node in self.graph.node)

    @property
    def atom(self) -> int:
        """Channels that share an atom: 16 of bytes, 8 of floats."""
        return 16 if self.quantised else 8

    def nodes(self, *kinds: str) -> list[onnx.NodeProto]:
        """Return the nodes of these operators, in order."""
        return [node for node in self.graph.node if node.op_type in kinds]

    def node(self, name: str) -> onnx.NodeProto:
        """Return the node of a name; raises NotApplicable if an earlier change has removed it."""
        for node in self.graph.node:
            if node.name == name:
                return node
        raise NotApplicable(f"the network has no node '{name}' any more")

    def real(self, name: str) -> str:
        """Return the value behind codings: what a QuantizeLinear and DequantizeLinear stand for."""
        while (node := self.makers.get(name)) is not None and node.op_type in CODINGS:
            name = node.input[0]
        return name

    def maker(self, name: str) -> onnx.NodeProto | None:
        """Return the node that computes a value, with codings passed over."""
        return self.makers.get(self.real(name))

    def users(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that read a value, with codings passed over."""
        found = []
        for node in self.readers.get(name, []):
            found += self.users(node.output[0]) if node.op_type in CODINGS else [node]
        return found

    def ends(self, name: str) -> list[str]:
        """Return a value and the values that codings make of it."""
        found = [name]
        for node in self.readers.get(name, []):
            if node.op_type in CODINGS and node.input[0] == name:
                found += self.ends(node.output[0])
        return found

    def is_output(self, name: str) -> bool:
        """Whether a value is an output of the network, perhaps behind codings."""
        return any(end in self.outputs for end in self.ends(name))

    def alone(self, name: str) -> bool:
        """Whether one node alone reads a value, which is no output."""
        return len(self.users(name)) == 1 and not self.is_output(name)

    def uncoded(self, name: str, readers: Iterable[onnx.NodeProto]) -> str:
        """Return the value in front of the codings of an input if nobody but `readers` has use for them.

        A clip that the NPU computes together with the operator in front of it must read its value directly;
        behind operators that have no clip, the codings stay.
        """
        source = self.real(name)
        if source not in self.makers or self.makers[source].op_type not in CLIPPING:
            return name
        names = {reader.name for reader in readers}
        outside = [node for node in self.users(source) if node.name not in names]
        return name if outside or self.is_output(source) else source

    def array(self, name: str) -> npt.NDArray[Any] | None:
        """Return the values of a constant, of codes if it is coded; None if it is none."""
        name = self.real(name)
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value; raises NotApplicable if it is not known."""
        if name in self.shapes:
            return self.shapes[name]
        if name in self.constants:
            return tuple(self.constants[name].dims)
        raise NotApplicable(f"the shape of '{name}' is not known")

    # Editing.

    def rename_reads(self, old: str, new: str, but: Sequence[str] = ()) -> None:
        """Have all nodes but those named read `new` in place of `old`."""
        for node in self.graph.node:
            if node.name not in but:
                for place, name in enumerate(node.input):
                    if name == old:
                        node.input[place] = new

    def coded_like(self, value: str, like: str, name: str) -> str:
        """Code a value as the value `like` is coded; return what reads the result, `value` if it is not."""
        coder = next((n for n in self.readers.get(like, []) if n.op_type == "QuantizeLinear"), None)
        if coder is None:
            return value
        codes, result = f"{name}_codes", f"{name}_real"
        for op, x, y in (("QuantizeLinear", value, codes), ("DequantizeLinear", codes, result)):
            node = helper.make_node(op, [x, *coder.input[1:]], [y], f"{y}_maker")
            node.attribute.extend(coder.attribute)
            self.append(node)
        return result

    def constant(self, array: npt.NDArray[Any], name: str) -> str:
        """Add a constant; return its name."""
        made = self.fresh(name)
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), made))
        self.constants[made] = self.graph.initializer[-1]
        return made

    def append(self, node: onnx.NodeProto) -> None:
        """Add a node; `finish` brings it to its place."""
        self.graph.node.append(node)
        for name in node.output:
            self.makers[name] = self.graph.node[-1]

    def fresh(self, name: str) -> str:
        """Return a name that nothing has yet."""
        used = {*self.makers, *self.constants, *(item.name for item in self.graph.input)}
        used |= {item.name for item in self.graph.initializer} | {n.name for n in self.graph.node}
        count = 1
        made = name
        while made in used:
            count += 1
            made = f"{name}_{count}"
        return made

    def finish(self) -> bytes:
        """Sort the nodes, leave out what no output needs, infer shapes again, and return the file.

        Raises
        ------
        ModelError
            If the network is not one any more.
        """
        self._index()
        needed, queue = set[str](), list(self.outputs)
        while queue:
            node = self.makers.get(queue.pop())
            if node is not None and node.name not in needed:
                needed.add(node.name)
                queue += reads(node)
        nodes = list(_sorted([node for node in self.graph.node if node.name in needed]))
        del self.graph.node[:], self.graph.value_info[:]
        self.graph.node.extend(nodes)
        read = {name for node in nodes for name in reads(node)}
        constants = [item for item in self.graph.initializer if item.name in read]
        del self.graph.initializer[:]
        self.graph.initializer.extend(constants)
        for item in self.graph.output:
            if item.type.tensor_type.HasField("shape"):
                item.type.tensor_type.ClearField("shape")
        try:
            typed = onnx.shape_inference.infer_shapes(self.proto, strict_mode=True)
        except Exception as error:  # its exception classes have no public base class
            raise ModelError(
                f"the changed network is not valid: {' '.join(str(error).split())[:200]}"
            ) from error
        return bytes(typed.SerializeToString())


def _sorted(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes so that each follows those whose results it reads."""
    made = {name for node in nodes for name in node.output}
    ready, left = set[str](), [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    while left:
        later = []
        for node in left:
            if all(name in ready or name not in made for name in reads(node)):
                ready.update(node.output)
                yield node
            else:
                later.append(node)
        if len(later) == len(left):
            raise ModelError("the changed network has a cycle")
        left = later


def edited(edit: Callable[[Net], None]) -> Callable[[Subject], Subject]:
    """Return a function for `Change.apply` that edits the network of a subject."""

    def apply(subject: Subject) -> Subject:
        net = Net(subject.model)
        edit(net)
        return replace(subject, model=net.finish())

    return apply


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Return an attribute's value."""
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Set an attribute."""
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])
