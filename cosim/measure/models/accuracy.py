"""Outputs of a quantised model in the NPU's arithmetic, against its float original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base import progress
from rkcosim.compiler.batch import one_of, samples_of
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_calls import following_states, initial_states
from rkcosim.compiler.quantization import Figures, FloatModel
from rkcosim.compiler.quantization.figures import Sums
from rkcosim.rknn_file.opening import open_model
from rkcosim.verify.crosscheck.model_check import graph_tensors


def npu_figures(
    original: FloatModel, quantised: bytes, samples: Sequence[Mapping[str, npt.NDArray[Any]]]
) -> dict[str, Figures]:
    """Compare the outputs of a compiled model with those of its float original.

    The layers run on the graph-level golden model; `rkcosim run --check` shows that it equals the RTL bit for
    bit.

    Parameters
    ----------
    original
        The float model.
    quantised
        The bytes of the quantised model.
    samples
        Arrays for the inputs, by name.

    Returns
    -------
    The figures of each output, by its name in the float model.

    Raises
    ------
    ModelError
        If the model cannot be compiled, or has other outputs than its original.
    """
    model = open_model(quantised)
    one = one_of(model)
    names = original.outputs
    if len(names) != len(model.outputs):
        raise ModelError(f"the float model has {len(names)} outputs, the compiled one {len(model.outputs)}")
    sums = {name: Sums() for name in names}
    wanted = original.run(samples)
    with progress.step("computing in the NPU's arithmetic", len(samples), "samples") as shown:
        states = initial_states(model.graph)
        for sample, right in zip(samples, wanted, strict=True):
            results = list[list[npt.NDArray[Any]]]()
            for values in samples_of(model, [sample[info.name] for info in model.inputs]):
                cubes = [one.encode_input(number, array) for number, array in enumerate(values)]
                tensors = graph_tensors(one, cubes, states)

                def read(name: str, tensors: Mapping[str, Any] = tensors) -> npt.NDArray[Any]:
                    return np.asarray(tensors[one.graph.root(name)]).reshape(
                        one.graph.tensors[name].kept_shape
                    )

                states = following_states(one.graph, read)
                results.append([np.asarray(one.decode_output(number, read)) for number in range(len(names))])
            for number, name in enumerate(names):
                parts = [outputs[number] for outputs in results]
                sums[name].add(right[name], np.concatenate(parts) if len(parts) > 1 else parts[0])
            shown.advance()
    scales = [info.scale if info.quantised else None for info in model.outputs]
    return {name: sums[name].figures(scale) for name, scale in zip(names, scales, strict=True)}
