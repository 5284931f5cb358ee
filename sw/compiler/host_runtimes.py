"""Runtimes that compute parts of a model on the host: onnxruntime, onnx' evaluator, LiteRT, custom operators.

A runtime reads a program (`rkcosim.compiler.graph.Program`) in its format and computes arrays from arrays.
The packages are optional: a program that needs a missing one is refused with the name of the extra.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.base.extras import install
from rkcosim.base.processes import resident
from rkcosim.compiler.graph import ModelError

Array = npt.NDArray[Any]

LONGEST = 600.0
"""Seconds after which a program of any runtime is ended."""

Function = Callable[[Sequence[Array]], list[Array]]
"""Computes the arrays of a program's outputs from those of its inputs, both in the program's order."""


class HostRuntime(Protocol):
    """A runtime for parts of a model.

    Members
    -------
    name
        Name in messages, as the project calls itself.
    extra
        The extra of this package that installs it.
    """

    name: str
    extra: str

    def load(self, data: bytes, takes: Sequence[str], gives: Sequence[str]) -> Function:
        """Read a program.

        Parameters
        ----------
        data
            The program in the runtime's format.
        takes, gives
            Names of the inputs and outputs in it.

        Raises
        ------
        ImportError
            If the package is not installed.
        ModelError
            If the runtime refuses the program.
        """
        ...


def import_onnxruntime() -> Any:
    """Return the module onnxruntime, which then writes no records of events to a file in the user's cache.

    The environment variable must be set before the import.  With `disable_telemetry_events` alone, version
    1.32 opens that file when a model is refused.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def exact_options(onnxruntime: Any) -> Any:
    """Return options of a session whose integer sums are exact on every processor.

    By default, onnxruntime's products of uint8 and int8 saturate sums of two at 16 bits on processors that
    have AVX2 but no VNNI (see `session.x64quantprecision` in onnxruntime's documentation).
    """
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


class OnnxRuntime:
    """onnxruntime on ONNX models, on one thread, so that results do not depend on the machine's load."""

    name, extra = "onnxruntime", "onnx"

    def load(self, data: bytes, takes: Sequence[str], gives: Sequence[str]) -> Function:
        """Read an ONNX model; see `HostRuntime.load`."""
        onnxruntime = import_onnxruntime()
        loops = has_loop(refuse_external(data))
        options = exact_options(onnxruntime)
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # it keeps what the largest run needed; sessions live long here
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exception classes have no public base class
            raise ModelError(f"onnxruntime refuses a part of the model: {_short(error)}") from error

        def run(arrays: Sequence[Array]) -> list[Array]:
            try:
                results = limited(session, list(gives), dict(zip(takes, arrays, strict=True)), loops=loops)
            except NotBoundedError:
                raise
            except Exception as error:  # as above
                problem = ModelError(f"onnxruntime fails on a part of the model: {_short(error)}")
                try:  # operators that it accepts but lacks in some form
                    return OnnxReference().load(data, takes, gives)(arrays)
                except ModelError:
                    raise problem from error
            return [_plain(result) for result in results]

        return run


LOOP_SECONDS = 20.0
LOOP_BYTES = 2 << 30
"""Seconds that a model with a loop may run, and bytes by which this process may grow meanwhile.

The number of turns of a loop is a value of the model, so that a file of 400 bytes may never end.
"""

_LOOK_SECONDS = 0.05


class NotBoundedError(ModelError):
    """A program needs too much time or memory; whoever only tries a program lets this pass."""


def has_loop(proto: Any) -> bool:
    """Whether a model of the package onnx has a Loop or Scan, also in functions and in bodies of nodes."""
    return any(node.op_type in ("Loop", "Scan") for node in onnx_nodes(proto.graph, *proto.functions))


def limited(session: Any, gives: list[str] | None, feed: dict[str, Array], *, loops: bool) -> list[Any]:
    """Run a session of onnxruntime, which signals and limits end; raises what the session raises.

    Parameters
    ----------
    gives, feed
        Names of the outputs (None: all), and arrays by the names of the inputs.
    loops
        Whether the program has a loop (`has_loop`); then `LOOP_SECONDS` and `LOOP_BYTES` hold, otherwise
        `LONGEST` seconds.

    Raises
    ------
    NotBoundedError
        If the program needs more time or memory.
    """
    onnxruntime = import_onnxruntime()
    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    results: list[Any] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            results.extend(session.run(gives, feed, options))
        except BaseException as error:
            problems.append(error)

    # A handler of a signal runs in the main thread, and only while that is not in onnxruntime.
    thread = threading.Thread(target=work, name="onnxruntime", daemon=True)
    thread.start()
    try:
        reason = _watch(thread, LOOP_SECONDS if loops else LONGEST, LOOP_BYTES if loops else None)
    except BaseException:
        _end(thread, options)
        raise
    if reason:
        _end(thread, options)
        raise NotBoundedError(f"onnxruntime needs more than {reason} for a part of the model")
    if problems:
        raise problems[0]
    return results


_GRACE_SECONDS = 5.0
"""Time for onnxruntime to end after it was told to, which it looks at between two nodes."""


def _end(thread: threading.Thread, options: Any) -> None:
    """Tell onnxruntime to end, and wait for it.

    Python ends threads that are left in a way that aborts C++ code, so further signals do not end this wait.
    """
    options.terminate = True
    end = time.monotonic() + _GRACE_SECONDS
    while thread.is_alive() and time.monotonic() < end:
        try:
            thread.join(_LOOK_SECONDS)
        except BaseException:  # the caller raises the first one
            pass


def _watch(thread: threading.Thread, seconds: float, most: int | None) -> str:
    """Wait for a thread; return what it exceeds, or nothing."""
    end = time.monotonic() + seconds
    before = resident()
    while True:
        thread.join(_LOOK_SECONDS)
        if not thread.is_alive():
            return ""
        if time.monotonic() > end:
            return f"{seconds:.0f} s" + (" in a loop" if most else "")
        if most is not None and resident() - before > most:
            return f"{most >> 30} GiB of memory in a loop"


class OnnxReference:
    """The reference evaluator of the package onnx: slow, but it has operators that onnxruntime lacks."""

    name, extra = "onnx", "onnx"

    def load(self, data: bytes, takes: Sequence[str], gives: Sequence[str]) -> Function:
        """Read an ONNX model; see `HostRuntime.load`."""
        from onnx.reference import ReferenceEvaluator

        refuse_external(data)
        try:
            evaluator = ReferenceEvaluator(data)
        except Exception as error:  # any exception of the evaluator
            raise ModelError(f"onnx' evaluator refuses a part of the model: {_short(error)}") from error

        def run(arrays: Sequence[Array]) -> list[Array]:
            try:
                with np.errstate(all="ignore"):
                    results: Any = evaluator.run(list(gives), dict(zip(takes, arrays, strict=True)))
            except Exception as error:  # any exception of the evaluator
                raise ModelError(f"onnx' evaluator fails on a part of the model: {_short(error)}") from error
            return [_plain(result) for result in results]

        return run


CUSTOM = "custom-operators"
"""Name of the runtime of operators that other packages add (`rkcosim.compiler.custom_operators`)."""

RUNTIMES = {
    "onnxruntime": f"{__name__}:OnnxRuntime",
    "onnx-reference": f"{__name__}:OnnxReference",
    "litert": "rkcosim.compiler.litert:LiteRtRuntime",
    CUSTOM: "rkcosim.compiler.custom_operators:CustomOperators",
}
"""Classes of the runtimes, which are imported on first use, by the name that a `Program` has."""


@functools.cache
def runtime_of(name: str) -> HostRuntime:
    """Return the runtime with a name of `RUNTIMES`."""
    made: HostRuntime = resolve_name(RUNTIMES[name])()
    return made


def load_program(runtime: str, data: bytes, takes: Sequence[str], gives: Sequence[str]) -> Function:
    """Return the function of a program; programs that were read before are kept.

    Raises
    ------
    ModelError
        If the runtime is unknown or not installed (the message names the extra), or refuses the program.
    """
    if runtime not in RUNTIMES:
        raise ModelError(f"a part of the model is for the runtime '{runtime}', which is not known")
    return _loaded(runtime, hashlib.sha256(data).digest(), _Bytes(data), tuple(takes), tuple(gives))


class _Bytes:
    """Bytes that are not compared: the digest beside them is the key of the cache."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=64)
def _loaded(
    runtime: str, digest: bytes, data: _Bytes, takes: tuple[str, ...], gives: tuple[str, ...]
) -> Function:
    item = runtime_of(runtime)
    try:
        return item.load(data.data, takes, gives)
    except ImportError as error:
        raise missing(item.name, item.extra, error) from error


def missing(name: str, extra: str, error: ImportError | None = None) -> ModelError:
    """Return the error for a runtime that is not installed, or that cannot be imported because of `error`."""
    absent = error is None or isinstance(error, ModuleNotFoundError)
    why = f"is not installed: {install(extra)}" if absent else f"cannot be imported: {_short(error)}"
    return ModelError(f"a part of the model runs on the host in {name}, which {why}")


def refuse_external(data: bytes) -> Any:
    """Return an ONNX model (ModelProto); refuse one whose tensors are in other files or of an unknown type.

    onnx' checker takes element types that the package does not have, and its functions then raise KeyError.

    Raises
    ------
    ModelError
        If there is such a tensor, or the bytes are no ONNX model.
    """
    import onnx
    from onnx.external_data_helper import uses_external_data

    try:
        proto = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's DecodeError; its class is not part of onnx' interface
        raise ModelError(f"a part of the model is damaged: {_short(error)}") from error
    known = set(onnx.TensorProto.DataType.values())
    for tensor in onnx_tensors(proto.graph, *proto.functions):
        if uses_external_data(tensor):
            how = "load the model by its path, or save it as one file"
            raise ModelError(f"tensor '{tensor.name}' is in another file; {how}")
        if tensor.data_type not in known:
            raise ModelError(
                f"tensor '{tensor.name}' has the element type {tensor.data_type}, which is unknown"
            )
    for info in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if info.type.tensor_type.elem_type not in known:
            kind = info.type.tensor_type.elem_type
            raise ModelError(f"value '{info.name}' has the element type {kind}, which is unknown")
    return proto


def onnx_nodes(*bodies: Any) -> Iterator[Any]:
    """Yield every node of graphs and functions (NodeProto), also those in bodies of nodes."""
    for body in bodies:
        for node in body.node:
            yield node
            for item in node.attribute:
                yield from onnx_nodes(*([item.g] if item.HasField("g") else []), *item.graphs)


def onnx_tensors(*bodies: Any) -> Iterator[Any]:
    """Yield every tensor of graphs and functions (TensorProto), also those in attributes."""
    for body in bodies:
        yield from getattr(body, "initializer", ())
        for node in body.node:
            for item in node.attribute:
                yield from (item.t, *item.tensors)
                yield from onnx_tensors(*([item.g] if item.HasField("g") else []), *item.graphs)


def _short(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:300]


def _plain(result: Any) -> Array:
    """Return a result as an array; sequences, maps and optional values have no place in a plan."""
    if isinstance(result, np.ndarray | np.generic | int | float | bool):
        return np.asarray(result)
    raise ModelError(f"a part of the model gives a {type(result).__name__}, not an array")
