"""A model on librknnrt.so: class RKNNRuntime and the structs of the C header.

Programs reach it by `RKNNLite().rknn_runtime` and `from rknnlite.api import rknn_runtime`. Names and
arguments are those that public programs use of RKNN-Toolkit Lite2 2.3.2, for example immich-app/immich
(machine-learning/immich_ml/sessions/rknn/rknnpool.py). Methods raise exceptions, as there.
"""

from __future__ import annotations

import ctypes as ct
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_LAYOUTS = json.loads(Path(__file__).with_name("declarations.json").read_text())
NUMBERS: dict[str, int] = _LAYOUTS["numbers"]
_C_TYPES: dict[str, Any] = {
    **{f"{name}_t": getattr(ct, f"c_{name}") for name in ("int8", "uint8", "int16", "int32", "uint32")},
    **{f"{name}_t": getattr(ct, f"c_{name}") for name in ("int64", "uint64")},
    **{"float": ct.c_float, "char": ct.c_char, "void *": ct.c_void_p, "char *": ct.c_char_p},
}

_USUAL = ("float32", "float16", "int8", "uint8", "int16")
"""Element types that rknn_inputs_set accepts for every input; other arrays are converted to float32."""

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
"""Element types that it accepts for inputs of integers: float32 does not have all of their numbers."""

_LARGE = ("int32", "uint32", "int64")
"""Those of them whose inputs have no quantisation."""

_TYPES = {name: NUMBERS[f"RKNN_TENSOR_{name.upper()}"] for name in dict.fromkeys((*_USUAL, *_INTEGERS))}
"""Codes of these types."""

_CODES = {NUMBERS[name]: name for name in NUMBERS if name.startswith("RKNN_ERR_")}

FORMATS = ("nhwc", "nchw")
"""Orders of the dimensions of an array of four dimensions."""


def struct(name: str, made: str | None = None) -> Any:
    """Return a struct of the header as a ctypes class with the name `made`."""
    fields = []
    for member, kind, *lengths in _LAYOUTS["structs"][name]:
        whole = _C_TYPES[kind]
        for length in reversed(lengths):
            whole = whole * length
        fields.append((member, whole))
    return type(made or name, (ct.Structure,), {"_fields_": fields})


RKNNInputOutputNum = struct("rknn_input_output_num", "RKNNInputOutputNum")
RKNNTensorAttr = struct("rknn_tensor_attr", "RKNNTensorAttr")
RKNNInputRange = struct("rknn_input_range", "RKNNInputRange")
RKNNSDKVersion = struct("rknn_sdk_version", "RKNNSDKVersion")
RKNNInput = struct("rknn_input", "RKNNInput")
RKNNOutput = struct("rknn_output", "RKNNOutput")
RKNNRunExtend = struct("rknn_run_extend", "RKNNRunExtend")

# A name of the same member in the vendor's class, which a public program reads.
RKNNTensorAttr.stride_with_stride = property(lambda attr: attr.size_with_stride)

_CONTEXT, _POINTER, _COUNT = ct.c_uint64, ct.c_void_p, ct.c_uint32
_ARGUMENTS: dict[str, list[Any]] = {
    "rknn_init": [_POINTER, ct.c_char_p, _COUNT, _COUNT, _POINTER],
    "rknn_dup_context": [_POINTER, _POINTER],
    "rknn_destroy": [_CONTEXT],
    "rknn_query": [_CONTEXT, ct.c_int, _POINTER, _COUNT],
    "rknn_inputs_set": [_CONTEXT, _COUNT, _POINTER],
    "rknn_set_input_shapes": [_CONTEXT, _COUNT, _POINTER],
    "rknn_set_core_mask": [_CONTEXT, ct.c_int],
    "rknn_set_batch_core_num": [_CONTEXT, ct.c_int],
    "rknn_run": [_CONTEXT, _POINTER],
    "rknn_wait": [_CONTEXT, _POINTER],
    "rknn_outputs_get": [_CONTEXT, _COUNT, _POINTER, _POINTER],
    "rknn_outputs_release": [_CONTEXT, _COUNT, _POINTER],
}
"""Argument types of the functions of `RKNNRuntime.lib`, which programs call with plain numbers."""


def error_name(code: int) -> str:
    """Return the header's name of an error code, for example RKNN_ERR_PARAM_INVALID."""
    return _CODES.get(code, str(code))


class RKNNRuntime:
    """A model on the NPU.

    Parameters
    ----------
    root_dir, target, device_id, async_mode : accepted without effect: there is one device.
    core_mask : cores that run the model, RKNN_NPU_CORE_* of the header.

    Members
    -------
    lib : ctypes handle of librknnrt.so, whose functions have their argument types.
    context : number of the open context, 0 without a model.
    is_dynamic_shape : whether the model has several shapes; `set_inputs` then selects one.
    graph_is_built : whether a model is open.
    n_inputs, n_outputs : their numbers.

    Raises
    ------
    OSError
        If there is no librknnrt.so.
    """

    def __init__(
        self,
        root_dir: str | None = None,
        target: str | None = None,
        device_id: str | None = None,
        async_mode: bool = False,
        core_mask: int = 0,
        **others: Any,
    ) -> None:
        self.root_dir, self.target, self.device_id = root_dir, target, device_id
        self.async_mode, self.core_mask = async_mode, core_mask
        self.lib = ct.CDLL(self._get_rknn_api_lib_path())
        for name, arguments in _ARGUMENTS.items():
            getattr(self.lib, name).argtypes = arguments
        self.context = 0
        self.is_dynamic_shape = self.graph_is_built = False

    def _get_rknn_api_lib_path(self) -> str:
        """Return the name of the library; programs replace this method to load another one."""
        return "librknnrt.so"

    def build_graph(self, rknn_data: bytes, load_model_in_npu: bool = False, flag: int = 0) -> None:
        """Open a model.

        Parameters
        ----------
        rknn_data : the bytes of its file.
        load_model_in_npu : no effect.
        flag : RKNN_FLAG_* of the header.

        Raises
        ------
        Exception
            With the name of the error code.
        """
        self.release()
        opened = _CONTEXT()
        code = self.lib.rknn_init(ct.byref(opened), rknn_data, len(rknn_data), flag, None)
        self._check(code, "RKNN init failed. error code: {}")
        self.context = int(opened.value)
        self.graph_is_built = True
        if self.core_mask:
            code = self.lib.rknn_set_core_mask(self.context, self.core_mask)
            if code:
                self.release()
            self._check(code, "Set core mask failed. error code: {}")
        found = RKNNInputRange(index=0)
        size = ct.sizeof(found)
        command = NUMBERS["RKNN_QUERY_INPUT_DYNAMIC_RANGE"]
        self.is_dynamic_shape = self.lib.rknn_query(self.context, command, ct.byref(found), size) == 0

    @property
    def n_inputs(self) -> int:
        """The number of inputs."""
        return self.get_in_out_num()[0]

    @property
    def n_outputs(self) -> int:
        """The number of outputs."""
        return self.get_in_out_num()[1]

    def get_in_out_num(self) -> tuple[int, int]:
        """Return the numbers of inputs and outputs; raises Exception with the name of the error code."""
        counts = RKNNInputOutputNum()
        self._query("RKNN_QUERY_IN_OUT_NUM", counts, "Query input and output number failed")
        return int(counts.n_input), int(counts.n_output)

    def get_tensor_attr(self, index: int, is_output: bool = False) -> Any:
        """Return the attributes of an input or output as a `RKNNTensorAttr`.

        For a model of several shapes they are those of the largest one; `current_attr` has those of the
        selected one. Raises Exception with the name of the error code.
        """
        attr = RKNNTensorAttr(index=index)
        which = "OUTPUT" if is_output else "INPUT"
        what = f"Query tensor attribute of {which.lower()} node(s) failed"
        self._query(f"RKNN_QUERY_{which}_ATTR", attr, what)
        return attr

    def current_attr(self, index: int, is_output: bool = False) -> Any:
        """Return the attributes of an input or output in the selected shape; raises as `get_tensor_attr`."""
        if not self.is_dynamic_shape:
            return self.get_tensor_attr(index, is_output)
        attr = RKNNTensorAttr(index=index)
        which = "OUTPUT" if is_output else "INPUT"
        what = f"Query current tensor attribute of {which.lower()} node(s) failed"
        self._query(f"RKNN_QUERY_CURRENT_{which}_ATTR", attr, what)
        return attr

    def set_inputs(
        self,
        inputs: Sequence[Any] | np.ndarray,
        data_type: str | None = None,
        data_format: Sequence[str | None] | str | None = None,
        inputs_pass_through: Sequence[int] | None = None,
    ) -> None:
        """Set all inputs; for a model of several shapes, first select the shape that they have.

        Parameters
        ----------
        inputs : an array for each input, or the array of the only input; of four dimensions in the order of
            `data_format`. Types other than float32, float16, int8, uint8 and int16 are converted to float32,
            but integers for an input of integers are not.
        data_type : no effect: the arrays have their types.
        data_format : "nhwc" (the default) or "nchw", for each input.
        inputs_pass_through : for each input, 1 if it already has the NPU's layout and type.

        Raises
        ------
        Exception
            If the inputs do not fit the model; the library has written the shapes of a model of several.
        """
        arrays = [inputs] if isinstance(inputs, np.ndarray) else inputs
        count = self.n_inputs
        if not isinstance(arrays, (list, tuple)) or len(arrays) != count:
            raise Exception(f"inputs must be a list of {count} arrays")
        formats: list[str | None]
        if data_format is None or isinstance(data_format, str):
            formats = [data_format] * count
        else:
            formats = list(data_format)
        passing = list(inputs_pass_through or [0] * count)
        if len(formats) != count or len(passing) != count:
            raise Exception("data_format and inputs_pass_through must name every input")
        for number, order in enumerate(formats):
            if order is not None and str(order).lower() not in FORMATS:
                raise Exception(f"data_format '{order}' of input {number} must be nhwc or nchw")
        given = [np.ascontiguousarray(array) for array in arrays]
        attrs = [self.get_tensor_attr(number) for number in range(count)]
        given = [_taken(array, attr.type) for array, attr in zip(given, attrs)]  # noqa: B905
        orders = [
            self._format(attr, order and str(order))
            for attr, order in zip(attrs, formats)  # noqa: B905
        ]
        if self.is_dynamic_shape:
            self._select(attrs, given, orders)
        items = (RKNNInput * count)()
        for number, (array, attr, order) in enumerate(zip(given, attrs, orders)):  # noqa: B905
            if not passing[number] and not self.is_dynamic_shape and array.size != attr.n_elems:
                wanted = list(attr.dims[: attr.n_dims])
                raise Exception(f"input {number} has shape {list(array.shape)}, the model takes {wanted}")
            items[number].index = number
            items[number].buf = array.ctypes.data
            items[number].size = array.nbytes
            items[number].pass_through = int(bool(passing[number]))
            items[number].type = _TYPES[array.dtype.name]
            items[number].fmt = NUMBERS[order]
        code = self.lib.rknn_inputs_set(self.context, count, items)
        self._check(code, "Set inputs failed. error code: {}")

    @staticmethod
    def _format(attr: Any, order: str | None) -> str:
        if attr.n_dims != 4:
            return "RKNN_TENSOR_UNDEFINED"
        return "RKNN_TENSOR_NCHW" if order is not None and order.lower() == "nchw" else "RKNN_TENSOR_NHWC"

    def _select(self, attrs: Sequence[Any], arrays: Sequence[np.ndarray], orders: Sequence[str]) -> None:
        """Select the shapes of the arrays."""
        asked = (RKNNTensorAttr * len(attrs))(*attrs)
        for attr, array, order in zip(asked, arrays, orders):  # noqa: B905
            if array.ndim > len(attr.dims):
                raise Exception(f"input {attr.index} has {array.ndim} dimensions")
            attr.n_dims = array.ndim
            attr.dims[: array.ndim] = list(array.shape)
            attr.n_elems, attr.fmt = array.size, NUMBERS[order]
        code = self.lib.rknn_set_input_shapes(self.context, len(asked), asked)
        self._check(code, "Set input shape failed. error code: {}")

    def run(self, frame_id: bool | None = None) -> tuple[int, int]:
        """Run the model once.

        Returns the code 0 and the number of the frame; raises Exception with the name of an error code.
        """
        extend = RKNNRunExtend()
        code = self.lib.rknn_run(self.context, ct.byref(extend))
        self._check(code, "RKNN run failed. error code: {}")
        return 0, int(extend.frame_id)

    def get_outputs(self, get_frame_id: bool = False) -> list[Any]:
        """Return the outputs as float32 arrays (four dimensions: N, C, H, W).

        `get_frame_id` has no effect: frames follow one another. Raises Exception with the name of an error
        code.
        """
        what = "Query current tensor attribute of output node(s) failed"
        attrs = [RKNNTensorAttr(index=number) for number in range(self.n_outputs)]
        for attr in attrs:  # after the run, so with sizes that depend on data
            self._query("RKNN_QUERY_CURRENT_OUTPUT_ATTR", attr, what)
        arrays = [np.zeros(tuple(attr.dims[: attr.n_dims]), np.float32) for attr in attrs]
        items = (RKNNOutput * len(arrays))()
        for number, array in enumerate(arrays):
            items[number].want_float = items[number].is_prealloc = 1
            items[number].index = number
            items[number].buf = array.ctypes.data
            items[number].size = array.nbytes
        code = self.lib.rknn_outputs_get(self.context, len(items), items, None)
        self._check(code, "Get outputs failed. error code: {}")
        return arrays

    def get_sdk_version(self) -> tuple[str, str]:
        """Return the versions of library and driver; raises Exception with the name of an error code."""
        version = RKNNSDKVersion()
        self._query("RKNN_QUERY_SDK_VERSION", version, "Query sdk version failed")
        return version.api_version.decode(), version.drv_version.decode()

    def release(self) -> None:
        """Close the model; may be called repeatedly."""
        if self.context:
            self.lib.rknn_destroy(self.context)
        self.context = 0
        self.is_dynamic_shape = self.graph_is_built = False

    def query(self, command: str, info: Any) -> int:
        """Fill a struct by rknn_query and return its code; `command` is a name of the header."""
        size = ct.sizeof(info)
        return int(self.lib.rknn_query(self.context, NUMBERS[command], ct.byref(info), size))

    def _query(self, command: str, info: Any, what: str) -> None:
        self._check(self.query(command, info), what + ", error code: {}")

    @staticmethod
    def _check(code: int, text: str) -> None:
        if code:
            raise Exception(text.format(error_name(code)))


def _taken(array: npt.NDArray[Any], kind: int) -> npt.NDArray[Any]:
    """Return an array in a type that rknn_inputs_set accepts for an input of the type `kind`."""
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    whole = kind in (*(_TYPES[name] for name in _LARGE), NUMBERS["RKNN_TENSOR_BOOL"])
    return array if array.dtype.name in (_INTEGERS if whole else _USUAL) else array.astype(np.float32)
