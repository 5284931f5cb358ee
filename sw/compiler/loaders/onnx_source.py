"""ONNX files as sources of graphs: read once, then made into a graph as often as needed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import onnx

from rkcosim.compiler.graph import Graph
from rkcosim.compiler.interpreters import Divided, batch_of
from rkcosim.compiler.loaders.onnx_base import CODINGS
from rkcosim.compiler.loaders.onnx_file import input_shape, read_onnx
from rkcosim.compiler.loaders.onnx_float import FloatLoader
from rkcosim.compiler.loaders.onnx_mixed import MixedLoader
from rkcosim.compiler.loaders.onnx_parts import ProgramBuilder, ValueTypes
from rkcosim.compiler.options import LoadOptions, load_options
from rkcosim.compiler.partition import join_parts


class OnnxSource:
    """An ONNX file that is read once and made into a graph as often as needed.

    Parameters
    ----------
    data
        The bytes of the file, or a model as `read_onnx` returns it.
    options
        How it is read; None for those of `using_options`.

    Raises
    ------
    ModelError
        If the file is damaged, or an option names what the model does not have.
    """

    def __init__(self, data: bytes | onnx.ModelProto, options: LoadOptions | None = None) -> None:
        self._options = options or load_options()
        if not isinstance(data, onnx.ModelProto):
            data = read_onnx(data, self._options, say=True)
        self._proto: onnx.ModelProto = data
        self._types = ValueTypes(self._proto)

    def graph(self, refused: Mapping[str, str] = MappingProxyType({})) -> Graph:
        """Return a new graph.

        Parameters
        ----------
        refused
            Nodes that the NPU cannot compute, with the reasons; the host computes them.

        Raises
        ------
        ModelError
            If neither NPU nor host can compute a node, or, without fallback, if the NPU cannot; the message
            names all such nodes.
        """
        quantised = any(node.op_type in CODINGS for node in self._proto.graph.node)
        kind = MixedLoader if quantised else FloatLoader
        hosted, inputs = dict(refused), set[str]()
        while True:
            loader = kind(self._proto, self._types, self._options, hosted, inputs)
            graph = loader.run()
            new = {name: why for name, why in loader.forced.items() if name not in hosted}
            if not new and loader.host_inputs <= inputs:
                join_parts(graph, ProgramBuilder(self._proto))
                return graph
            hosted |= new
            inputs |= loader.host_inputs

    def divided(self) -> Divided:
        """Return the file with the model of one sample, if its inputs are proven to be a batch."""
        samples, reason = batch_of(
            [
                tuple(size for size in input_shape(item) if isinstance(size, int))
                for item in self._proto.graph.input
            ]
        )
        if samples == 1:
            return Divided(self.graph, reason=reason)
        from rkcosim.compiler.loaders.onnx_batch import NotProven, divided

        try:
            found = divided(self._proto, samples)
        except NotProven as problem:
            return Divided(self.graph, reason=str(problem))
        axes = {name: (rows.axis, rows.per) for name, rows in found.rows.items()}
        return Divided(self.graph, OnnxSource(found.proto, self._options).graph, samples, axes)


def load_onnx(data: bytes) -> Graph:
    """Read an ONNX model in QDQ form, in floating point (it is then computed in fp16), or with both.

    Operators that the NPU cannot compute become parts for the host, unless `LoadOptions.fallback` is off.

    Parameters
    ----------
    data
        The bytes of the file.

    Raises
    ------
    ModelError
        If the file is damaged, operators are supported by neither NPU nor host (the message names all of
        them), or shapes or types are wrong.
    """
    return OnnxSource(data).graph()
