"""A Pythonic layer on rknn_api: models as context managers, numpy arrays, exceptions.

    with Model("digits.onnx", device=device) as model:
        (probabilities,) = model.run(image)
        for layer in model.layers():
            print(layer.name, layer.cycles)

Arrays have the model's shapes (four dimensions: N, C, H, W) and real values.
"""

from __future__ import annotations

import ctypes as ct
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import rkcosim.rknn_api as rk
from rkcosim.base import Error
from rkcosim.driver import Device, Driver
from rkcosim.rknn_api import custom_types as cu
from rkcosim.rknn_api import matmul_types as mt
from rkcosim.rknn_api import state
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.convert import TENSOR_TYPES, Array

__all__ = ["CustomFunction", "Frame", "Model", "RknnError", "TensorDescription", "matmul", "use"]

ERRORS = {getattr(t, name): name for name in t.__all__ if name.startswith("RKNN_ERR_") or name == "RKNN_SUCC"}
DTYPES = {int(code): np.dtype(name) for name, code in TENSOR_TYPES.items()}

CustomFunction = Callable[..., Any]
"""Function of a custom operator's inputs (arrays) and attributes (by name); returns its output(s)."""


class RknnError(Error):
    """A call failed.

    Parameters
    ----------
    call, code
        Function and error code of the C interface.
    reason
        Description of the error by the library.
    """

    def __init__(self, call: str, code: int, reason: BaseException | str | None) -> None:
        self.call, self.code, self.reason = call, code, reason
        super().__init__(f"{call}: {ERRORS.get(code, code)}: {reason or 'no reason is known'}")


@dataclass(frozen=True)
class TensorDescription:
    """An input or output: the model's shape, element type and quantisation."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float
    zero_point: int


def use(device: Device | Driver | None, meter: Any = None) -> None:
    """Set the device of the following models; None: no device."""
    rk.use_device(device, meter, quiet=True)


class Frame:
    """A run in the background; `result` waits for its end."""

    def __init__(self, model: Model, number: int) -> None:
        self.model = model
        self.number = number

    def result(self, timeout_ms: int = 0) -> list[Array]:
        """Wait (0: without limit, otherwise milliseconds of device time) and fetch the outputs.

        Raises
        ------
        RknnError
            If the run failed or takes longer; also if another frame was started meanwhile.
        """
        last = self.model._state.frame
        if last is None or last.number != self.number:
            raise RknnError("rknn_wait", t.RKNN_ERR_FAIL, f"frame {self.number} is not the last one")
        extend = t.rknn_run_extend(frame_id=self.number, timeout_ms=timeout_ms)
        self.model._call("rknn_wait", rk.rknn_wait(self.model.context, ct.byref(extend)))
        return self.model.outputs_get()


class Model:
    """A model on a device.

    Parameters
    ----------
    model
        Path or bytes.
    device
        Device for all models from now on; None: the current one.
    flag
        RKNN_FLAG_*.
    core_mask
        RKNN_NPU_CORE_*.

    Raises
    ------
    RknnError
        If the model cannot be loaded.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        *,
        device: Device | Driver | None = None,
        flag: int = 0,
        core_mask: int = 0,
        _copy_of: Model | None = None,
    ) -> None:
        if device is not None:
            use(device)
        self.context = t.rknn_context()
        self._kept: list[Any] = []
        if _copy_of is not None:
            code = rk.rknn_dup_context(ct.byref(_copy_of.context), ct.byref(self.context))
            self._call("rknn_dup_context", code)
        else:
            data = model if isinstance(model, bytes) else os.fspath(model)
            size = len(model) if isinstance(model, bytes) else 0
            flags = flag | t.RKNN_FLAG_COLLECT_PERF_MASK
            self._call("rknn_init", rk.rknn_init(ct.byref(self.context), data, size, flags, None))
        try:
            counts = t.rknn_input_output_num()
            self._query(t.RKNN_QUERY_IN_OUT_NUM, counts)
            self.inputs = [self._describe(t.RKNN_QUERY_INPUT_ATTR, n) for n in range(counts.n_input)]
            self.outputs = [self._describe(t.RKNN_QUERY_OUTPUT_ATTR, n) for n in range(counts.n_output)]
            if core_mask:
                self.cores(core_mask)
        except BaseException:
            self.close()
            raise

    def run(self, *arrays: npt.ArrayLike, timeout_ms: int = 0, **named: npt.ArrayLike) -> list[Array]:
        """Run once on arrays, by position or by input name, and return all outputs as float32.

        Raises
        ------
        RknnError
            If an input is wrong or the run fails; the message has the reason.
        """
        self.inputs_set(*arrays, **named)
        self.execute(timeout_ms)
        return self.outputs_get()

    __call__ = run

    def execute(self, timeout_ms: int = 0) -> None:
        """Run once on the inputs that were set, and keep the outputs on the device; raises RknnError."""
        extend = t.rknn_run_extend(timeout_ms=timeout_ms)
        self._call("rknn_run", rk.rknn_run(self.context, ct.byref(extend)))

    def start(self, *arrays: npt.ArrayLike, timeout_ms: int = 0, **named: npt.ArrayLike) -> Frame:
        """Run once in the background.

        Raises
        ------
        RknnError
            If an input is wrong or the run cannot be started.
        """
        self.inputs_set(*arrays, **named)
        extend = t.rknn_run_extend(timeout_ms=timeout_ms, non_block=1)
        self._call("rknn_run", rk.rknn_run(self.context, ct.byref(extend)))
        return Frame(self, int(extend.frame_id))

    def inputs_set(self, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> None:
        """Write inputs to the device.

        Raises
        ------
        RknnError
            If an input is wrong.
        """
        given: dict[int, Array] = dict(enumerate(np.asarray(array) for array in arrays))
        places = {info.name: n for n, info in enumerate(self.inputs)}
        for name, array in named.items():
            if name not in places:
                known = ", ".join(places)
                raise RknnError("rknn_inputs_set", t.RKNN_ERR_INPUT_INVALID, f"no input '{name}' ({known})")
            given[places[name]] = np.asarray(array)
        kept, items = [], []
        for index, array in sorted(given.items()):
            if index >= len(self.inputs) or array.size != math.prod(self.inputs[index].shape):
                wanted = self.inputs[index].shape if index < len(self.inputs) else "no such input"
                reason = f"input {index} has shape {array.shape}: {wanted}"
                raise RknnError("rknn_inputs_set", t.RKNN_ERR_INPUT_INVALID, reason)
            shape = self.inputs[index].shape
            last = tuple(shape[axis] for axis in (0, 2, 3, 1)) if len(shape) == 4 else shape
            if array.shape == last != shape:
                reason = f"input {index} has the channels last, {array.shape}; the model's shape is {shape}"
                raise RknnError("rknn_inputs_set", t.RKNN_ERR_INPUT_INVALID, reason)
            dtype = self.inputs[index].dtype
            if array.dtype == dtype == np.int8:
                pass  # codes of a .rknn file's input; other models take them as real values
            elif array.dtype.kind not in "iub" or dtype.name not in ("int32", "int64", "bool"):
                dtype = np.dtype(np.float32)  # which does not hold every number of the other types
            kept.append(np.ascontiguousarray(array, dtype))
            items.append(
                t.rknn_input(
                    index=index,
                    buf=kept[-1].ctypes.data,
                    size=kept[-1].nbytes,
                    type=int(TENSOR_TYPES[dtype.name]),
                    fmt=int(t.RKNN_TENSOR_NCHW),
                )
            )
        self._call("rknn_inputs_set", rk.rknn_inputs_set(self.context, len(items), items))

    def outputs_get(self) -> list[Array]:
        """Outputs of the last run as float32 arrays.

        Raises
        ------
        RknnError
            If there was no run or it failed.
        """
        arrays = [np.zeros(info.shape, np.float32) for info in self.outputs]
        items = [
            t.rknn_output(want_float=1, is_prealloc=1, index=n, buf=a.ctypes.data, size=a.nbytes)
            for n, a in enumerate(arrays)
        ]
        self._call("rknn_outputs_get", rk.rknn_outputs_get(self.context, len(items), items, None))
        return arrays

    def layers(self) -> Iterator[Any]:
        """`LayerReport` of each layer of the last run; empty before it."""
        report = rk.run_report(self.context)
        yield from report.layers if report is not None else ()

    @property
    def microseconds(self) -> int:
        """Duration of the last run in device time."""
        info = t.rknn_perf_run()
        self._query(t.RKNN_QUERY_PERF_RUN, info)
        return int(info.run_duration)

    @property
    def performance(self) -> str:
        """The vendor's table of the last run's layers."""
        info = t.rknn_perf_detail()
        self._query(t.RKNN_QUERY_PERF_DETAIL, info)
        return ct.string_at(info.perf_data, info.data_len).decode() if info.perf_data else ""

    @property
    def memory(self) -> t.rknn_mem_size:
        """Bytes of weights, of tensors and in total."""
        info = t.rknn_mem_size()
        self._query(t.RKNN_QUERY_MEM_SIZE, info)
        return info

    def cores(self, mask: int) -> None:
        """Select the cores of the following runs."""
        self._call("rknn_set_core_mask", rk.rknn_set_core_mask(self.context, mask))

    def copy(self) -> Model:
        """Another context on the same weights."""
        return Model(b"", _copy_of=self)

    def register(self, op_type: str, function: CustomFunction) -> None:
        """Compute a custom operator of the model with a Python function.

        `function(*inputs, **attributes)` receives arrays and returns an array, or a sequence of them.

        Raises
        ------
        RknnError
            If the model has no such operator.
        """
        nodes = {node.name: node for node in self._custom_nodes()}

        def compute(_: Any, inputs: Any, n_in: int, outputs: Any, n_out: int) -> int:
            given = [_array(inputs[n]) for n in range(n_in)]
            node = next(n for n in nodes.values() if n.outputs[0].encode() == outputs[0].attr.name)
            results = function(*given, **node.attributes)
            results = results if isinstance(results, (tuple, list)) else (results,)
            for number, result in zip(range(n_out), results, strict=True):
                _array(outputs[number])[...] = result
            return 0

        op = cu.rknn_custom_op(version=1, target=int(cu.RKNN_TARGET_TYPE_CPU), op_type=op_type.encode())
        op.compute = cu.rknn_custom_op_callback(_guarded(compute))
        self._kept.append(op)
        code = rk.rknn_register_custom_ops(self.context, ct.byref(op), 1)
        self._call("rknn_register_custom_ops", code)

    def close(self) -> None:
        """Free the context; may be called again."""
        if self.context.value:
            rk.rknn_destroy(self.context)
            self.context.value = 0

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _state(self) -> state.Context:
        return state.context_of(self.context)

    def _custom_nodes(self) -> list[Any]:
        tail = getattr(self._state.model, "tail", None)
        return tail.custom_nodes if tail is not None else []

    def _call(self, call: str, code: int) -> None:
        _check(call, code, self.context)

    def _query(self, command: int, info: Any) -> None:
        self._call("rknn_query", rk.rknn_query(self.context, command, ct.byref(info), ct.sizeof(info)))

    def _describe(self, command: int, index: int) -> TensorDescription:
        attr = t.rknn_tensor_attr(index=index)
        self._query(command, attr)
        shape = tuple(attr.dims[: attr.n_dims])
        if attr.fmt == t.RKNN_TENSOR_NHWC:
            shape = (shape[0], shape[3], shape[1], shape[2])
        return TensorDescription(attr.name.decode(), shape, DTYPES[attr.type], attr.scale, attr.zp)


def _check(call: str, code: int, context: Any = 0) -> None:
    """Raise RknnError unless a call succeeded, with the last error of its context, or of any call."""
    if code != t.RKNN_SUCC:
        raise RknnError(call, code, rk.last_error(context) or rk.last_error())


def matmul(
    a: Array,
    b: Array,
    kind: int,
    *,
    core_mask: int = 0,
    scales: Mapping[str, float | Sequence[float]] | None = None,
) -> Array:
    """Compute one matrix product on the current device.

    Parameters
    ----------
    a, b
        Arrays of shape (M, K) and (K, N): int8 (also for int4) or float16, according to `kind`.
    kind
        RKNN_INT8_MM_INT8_TO_INT32 and the like.
    core_mask
        RKNN_NPU_CORE_*.
    scales
        Scales of "A", "B" (one, or one per column) and "C".

    Raises
    ------
    RknnError
        If an argument is wrong or the product fails.
    """
    from rkcosim.compiler.matmul import pack_elements
    from rkcosim.rknn_api.matmul_state import TYPES as PRODUCTS

    columns = np.size((scales or {}).get("B", 1.0)) > 1
    packed = int(kind) == mt.RKNN_INT4_MM_INT4_TO_INT16
    info = mt.rknn_matmul_info(
        M=a.shape[0],
        K=a.shape[1],
        N=b.shape[1],
        type=int(kind),
        B_layout=mt.RKNN_MM_LAYOUT_NATIVE if packed else mt.RKNN_MM_LAYOUT_NORM,
        B_quant_type=2 * columns,
    )
    ctx, io = mt.rknn_matmul_ctx(), mt.rknn_matmul_io_attr()

    memory: dict[str, Any] = {}
    _check("rknn_matmul_create", rk.rknn_matmul_create(ct.byref(ctx), ct.byref(info), ct.byref(io)))
    try:
        if core_mask:
            _check("rknn_matmul_set_core_mask", rk.rknn_matmul_set_core_mask(ctx, core_mask))
        for name, values in (scales or {}).items():
            array = np.asarray(values, np.float32).reshape(-1)
            params = mt.rknn_quant_params(name=name.encode(), scale_len=array.size)
            params.scale = array.ctypes.data_as(ct.POINTER(ct.c_float))
            _check("rknn_matmul_set_quant_params", rk.rknn_matmul_set_quant_params(ctx, ct.byref(params)))
        matrices: tuple[tuple[str, Array | None], ...] = (("A", a), ("B", b), ("C", None))
        for name, matrix in matrices:
            attr = getattr(io, name)
            memory[name] = rk.rknn_create_mem(ctx, attr.size)
            if not memory[name]:
                raise RknnError("rknn_create_mem", t.RKNN_ERR_MALLOC_FAIL, rk.last_error())
            if matrix is not None and packed and name == "B":
                numbers = np.ascontiguousarray(matrix, np.int8)
                convert = rk.rknn_B_normal_layout_to_native_layout
                place = memory[name].contents.virt_addr
                _check(convert.__name__, convert(numbers.ctypes.data, place, *numbers.shape, ct.byref(info)))
            elif matrix is not None:
                data = pack_elements(matrix, PRODUCTS[kind][0].bits)
                ct.memmove(memory[name].contents.virt_addr, data.ctypes.data, attr.size)
            _check("rknn_matmul_set_io_mem", rk.rknn_matmul_set_io_mem(ctx, memory[name], ct.byref(attr)))
        _check("rknn_matmul_run", rk.rknn_matmul_run(ctx))
        raw = ct.string_at(memory["C"].contents.virt_addr, io.C.size)
        return np.frombuffer(raw, DTYPES[io.C.type]).reshape(a.shape[0], b.shape[1])
    finally:
        for pointer in memory.values():
            if pointer:
                rk.rknn_destroy_mem(ctx, pointer)
        rk.rknn_matmul_destroy(ctx)


def _array(tensor: cu.rknn_custom_op_tensor) -> Array:
    shape = tuple(tensor.attr.dims[: tensor.attr.n_dims])
    raw = (ct.c_uint8 * tensor.attr.size).from_address(tensor.mem.virt_addr + tensor.mem.offset)
    return np.ctypeslib.as_array(raw).view(DTYPES[tensor.attr.type]).reshape(shape)


def _guarded(function: Callable[..., int]) -> Callable[..., int]:
    """Convert an exception of a callback to an error code: ctypes would only print it."""

    def call(*args: Any) -> int:
        try:
            return function(*args)
        except Exception as error:
            state.log.error("custom operator: %s: %s", type(error).__name__, error)
            return int(t.RKNN_ERR_FAIL)

    return call
