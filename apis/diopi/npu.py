"""One operator on the NPU: a network of a few nodes, compiled, kept, and run on the RTL."""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from rkcosim.apis.diopi.values import DiopiError
from rkcosim.apis.link.instruments import open_machine
from rkcosim.compiler import ModelError, compile_model, keeping_tensors, using_cores
from rkcosim.compiler.options import using_options
from rkcosim.compiler.steps import HostStep
from rkcosim.driver import DriverError
from rkcosim.engines.protocol import EngineError
from rkcosim.running.machine import Left, Machine, Mismatch, RunningModel
from rkcosim.running.settings import Settings, read_settings

Array = npt.NDArray[Any]

OPTIONS_VARIABLE, RESULTS_VARIABLE = "RKCOSIM_DIOPI", "RKCOSIM_DIOPI_RESULTS"
"""Environment variables: options (`rkcosim.running.settings`) as lines name=value; a folder for results."""

COMPARE_VARIABLE = "RKCOSIM_DIOPI_COMPARE"
"""Environment variable; 1 compares each result of the NPU with the host's operator."""

OPSET = 20
MOST_SAMPLES = 256
"""Largest number of samples whose jobs run one after the other; the host computes larger batches."""

MOST_KEPT = 32
"""Networks that are kept in the device's memory; the one that was not used for longest is freed."""


@dataclass(frozen=True)
class EmittedNode:
    """A node of ONNX with one output: its type, the names of its inputs, and its attributes."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """An operator as a network of ONNX nodes.

    Members
    -------
    feeds : arrays of its inputs by name; each has all samples on its first axis, in parts of equal size.
    constants : arrays of weights and parameters by name.
    nodes : in the order of computation; the output of the last is the result.
    shape : shape of the last node's output, for one sample.
    result : shape of the operator's result, whose elements are the first of that output.
    samples : number of samples; one job after the other computes them.
    """

    feeds: Mapping[str, Array]
    nodes: Sequence[EmittedNode]
    shape: tuple[int, ...]
    result: tuple[int, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)
    samples: int = 1

    def sample(self, index: int) -> dict[str, Array]:
        """Return the arrays of one sample by name."""
        made = {}
        for name, array in self.feeds.items():
            size = len(array) // self.samples
            made[name] = array[index * size : (index + 1) * size]
        return made

    def model(self) -> bytes:
        """Return the bytes of the ONNX model, in float32; for a fixed opset."""
        made = self.nodes[-1].output
        inputs = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
            for name, array in self.sample(0).items()
        ]
        outputs = [helper.make_tensor_value_info(made, onnx.TensorProto.FLOAT, self.shape)]
        constants = [_constant(name, array) for name, array in self.constants.items()]
        nodes = [
            helper.make_node(node.kind, list(node.inputs), [node.output], node.output, **node.attributes)
            for node in self.nodes
        ]
        graph = helper.make_graph(nodes, "operator", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 10
        data: bytes = model.SerializeToString()
        return data


def _constant(name: str, array: Array) -> onnx.TensorProto:
    values = array.astype(np.float32) if array.dtype.kind == "f" else array
    return numpy_helper.from_array(np.ascontiguousarray(values), name)


@dataclass
class Account:
    """What an operator's calls took.

    Members
    -------
    npu, host : number of calls on the NPU and on the host.
    cycles : of the calls on the NPU.
    reasons : why calls ran on the host, with their numbers.
    """

    npu: int = 0
    host: int = 0
    cycles: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


class Npu:
    """The simulated NPU; it is opened by its first operator."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._machine: Machine | None = None
        self._settings: Settings | None = None
        self._ends = False
        self._kept: OrderedDict[bytes, RunningModel | str] = OrderedDict()
        self.accounts: dict[str, Account] = {}

    @property
    def settings(self) -> Settings:
        """The options of the environment; float32 stays on the host by default.  Raises DiopiError."""
        if self._settings is None:
            lines = os.environ.get(OPTIONS_VARIABLE, "").splitlines()
            given = dict(line.partition("=")[::2] for line in lines if line)
            try:
                settings = read_settings({"float": "host", **given})
            except ValueError as error:
                raise DiopiError(f"{OPTIONS_VARIABLE}: {error}") from error
            if folder := os.environ.get(RESULTS_VARIABLE):
                settings = replace(settings, json=Path(folder) / f"{os.getpid()}.json")
            self._settings = settings
        return self._settings

    @property
    def compare(self) -> bool:
        """Whether each result is compared with the host's operator."""
        return os.environ.get(COMPARE_VARIABLE, "") not in ("", "0")

    def takes(self, arrays: Sequence[Array]) -> str | None:
        """Return None if arrays of these types are the NPU's, otherwise the reason."""
        if any(not array.size for array in arrays):
            return "a tensor is empty"
        types = {array.dtype for array in arrays}
        if types == {np.dtype(np.float16)}:
            return None
        if types <= {np.dtype(np.float16), np.dtype(np.float32)}:
            return None if self.settings.float == "fp16" else "float32 without the option float=fp16"
        return f"the type {', '.join(sorted(map(str, types)))}"

    def account(self, name: str) -> Account:
        """Return the account of an operator."""
        return self.accounts.setdefault(name, Account())

    def on_host(self, name: str, reason: str) -> None:
        """Record a call on the host."""
        with self._lock:
            account = self.account(name)
            account.host += 1
            account.reasons[reason] = account.reasons.get(reason, 0) + 1

    def taken_back(self, name: str) -> None:
        """Record that the last result of an operator is not used; its cycles count."""
        with self._lock:
            self.account(name).npu -= 1

    def run(self, name: str, network: Network) -> Array | str:
        """Run an operator.

        Parameters
        ----------
        name : its name, for reports.
        network : the operator.

        Returns
        -------
        The result in float32 with values of float16; or why the NPU cannot do it.

        Raises
        ------
        DiopiError
            if the device reports an error, or a result differs from the golden models.
        """
        if network.samples > MOST_SAMPLES:
            return f"a batch of more than {MOST_SAMPLES} samples"
        with self._lock:
            account = self.account(name)
            results = []
            try:
                running = self._loaded(name, network)
                if isinstance(running, str):
                    return running
                for index in range(network.samples):
                    feeds = [array.astype(np.float32) for array in network.sample(index).values()]
                    with np.errstate(all="ignore"):
                        results += running.run(feeds, [False])
                    account.cycles += running.last_cycles
            except (DriverError, EngineError, Mismatch, ModelError, ValueError, OSError) as error:
                raise DiopiError(str(error)) from error
            account.npu += 1
            made = np.concatenate([np.asarray(result).reshape(-1) for result in results])
            return made[: int(np.prod(network.result))].reshape(network.result)

    def _loaded(self, name: str, network: Network) -> RunningModel | str:
        data = network.model()
        found = self._kept.get(data)
        if found is not None:
            self._kept.move_to_end(data)
            return found
        machine, settings = self._opened(), self.settings
        made: RunningModel | str
        try:
            with keeping_tensors(settings.check), using_cores(settings.cores):
                with using_options(floats="fp16", fallback=False), np.errstate(all="ignore"):
                    model = compile_model(data)
            if any(isinstance(step, HostStep) for step in model.plan.steps) or not model.plan.tasks:
                made = "no part of it is a task of the NPU"
            else:
                made = machine.load(name, model)
        except ModelError as error:
            made = str(error)
        self._kept[data] = made
        if len(self._kept) > MOST_KEPT:
            self._drop(self._kept.popitem(last=False)[1])
        return made

    def _drop(self, found: RunningModel | str) -> None:
        if self._machine is not None and not isinstance(found, str):
            self._machine.unload(found)

    def _opened(self) -> Machine:
        if self._machine is None:
            self._machine = open_machine(self.settings)
            if not self._ends:  # a program may end without finalize_library, or by an exception
                atexit.register(self.close)
                self._ends = True
            self._machine.finish(self._summary)
        return self._machine

    def _summary(self) -> tuple[dict[str, Any], list[str]]:
        lines, document = [], {}
        for name, account in sorted(self.accounts.items()):
            document[name] = vars(account)
            lines.append(
                f"{name}: {account.npu} calls on the NPU in {account.cycles:,} cycles, "
                f"{account.host} on the host"
            )
        return {"diopi": document}, lines

    def close(self) -> None:
        """Free everything, and write what the options ask for; a second call does nothing."""
        with self._lock:
            machine, self._machine, self._settings = self._machine, None, None
            self._kept.clear()
            if machine is not None:
                for name, account in self.accounts.items():
                    for reason in account.reasons:
                        machine.leave(Left(name, "operator", reason))
                machine.close()
            self.accounts.clear()
