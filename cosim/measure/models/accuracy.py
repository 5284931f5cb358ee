"""Outputs of a quantised model in the NPU's arithmetic, against its float original."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        As `npu_outputs`.
    """
    model = open_model(quantised)
    sums = {name: Sums() for name in original.outputs}
    wanted = original.run(samples)
    for right, found in zip(wanted, npu_outputs(original, quantised, samples), strict=True):
        for name, one in sums.items():
            one.add(right[name], found[name])
    scales = [info.scale if info.quantised else None for info in model.outputs]
    return {name: one.figures(scale) for (name, one), scale in zip(sums.items(), scales, strict=True)}


def npu_outputs(
    original: FloatModel, quantised: bytes, samples: Sequence[Mapping[str, npt.NDArray[Any]]]
) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the outputs of a compiled model for each sample, by their names in the float model.

    The layers run on the graph-level golden model; `rkcosim run --check` shows that it equals the RTL bit for
    bit.

    Parameters
    ----------
    original, quantised, samples
        As for `npu_figures`.

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
    with progress.step("computing in the NPU's arithmetic", len(samples), "samples") as shown:
        states = initial_states(model.graph)
        for sample in samples:
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
            parts = zip(*results, strict=True)
            yield {
                name: np.concatenate(several) if len(several) > 1 else several[0]
                for name, several in zip(names, parts, strict=True)
            }
            shown.advance()
