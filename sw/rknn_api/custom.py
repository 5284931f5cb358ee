"""Custom operators on the host: rknn_register_custom_ops and rknn_custom_op_get_op_attr.

The operator structs hold C function pointers; `rknn_custom_op_callback` and `rknn_custom_op_destroy`
convert Python functions to them.
"""

from __future__ import annotations

import ctypes as ct
import itertools
from typing import Any

import numpy as np

from rkcosim.rknn_api import custom_types as cu
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.convert import TENSOR_TYPES, Array
from rkcosim.rknn_api.custom_graph import TailLoaded, TailNode
from rkcosim.rknn_api.state import (
    Context,
    Refusal,
    Verbatim,
    api,
    array_of,
    loaded_context,
    log,
    runtime,
    target_of,
)

_numbers = itertools.count(1)
_instances: dict[int, Instance] = {}
"""Nodes with a registered operator, by the number in `internal_ctx`."""


class Instance:
    """One node with its operator's functions and its `rknn_custom_op_context`."""

    def __init__(self, node: TailNode, op: cu.rknn_custom_op) -> None:
        self.node = node
        self.op = op
        self.number = next(_numbers)
        self.context = cu.rknn_custom_op_context(
            target=int(cu.RKNN_TARGET_TYPE_CPU), internal_ctx=self.number
        )
        self.attributes: dict[str, Any] = {}
        _instances[self.number] = self

    def call(self, name: str, inputs: list[Array], outputs: list[Array]) -> int:
        """Call init, prepare or compute; returns 0 for a missing function."""
        function = getattr(self.op, name)
        if not function:
            return 0
        given, taken = _tensors(self.node.inputs, inputs), _tensors(self.node.outputs, outputs)
        with runtime.lock.given_up():
            return int(function(ct.byref(self.context), given, len(inputs), taken, len(outputs)))

    def destroy(self) -> None:
        """Let the program free the data of the node."""
        _instances.pop(self.number, None)
        if self.op.destroy:
            with runtime.lock.given_up():
                code = self.op.destroy(ct.byref(self.context))
            if code:
                log.warning("custom op '%s': destroy returned %d", self.node.name, code)


def is_node_of(state: object, number: int) -> bool:
    """Return whether `internal_ctx` of a callback stands for a node of a context, also within its `init`."""
    instance = _instances.get(number)
    if not isinstance(state, Context) or instance is None:
        return False
    return any(node is instance.node for node in _nodes(state))


def _tensors(names: list[str], arrays: list[Array]) -> Any:
    """C structs for arrays; they share the arrays' memory."""
    items = (cu.rknn_custom_op_tensor * max(len(arrays), 1))()
    for index, (name, array) in enumerate(zip([n for n in names if n], arrays, strict=True)):
        attr, mem = items[index].attr, items[index].mem
        attr.index = index
        attr.name = name.encode()[: t.RKNN_MAX_NAME_LEN - 1]
        attr.n_dims = array.ndim
        attr.dims[: array.ndim] = list(array.shape)
        attr.n_elems = array.size
        attr.size = attr.size_with_stride = array.nbytes
        attr.fmt = t.RKNN_TENSOR_NCHW if array.ndim == 4 else t.RKNN_TENSOR_UNDEFINED
        attr.type = int(TENSOR_TYPES.get(array.dtype.name, t.RKNN_TENSOR_FLOAT32))
        attr.scale = 1.0
        mem.virt_addr = array.ctypes.data
        mem.fd = -1
        mem.size = array.nbytes
        mem.flags = int(t.RKNN_TENSOR_MEMORY_FLAGS_UNKNOWN)
    return items


@api
def rknn_register_custom_ops(ctx: Any, op: Any, custom_op_num: int) -> int:
    """Register the functions of operator types of the model; after `rknn_init`, once for each type.

    `init` is called here for every node of the type, `prepare` and `compute` at every run, `destroy`
    at `rknn_destroy`.
    """
    state = loaded_context(ctx)
    ops = array_of(op, cu.rknn_custom_op, custom_op_num) if custom_op_num > 0 else None
    if ops is None:
        raise Refusal.invalid(f"{custom_op_num} operators given")
    for item in ops:
        _check(state, item)
    for item in ops:
        kept = cu.rknn_custom_op.from_buffer_copy(item)
        _register(state, kept, keep=item)
    return t.RKNN_SUCC


def _check(state: Context, op: cu.rknn_custom_op) -> None:
    name = op.op_type.decode(errors="replace")
    problem = None
    if op.target != cu.RKNN_TARGET_TYPE_CPU:
        problem = f"target {op.target}: only the CPU runs custom operators here"
    elif not op.compute:
        problem = "compute is missing"
    elif op.compute_native:
        problem = "compute_native is reserved and must be null"
    elif not name or not _nodes(state, name):
        problem = "the model has no custom operator of this type"
    elif any(instance.node.op_type == name for instance in state.custom.values()):
        problem = "registered already"
    if problem:
        raise Refusal.invalid(f"op_type '{name}': {problem}")


def _nodes(state: Context, op_type: str = "") -> list[TailNode]:
    """Return the custom nodes of a model, of one type or all."""
    loaded = state.loaded
    nodes = loaded.whole.tail.custom_nodes if isinstance(loaded, TailLoaded) else []
    return [node for node in nodes if not op_type or node.op_type == op_type]


def _register(state: Context, op: cu.rknn_custom_op, keep: Any) -> None:
    for node in _nodes(state, op.op_type.decode(errors="replace")):
        instance = Instance(node, op)
        instance.attributes["keep"] = keep  # keeps the callbacks' Python objects alive
        outputs = [np.zeros(s, d) for s, d in zip(node.shapes, node.dtypes, strict=True)]
        code = instance.call("init", _placeholders(state, node), outputs)
        if code == cu.RKNN_WARNING_SKIP_CUSTOM_OP_COMPUTE:
            instance.destroy()
            raise Refusal(
                t.RKNN_ERR_FAIL, f"'{node.name}' requires a function of the library, which does not exist"
            )
        if code:
            instance.destroy()
            raise Refusal(t.RKNN_ERR_FAIL, f"init of '{node.name}' returned {code}")
        state.custom[node.name] = instance


def _placeholders(state: Context, node: TailNode) -> list[Array]:
    """Zeros in the shapes of a node's inputs, as far as these are known before a run."""
    whole = state.loaded.whole
    shapes = {
        name: (shape, dtype)
        for n in whole.tail.custom_nodes
        for name, shape, dtype in zip(n.outputs, n.shapes, n.dtypes, strict=True)
    }
    arrays = []
    for name in node.inputs:
        if not name:
            continue
        if name in whole.tail.constants:
            arrays.append(np.ascontiguousarray(whole.tail.constants[name]))
        elif name in shapes:
            arrays.append(np.zeros(*shapes[name]))
        elif name in whole.tail.feeds:
            arrays.append(np.zeros(whole.head.outputs[whole.head_output(name)].shape, np.float32))
        else:
            arrays.append(np.zeros((0,), np.float32))
    return arrays


def compute(state: Context, node: TailNode, inputs: list[Array], outputs: list[Array]) -> None:
    """Run a custom node.

    Raises
    ------
    Refusal
        RKNN_ERR_FAIL if no operator was registered or a callback fails.
    """
    instance = state.custom.get(node.name)
    if instance is None:
        raise Verbatim(
            t.RKNN_ERR_FAIL, f"custom op '{node.name}': no operator of type '{node.op_type}' is registered"
        )
    for name in ("prepare", "compute"):
        code = instance.call(name, inputs, outputs)
        if code:
            raise Verbatim(t.RKNN_ERR_FAIL, f"custom op '{node.name}': {name} returned {code}")


@api
def rknn_custom_op_get_op_attr(op_ctx: Any, attr_name: Any, op_attr: Any) -> None:
    """Fill `op_attr` with an attribute of the node, inside a callback; `n_elems` is 0 if there is none.

    Integers are INT64, numbers FLOAT32, strings UINT8 in double quotes; "name" is the name of the node.
    """
    target = target_of(op_attr, cu.rknn_custom_op_attr)
    context = target_of(op_ctx, cu.rknn_custom_op_context)
    if target is None:
        raise Refusal.invalid("op_attr must not be null")
    name = attr_name.value if isinstance(attr_name, ct.c_char_p) else attr_name
    name = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    target.name = name.encode()[: t.RKNN_MAX_NAME_LEN - 1]
    target.n_elems, target.data = 0, None
    instance = _instances.get(context.internal_ctx) if context is not None else None
    if instance is None:
        raise Refusal(t.RKNN_ERR_CTX_INVALID, "invalid context")
    array = _attribute(instance.node, name)
    if array is None:
        return
    array = np.ascontiguousarray(array)
    instance.attributes[name] = array
    target.dtype = int(TENSOR_TYPES.get(array.dtype.name, t.RKNN_TENSOR_FLOAT32))
    target.n_elems = array.size
    target.data = array.ctypes.data


def _attribute(node: TailNode, name: str) -> Array | None:
    if name == "name" and "name" not in node.attributes:
        return np.frombuffer(node.name.encode(), np.uint8).copy()
    value = node.attributes.get(name)
    if value is None:
        return None
    if isinstance(value, bytes):
        return np.frombuffer(b'"' + value + b'"', np.uint8).copy()
    if isinstance(value, int) or (isinstance(value, list) and value and isinstance(value[0], int)):
        return np.array(value, np.int64).reshape(-1)
    if isinstance(value, float) or (isinstance(value, list) and value and isinstance(value[0], float)):
        return np.array(value, np.float32).reshape(-1)
    if hasattr(value, "raw_data"):
        from onnx import numpy_helper

        return np.asarray(numpy_helper.to_array(value)).reshape(-1)
    return None
