"""Runtimes that compute parts of a model on the host: onnxruntime, onnx' evaluator, LiteRT, custom operators.

A runtime reads a program (`rkcosim.compiler.graph.Program`) in its format and computes arrays from arrays.
The packages are optional: a program that needs a missing one is refused with the name of the extra.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.base.extras import install
from rkcosim.compiler.custom_operators import runtime as custom_operators
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.litert import LONGEST, LiteRtRuntime

Array = npt.NDArray[Any]
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
        refuse_external(data)
        options = exact_options(onnxruntime)
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exception classes have no public base class
            raise ModelError(f"onnxruntime refuses a part of the model: {_short(error)}") from error

        def run(arrays: Sequence[Array]) -> list[Array]:
            try:
                results = limited(session, list(gives), dict(zip(takes, arrays, strict=True)))
            except Exception as error:  # as above
                problem = ModelError(f"onnxruntime fails on a part of the model: {_short(error)}")
                try:  # operators that it accepts but lacks in some form
                    return OnnxReference().load(data, takes, gives)(arrays)
                except ModelError:
                    raise problem from error
            return [_plain(result) for result in results]

        return run


def limited(session: Any, gives: list[str] | None, feed: dict[str, Array]) -> list[Any]:
    """Run a session of onnxruntime, and end it after `LONGEST` seconds; raises what the session raises."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    timer = threading.Timer(LONGEST, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        results: list[Any] = session.run(gives, feed, options)
        return results
    finally:
        timer.cancel()


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


RUNTIMES: dict[str, HostRuntime] = {
    "onnxruntime": OnnxRuntime(),
    "onnx-reference": OnnxReference(),
    "litert": LiteRtRuntime(),
    custom_operators.KEY: custom_operators.CustomOperators(),
}
"""Runtimes by the name that a `Program` has."""


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
    item = RUNTIMES[runtime]
    try:
        return item.load(data.data, takes, gives)
    except ImportError as error:
        raise missing(item.name, item.extra, error) from error


def missing(name: str, extra: str, error: ImportError | None = None) -> ModelError:
    """Return the error for a runtime that is not installed, or that cannot be imported because of `error`."""
    absent = error is None or isinstance(error, ModuleNotFoundError)
    why = f"is not installed: {install(extra)}" if absent else f"cannot be imported: {_short(error)}"
    return ModelError(f"a part of the model runs on the host in {name}, which {why}")


def refuse_external(data: bytes) -> None:
    """Refuse an ONNX model whose tensors are in other files, which a runtime would read.

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
    for tensor in onnx_tensors(proto.graph, *proto.functions):
        if uses_external_data(tensor):
            raise ModelError(f"tensor '{tensor.name}' is in another file; save the model as one file")


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
