"""What the outputs of a quantised model gain if one of its layers stays in floating point.

The quantised model gets a twin of each candidate in floating point, which reads the candidate's own inputs.
The difference between the two results is added to the candidate's result, for one candidate at a time.  One
session thus stands for as many models as there are candidates, and nothing is calibrated or quantised again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from rkcosim.base import progress
from rkcosim.compiler.quantization.figures import Figures, Sums, worst_of
from rkcosim.compiler.quantization.quantizer import with_activations
from rkcosim.compiler.quantization.session import Sample, Session

Pair = tuple[onnx.NodeProto, onnx.NodeProto]

_TWIN, _OWN, _CHANGE, _WEIGHTS = "@twin", "@own", "@change", "@floats"


@dataclass(frozen=True)
class _Spot:
    """A tensor of the twin model to which a change is added, and the two tensors whose difference it is."""

    tensor: str
    wanted: str
    own: str


def output_gains(
    original: onnx.ModelProto,
    quantised: onnx.ModelProto,
    ends: Mapping[str, str],
    candidates: Sequence[str],
    pairs: Mapping[str, Pair],
    samples: Sequence[Sample],
) -> dict[str, Figures]:
    """Return the figures of the worst output, by the name of the layer that alone is in floating point.

    Parameters
    ----------
    original, quantised
        The models; nodes are matched by name.
    ends
        Names of the quantised model's outputs by those of the float model's.
    candidates
        Names of the nodes of the layers to try.  Those that the float model does not have are left out.
    pairs
        QuantizeLinear and DequantizeLinear of the quantised results, by the results' names.
    samples
        Arrays for the inputs of both models, by name.

    Raises
    ------
    ModelError
        If onnxruntime fails or is not installed.
    """
    twin = _Twin(original, quantised, pairs)
    spots = {name: spot for name in candidates if (spot := twin.add(name)) is not None}
    if not spots:
        return {}
    floats = Session(original, [])
    names = [name for spot in spots.values() for name in (spot.wanted, spot.own)]
    run = Session(twin.proto, list(dict.fromkeys(names)))
    changed = Session(twin.without_twins(), list(ends.values()))
    sums = {name: {end: Sums() for end in ends} for name in spots}
    with progress.step("trying layers in floating point", len(samples) * len(spots), "runs") as shown:
        for sample in samples:
            right, first = floats(sample), run(sample)
            for name, spot in spots.items():
                change = np.asarray(first[spot.wanted] - first[spot.own])
                found = changed({**sample, spot.tensor + _CHANGE: change}, only=list(ends.values()))
                for end, ours in ends.items():
                    sums[name][end].add(right[end], found[ours])
                shown.advance()
    return {
        name: worst_of({end: one.figures() for end, one in several.items()}) for name, several in sums.items()
    }


class _Twin:
    """A copy of the quantised model to which the twins of candidates are added."""

    def __init__(
        self, original: onnx.ModelProto, quantised: onnx.ModelProto, pairs: Mapping[str, Pair]
    ) -> None:
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(quantised)
        self._original, self._quantised, self._pairs = original, quantised, pairs
        self._theirs = {node.name: node for node in original.graph.node}
        self._constants = {item.name: item for item in original.graph.initializer}
        self._ours = {node.name: node for node in self.proto.graph.node}
        self._read = {name for node in self.proto.graph.node for name in node.input}
        self._makers = {name: node for node in self.proto.graph.node for name in node.output}
        self._changed: dict[str, _Spot] = {}
        self._known = {item.name for item in self.proto.graph.initializer}

    def add(self, candidate: str) -> _Spot | None:
        """Add the twin of a candidate; None if one of the models does not have its nodes."""
        group = [
            (self._theirs.get(name), self._ours.get(name))
            for name in with_activations(self._original, [candidate])
        ]
        twins: dict[str, str] = {}
        end = ""
        for theirs, ours in group:
            if theirs is None or len(theirs.output) != 1 or not (ours or end):
                return None
            made = self.proto.graph.node.add()
            made.CopyFrom(ours or theirs)  # the quantisation can stand for an activation function
            made.name = f"{theirs.name}{_TWIN}{candidate}"
            for place, name in enumerate(theirs.input):
                if name in self._constants:
                    made.input[place] = self._floats(name)
                else:
                    made.input[place] = twins.get(name) or self._source((ours or theirs).input[place])
            end = ours.output[0].removesuffix(_OWN) if ours else end
            made.output[0] = f"{theirs.output[0]}{_TWIN}{candidate}"
            twins[theirs.output[0]] = made.output[0]
        pair = self._pairs.get(end)
        # Nothing quantises a result that only the outputs of the model read.
        tensor = pair[1].output[0] if pair is not None and pair[1].output[0] not in self._read else end
        return _Spot(tensor, made.output[0], self._change(tensor))

    def without_twins(self) -> onnx.ModelProto:
        """Return a copy that only has the places for changes, not the twins."""
        made = onnx.ModelProto()
        made.CopyFrom(self.proto)
        nodes = [node for node in made.graph.node if _TWIN not in node.name]
        del made.graph.node[:]
        made.graph.node.extend(nodes)
        return made

    def _source(self, name: str) -> str:
        """Return the input of the model behind a tensor if one layer alone reads it, otherwise the tensor."""
        decoder = self._makers.get(name)
        coder = self._makers.get(decoder.input[0]) if decoder is not None else None
        alone = sum(read == name for node in self._quantised.graph.node for read in node.input) == 1
        if (
            alone
            and coder is not None
            and coder.input[0] in {item.name for item in self._original.graph.input}
        ):
            return coder.input[0]
        return name

    def _floats(self, name: str) -> str:
        """Return the name of a constant of the float model in this model."""
        ours = name + _WEIGHTS
        if ours not in self._known:
            self._known.add(ours)
            self.proto.graph.initializer.add().CopyFrom(self._constants[name])
            self.proto.graph.initializer[-1].name = ours
        return ours

    def _change(self, tensor: str) -> str:
        """Make a place for a change in front of all readers of a tensor; return the name of its own value."""
        if tensor + _CHANGE in self._known:
            return tensor + _OWN
        graph = self.proto.graph
        self._known.add(tensor + _CHANGE)
        maker = self._makers[tensor]
        maker.output[list(maker.output).index(tensor)] = tensor + _OWN
        graph.initializer.append(numpy_helper.from_array(np.zeros((), np.float32), tensor + _CHANGE))
        graph.input.append(onnx.helper.make_tensor_value_info(tensor + _CHANGE, onnx.TensorProto.FLOAT, None))
        graph.node.append(onnx.helper.make_node("Add", [tensor + _OWN, tensor + _CHANGE], [tensor]))
        return tensor + _OWN
