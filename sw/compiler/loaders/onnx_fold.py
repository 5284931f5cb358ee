"""Folding of constants in ONNX models: onnxruntime's basic optimisation, or onnx' reference evaluator."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.graph import MAX_ELEMENTS
from rkcosim.compiler.host_runtimes import (
    NotBoundedError,
    exact_options,
    has_loop,
    import_onnxruntime,
    limited,
)

KEPT = [
    "QDQPropagationTransformer",
    "DoubleQDQPairsRemover",
    "EnsureUniqueDQForNodeUnit",
    "ReluQuantRewrite",
    "ClipQuantRewrite",
    "FuseReluClip",
    "CommonSubexpressionElimination",
    "ConstantSharing",
    "MatMulAddFusion",
    "ConvBNFusion",
]
"""Optimisers of onnxruntime's basic level that are not used: they replace operators that the NPU has, move
quantisations to other places, or give nodes other names."""

_SHAPES = {"Shape", "Size"}
_NEVER = {"DequantizeLinear", "QuantizeLinear", "RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"}


def runs(proto: onnx.ModelProto) -> bool:
    """Whether onnxruntime accepts a model and runs it on `probe_values`; True if it is not installed."""
    try:
        session: Any = open_session(proto)
    except ImportError:
        return True
    except Exception:  # its exception classes have no public base class
        return False
    if any(not isinstance(size, int) for item in session.get_inputs() for size in item.shape):
        return True
    try:
        limited(session, None, probe_values(session), loops=has_loop(proto))
    except NotBoundedError:
        raise
    except Exception:  # as above
        return False
    return True


def shapes_of_run(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of all values in a run of onnxruntime on `probe_values`; None if it does not run."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    known = {item.name for item in made.graph.output}
    names = [name for node in made.graph.node for name in node.output if name and name not in known]
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        session: Any = open_session(made)
        feed = probe_values(session)
        gives = [item.name for item in session.get_outputs() if item.type.startswith("tensor")]
        results = limited(session, gives, feed, loops=has_loop(made))
    except NotBoundedError:
        raise
    except Exception:  # it is not installed, or one of its classes without a public base class
        return None
    arrays = {**feed, **dict(zip(gives, results, strict=True))}
    return {name: tuple(array.shape) for name, array in arrays.items() if isinstance(array, np.ndarray)}


NUMPY: dict[str, Any] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(bool)": np.bool_,
    **{
        f"tensor({sign}int{bits})": np.dtype(f"{sign}int{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


"""Element types by onnxruntime's names."""


def probe_values(session: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return values for every input of a session of onnxruntime; open dimensions are 1.

    Numbers are 0, integers 1: onnxruntime does not survive an integer division by zero.
    """
    feed = {}
    for item in session.get_inputs():
        dtype = np.dtype(NUMPY.get(item.type, np.float32))
        shape = [size if isinstance(size, int) else 1 for size in item.shape]
        feed[item.name] = np.full(shape, 0 if dtype.kind == "f" else 1, dtype)
    return feed


def open_session(proto: onnx.ModelProto, path: Path | None = None) -> Any:
    """Open a model with onnxruntime; with a path the optimised model is written there."""
    onnxruntime = import_onnxruntime()
    options = exact_options(onnxruntime)
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_BASIC if path else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if path is not None:
        options.optimized_model_filepath = str(path)
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=KEPT
    )


def needed(proto: onnx.ModelProto) -> bool:
    """Whether a node other than a DequantizeLinear has only constant inputs or reads a shape."""
    constants = {item.name for item in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type in _SHAPES:
            return True
        if node.op_type in _NEVER or not node.output:
            continue
        if all(name in constants for name in node.input if name):
            return True
    return False


def fold(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its constants folded; the model itself if there is nothing to fold.

    onnxruntime's basic optimisation is used if it is installed and accepts the model, otherwise every node
    that has only constant inputs, or reads a known shape, is computed by onnx' reference evaluator.
    """
    if not needed(proto):
        return proto
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
        path = Path(folder) / "folded.onnx"
        try:
            open_session(proto, path)
            made = onnx.load_model(path)
        except ImportError:
            return fold_plainly(proto)
        except Exception:  # the exception classes of onnxruntime have no public base class
            return fold_plainly(proto)
    used = {node.domain for node in made.graph.node} | {"", *(f.domain for f in proto.functions)}
    imports = [item for item in made.opset_import if item.domain in used]
    del made.opset_import[:]
    made.opset_import.extend(imports)
    made.graph.name = proto.graph.name
    return made


WEIGHTS = 1024
"""Elements above which a constant counts as weights, whose numbers decide about no shape."""


def without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose large constants are inputs, which is enough to find shapes and types.

    Without it, inference copies hundreds of megabytes several times.
    """
    made, graph = onnx.ModelProto(), proto.graph
    for field in ("ir_version", "producer_name"):
        setattr(made, field, getattr(proto, field))
    made.opset_import.extend(proto.opset_import)
    made.functions.extend(proto.functions)
    made.graph.name = graph.name
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(made.graph, field).extend(getattr(graph, field))
    inputs = {item.name for item in graph.input}
    for item in graph.initializer:
        if math.prod(item.dims) <= WEIGHTS:
            made.graph.initializer.append(item)
        elif item.name not in inputs:
            made.graph.input.append(helper.make_tensor_value_info(item.name, item.data_type, item.dims))
    return made


def described(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without its large constants, with the types that onnx' inference finds.

    It is what shapes and types are read from; the model itself is returned if inference fails.
    """
    try:
        found = onnx.shape_inference.infer_shapes(without_weights(proto), data_prop=True)
    except Exception:  # onnx raises several classes
        return proto
    del found.graph.input[len(proto.graph.input) :]
    return found


def inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the types that onnx' inference finds; the model itself if that fails."""
    found = described(proto)
    if found is proto:
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for field in ("value_info", "output"):
        del getattr(made.graph, field)[:]
        getattr(made.graph, field).extend(getattr(found.graph, field))
    return made


def known_shapes(proto: onnx.ModelProto) -> dict[str, list[int]]:
    """Return the shapes of inputs and inner values without open dimensions, as a model describes them."""
    shapes = {}
    for item in (*proto.graph.input, *proto.graph.value_info):
        dims = item.type.tensor_type.shape.dim
        if item.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[item.name] = [dim.dim_value for dim in dims]
    return shapes


def _computed(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> bool:
    """Whether a node is computed if its inputs are constants: not a body, and no result that is too large."""
    bodies = any(item.HasField("g") or item.graphs for item in node.attribute)
    sizes = [math.prod(shapes[name]) for name in node.output if name in shapes]
    return node.op_type not in _NEVER and not bodies and max(sizes, default=0) <= MAX_ELEMENTS


def fold_plainly(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Fold nodes with constant inputs by onnx' reference evaluator, and shapes that inference finds."""
    from onnx.reference import ReferenceEvaluator

    made = onnx.ModelProto()
    made.CopyFrom(inferred(proto))
    shapes = known_shapes(made)
    constants = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}
    opsets = [item for item in proto.opset_import if item.domain in ("", "ai.onnx")]
    nodes = []
    for node in made.graph.node:
        results: Any = None
        if node.op_type == "Shape" and node.input[0] in shapes and not node.attribute:
            results = [np.array(shapes[node.input[0]], np.int64)]
        elif _computed(node, shapes) and all(name in constants for name in node.input if name):
            takes, gives = (
                [onnx.ValueInfoProto(name=name) for name in names if name]
                for names in (node.input, node.output)
            )
            small = helper.make_graph([node], "node", takes, gives)
            try:
                evaluator = ReferenceEvaluator(helper.make_model(small, opset_imports=opsets))
                results = evaluator.run(None, {name: constants[name] for name in node.input if name})
            except Exception:  # any exception of the evaluator; the node stays
                results = None
        names = [name for name in node.output if name]
        arrays = [
            item for item in results or [] if isinstance(item, np.ndarray) and item.size <= MAX_ELEMENTS
        ]
        if results is None or len(arrays) != len(names):
            nodes.append(node)
            continue
        for name, array in zip(names, arrays, strict=True):
            constants[name] = array
            made.graph.initializer.append(numpy_helper.from_array(array, name))
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made
