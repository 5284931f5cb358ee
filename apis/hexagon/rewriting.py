"""What preparation changes in a graph: a quantisation to the range that was found in the same data.

Graphs that were made from TensorFlow's find the range with Min_f and Max_f on the flattened data, along an
axis of a rank that these graphs do not tell.  nnlib replaces the three nodes by AutoQuantize, whatever the
axis (hexagon/src/prepare.c, `try_make_autoquantize`).
"""

from __future__ import annotations

from collections import Counter

from rkcosim.apis.hexagon.graph import Graph, GraphNode
from rkcosim.apis.hexagon.names import NUMBERS

QUANTIZE, AUTO = NUMBERS["Quantize"], NUMBERS["AutoQuantize"]
LOW, HIGH = ({NUMBERS[name], NUMBERS[f"{name}_ref"]} for name in ("Min_f", "Max_f"))
FEEDS = {NUMBERS["Flatten"], NUMBERS["Reshape"]}
"""Operations before Min_f and Max_f that are dropped with them."""


def rewrite(graph: Graph) -> None:
    """Replace each Quantize of a range from Min_f and Max_f; drop these nodes if nothing else reads them."""
    spare: set[int] = set()
    for node in graph.nodes:
        if node.operation != QUANTIZE or len(node.inputs) != 3:
            continue
        low, high = (graph.by_number[edge.source] for edge in node.inputs[1:])
        if low.operation not in LOW or high.operation not in HIGH:
            continue
        node.operation, node.inputs = AUTO, node.inputs[:1]
        graph.say(f"prepare: node 0x{node.number:x} (Quantize) is executed as AutoQuantize", 1)
        spare |= {low.number, high.number, *_feeds(graph, low), *_feeds(graph, high)}
    while dropped := _unread(graph) & spare:
        spare -= dropped
        graph.nodes = [node for node in graph.nodes if node.number not in dropped]
        for number in dropped:
            del graph.by_number[number]


def _feeds(graph: Graph, node: GraphNode) -> set[int]:
    """Return the nodes that only reshape the data of a Min_f or Max_f."""
    source = graph.by_number[node.inputs[0].source]
    return {source.number} if source.operation in FEEDS else set()


def _unread(graph: Graph) -> set[int]:
    readers = Counter(edge.source for node in graph.nodes for edge in node.inputs)
    return {node.number for node in graph.nodes if not readers[node.number]}
