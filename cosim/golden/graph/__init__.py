"""Graph-level golden model: a network as integer arithmetic, without registers or layouts (DESIGN 6)."""

from cosim.golden.graph.ops import (
    Clamp,
    HostSoftmax,
    Node,
    Operand,
    Output,
    QAdd,
    QConv,
    QDepthwise,
    QGemm,
    QPool,
    QScale,
    Reshape,
    Stage,
)
from cosim.golden.graph.run import evaluate, run

__all__ = [
    "Clamp",
    "HostSoftmax",
    "Node",
    "Operand",
    "Output",
    "QAdd",
    "QConv",
    "QDepthwise",
    "QGemm",
    "QPool",
    "QScale",
    "Reshape",
    "Stage",
    "evaluate",
    "run",
]
