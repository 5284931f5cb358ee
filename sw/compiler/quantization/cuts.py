"""Models that are cut at inner tensors: what is in front becomes int8, what is behind stays in floats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy.typing as npt
import onnx

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.quantization.accuracy import MOVEMENTS
from rkcosim.compiler.quantization.forms import OnnxModel, Sample
from rkcosim.compiler.quantization.quantizer import Settings
from rkcosim.compiler.quantization.session import run_outputs

Array = npt.NDArray[Any]


def behind(proto: onnx.ModelProto, name: str, ops: Collection[str]) -> list[str]:
    """Return the names of the nodes behind the node `name` on whose way there are only operators of `ops`."""
    reached = {out for node in proto.graph.node if node.name == name for out in node.output}
    found = []
    for node in proto.graph.node:  # in topological order
        if node.op_type in ops and reached.intersection(node.input):
            reached.update(node.output)
            found.append(node.name)
    return found


def before_concat(proto: onnx.ModelProto, name: str) -> list[str]:
    """Return the outputs of the model that is cut before a Concat behind which values are only moved.

    Parameters
    ----------
    proto
        A float model.
    name
        Name of the Concat's node.

    Returns
    -------
    The outputs that do not depend on the Concat, and its inputs; empty if something computes with its result.
    """
    concat = next(node for node in proto.graph.node if node.name == name)
    moved = {name, *behind(proto, name, MOVEMENTS)}
    reached = set(concat.output)
    for node in proto.graph.node:
        if reached.intersection(node.input):
            if node.name not in moved:
                return []
            reached.update(node.output)
    constants = {item.name for item in proto.graph.initializer}
    others = [item.name for item in proto.graph.output if item.name not in reached]
    parts = [one for one in dict.fromkeys(concat.input) if one not in constants]
    return list(dict.fromkeys([*others, *parts]))


def runs_of_cut(
    model: OnnxModel,
    cut: Sequence[str],
    learnt: Sequence[Sample],
    fresh: Sequence[Sample],
    settings: Settings,
) -> tuple[list[dict[str, Array]], bytes]:
    """Return the outputs of a model whose part in front of a cut is quantised, and the file of this part.

    Parameters
    ----------
    model
        The float model.
    cut
        Names of the tensors that are the outputs of the quantised part.
    learnt, fresh
        Samples to calibrate with, and those whose outputs are returned.
    settings
        As for `FloatModel.quantize`.

    Raises
    ------
    ModelError
        If the model cannot be cut there, or as `FloatModel.quantize`.
    """
    inputs = [item.name for item in model.proto.graph.input]
    front = OnnxModel(_between(model.proto, inputs, cut))
    made = front.quantize(learnt, settings)
    found = front.run_quantised(made, fresh)
    ends = [name for name in model.outputs if name not in cut]
    rest = _between(model.proto, list(cut), ends)
    takes = {item.name for item in rest.graph.input}
    given: list[Mapping[str, Array]] = [{**sample, **one} for sample, one in zip(fresh, found, strict=True)]
    computed = run_outputs(rest, [{name: one[name] for name in takes} for one in given])
    whole = [
        {name: {**one, **more}[name] for name in model.outputs}
        for one, more in zip(found, computed, strict=True)
    ]
    return whole, made


def _between(proto: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """Return the part of a model between tensors."""
    try:
        return onnx.utils.Extractor(proto).extract_model(list(inputs), list(outputs))
    except (ValueError, KeyError, onnx.checker.ValidationError) as error:
        text = " ".join(str(error).split())[:200]
        raise ModelError(f"the model cannot be cut at {', '.join(outputs)}: {text}") from error
