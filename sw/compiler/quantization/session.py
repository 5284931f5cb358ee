"""A model in onnxruntime with chosen tensors as outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import exact_options, import_onnxruntime, missing

Array = npt.NDArray[Any]
Sample = Mapping[str, Array]


class Session:
    """A model in onnxruntime, with chosen tensors as outputs.

    Members
    -------
    floats
        Names of the tensors of float32, known if a sample was given.
    """

    def __init__(self, proto: onnx.ModelProto, names: Sequence[str], sample: Sample | None = None) -> None:
        try:
            onnxruntime = import_onnxruntime()
        except ImportError as error:
            raise missing("onnxruntime", "onnx") from error
        made = onnx.ModelProto()
        made.CopyFrom(proto)
        given = {item.name for item in made.graph.output}
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in given)
        options = exact_options(onnxruntime)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session: Any = onnxruntime.InferenceSession(
                made.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exception classes have no public base class
            raise ModelError(f"onnxruntime refuses the model: {_short(error)}") from error
        self._names = [item.name for item in self._session.get_outputs()]
        given_inputs = (*self._session.get_inputs(), *self._session.get_overridable_initializers())
        self._takes = {item.name for item in given_inputs}
        self.floats: set[str] = set()
        if sample is not None:
            results = self(sample)
            self.floats = {name for name, value in results.items() if value.dtype == np.float32}

    def __call__(self, sample: Mapping[str, Any], only: Sequence[str] | None = None) -> dict[str, Array]:
        """Return the outputs by name, all or those of `only`; raises ModelError."""
        names = self._names if only is None else list(only)
        try:
            feed = {name: value for name, value in sample.items() if name in self._takes}
            results = self._session.run(names, feed)
        except Exception as error:  # as above
            raise ModelError(f"onnxruntime fails on the model: {_short(error)}") from error
        return {
            name: np.asarray(result)
            for name, result in zip(names, results, strict=True)
            if isinstance(result, np.ndarray)
        }


def run_outputs(proto: onnx.ModelProto, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Return the outputs of a model in onnxruntime by name, for each sample; raises ModelError."""
    run = Session(proto, [])
    return [run(sample) for sample in samples]


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
