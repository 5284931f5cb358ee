"""Functions of an ONNX file in place of their calls, so that their operators can run on the NPU."""

from __future__ import annotations

import onnx

from rkcosim.compiler.host_runtimes import onnx_nodes


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without calls of its own functions; the model itself if there are none.

    `onnx.inliner` replaces the calls; `onnx_bounds` has refused functions that call themselves or grow too
    large.  A function of an operator set that cannot be converted to the model's stays, and runs on the host
    as a whole.
    """
    if not proto.functions:
        return proto
    from onnx import inliner

    try:
        made = inliner.inline_local_functions(proto, convert_version=True)
    except Exception:  # onnx raises several classes for what it cannot convert
        return proto
    if made.functions:  # calls that are left need the operator sets of their domains
        return made
    used = {node.domain for node in onnx_nodes(made.graph)} | {""}
    kept = [item for item in made.opset_import if item.domain in used]
    del made.opset_import[:]
    made.opset_import.extend(kept)
    return made
