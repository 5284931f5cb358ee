"""Rules of graphs of Hexagon NN, their execution on the host, and the requests of the C library."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rkcosim.apis.hexagon.execution import BUFFER_SIZE, ERROR, NOT_PREPARED, Execution, HostOnly
from rkcosim.apis.hexagon.geometry import Padding
from rkcosim.apis.hexagon.graph import INPUT, RESERVED, Graph, GraphNode, State
from rkcosim.apis.hexagon.library import operations_header
from rkcosim.apis.hexagon.names import NAMES, NUMBERS
from rkcosim.apis.hexagon.operations import OPERATIONS
from rkcosim.apis.hexagon.tensors import Declared, Edge, Failure, Value, value
from tests import seeds
from tests.makers.hexagon_graphs import Builder, execute

ROOT = Path(__file__).resolve().parents[2]
F = np.float32


def simple() -> Builder:
    """INPUT, Relu_f, OUTPUT; the Relu has the number 2 and room for 16 bytes."""
    b = Builder()
    b.output(b.node("Relu_f", b.input(), room=16))
    return b


def test_numbers_of_operations() -> None:
    """Some numbers that nnlib's interface/ops.def gives."""
    known = {
        "INPUT": 0,
        "Const": 3,
        "QuantizedConv2d_8x8to32": 15,
        "Supernode_8x8p32to8": 183,
        "Convert_to_d32": 145,
    }
    known |= {
        "QuantizedRelu_8_ref": 22,
        "SuperFC_8x8p32to8": 228,
        "Requantize_8to8": 421,
        "QuantizedUnpack_8": 433,
    }
    assert {name: NUMBERS[name] for name in known} == known
    assert len(NAMES) == 434
    assert "    OP_Requantize_32to8 = 70,\n" in operations_header()


def test_twins_are_the_same_operation() -> None:
    for name in ("QuantizedRelu_8_ref", "QuantizedMaxPool_8_d32", "Supernode_8x8p32to8_d32"):
        known = OPERATIONS[NUMBERS[name]]
        assert name.startswith(known.name.rpartition("_")[0])


def test_execution() -> None:
    b = simple()
    outcome = execute(b.prepared(), [np.array([-1, 2], F)])
    assert outcome.outputs[0].reals.reshape(-1).tolist() == [0, 2]
    assert [node.executions for node in b.graph.nodes] == [1, 1, 1]


def test_order_of_calls() -> None:
    b = simple()
    assert Execution(b.graph, HostOnly(), [], []).run().result == NOT_PREPARED
    assert "not prepared" in b.graph.take_log()
    b.prepared()
    with pytest.raises(Failure, match="not under construction"):
        b.node("Relu_f", [Edge(1, 0)])
    with pytest.raises(Failure, match="not under construction"):
        b.constant(1.0)
    with pytest.raises(Failure, match="not under construction"):
        b.graph.prepare()


@pytest.mark.parametrize("number", [0, RESERVED, 0xFFFFFFFF])
def test_reserved_numbers(number: int) -> None:
    graph = Graph(1)
    with pytest.raises(Failure, match="reserved"):
        graph.append(GraphNode(number, INPUT))
    with pytest.raises(Failure, match="reserved"):
        graph.append_constant(number, (1, 1, 1, 1), np.zeros(4, np.uint8))


def test_appended_nodes_are_checked() -> None:
    graph = Graph(1)
    one = (Declared((), 4),)
    for node, text in (
        (GraphNode(1, 434), "there is no operation 434"),
        (
            GraphNode(1, NUMBERS["Proposal_f"]),
            r"node 0x1 \(Proposal_f\): the operation 251 is not implemented",
        ),
        (GraphNode(1, NUMBERS["Const"]), "a call of their own"),
        (GraphNode(1, NUMBERS["Relu_f"], declared=one), "0 inputs, but 1 is expected"),
        (GraphNode(1, NUMBERS["Relu_f"], inputs=(Edge(1, 0),)), "0 outputs, but 1 is expected"),
        (GraphNode(1, NUMBERS["AddN_f"], declared=one), "at least 1"),
    ):
        with pytest.raises(Failure, match=text):
            graph.append(node)
    with pytest.raises(Failure, match="elements"):
        graph.append_constant(1, (1 << 14, 1 << 14, 1, 1), np.zeros(0, np.uint8))
    assert not graph.nodes


def test_references_are_checked() -> None:
    graph = Graph(1)
    room = (Declared((), 4),)
    graph.append(GraphNode(1, INPUT, declared=room))
    graph.append(GraphNode(2, NUMBERS["Relu_f"], inputs=(Edge(9, 0),), declared=room))
    graph.append(GraphNode(3, NUMBERS["Relu_f"], inputs=(Edge(1, 1),), declared=room))
    graph.append(GraphNode(4, NUMBERS["Relu_f"], inputs=(Edge(5, 0),), declared=room))
    graph.append(GraphNode(5, NUMBERS["Relu_f"], inputs=(Edge(1, 0),), declared=room))
    graph.append(GraphNode(1, NUMBERS["Relu_f"], inputs=(Edge(5, 0),), declared=room))
    with pytest.raises(Failure, match="which comes later"):
        graph.prepare()
    log = graph.take_log()
    for text in (
        "node 0x1 (Relu_f): the number is used before",
        "node 0x9, which does not exist",
        "which has 1",
    ):
        assert text in log
    assert graph.state == State.CONSTRUCTION
    assert graph.take_log() == ""


def test_a_constant_may_be_given_twice() -> None:
    b = Builder()
    found = value(np.array([1, 2], F))
    for data in (found.data, found.data * 0):
        b.graph.append_constant(100, found.shape, data)
    b.output(b.node("Relu_f", [Edge(100, 0)]))
    assert execute(b.prepared()).outputs[0].reals.reshape(-1).tolist() == [1, 2]


def test_memory_of_the_caller_is_not_needed_after_the_call() -> None:
    b = Builder()
    data = value(np.array([1, 2], F)).data.copy()
    b.graph.append_constant(100, (1, 1, 1, 2), data)
    data[:] = 0
    b.output(b.node("Relu_f", [Edge(100, 0)]))
    assert execute(b.prepared()).outputs[0].reals.reshape(-1).tolist() == [1, 2]


def test_constants_in_parts() -> None:
    b = Builder()
    b.graph.append_constant(100, (1, 1, 1, 2), np.zeros(8, np.uint8))
    b.graph.populate(100, value(np.array([3], F)).data, 4)
    with pytest.raises(Failure, match="bytes 8 to 12 of 8"):
        b.graph.populate(100, np.zeros(4, np.uint8), 8)
    with pytest.raises(Failure, match="no constant 0x7"):
        b.graph.populate(7, np.zeros(4, np.uint8), 0)
    b.output(b.node("Relu_f", [Edge(100, 0)]))
    assert execute(b.prepared()).outputs[0].reals.reshape(-1).tolist() == [0, 3]


def test_declared_sizes_are_limits() -> None:
    b = simple()
    graph = b.prepared()
    assert execute(graph, [np.zeros(4, F)]).result == 0
    outcome = execute(graph, [np.zeros(5, F)])
    assert (outcome.result, outcome.node, outcome.operation) == (ERROR, 2, NUMBERS["Relu_f"])
    assert "node 0x2 (Relu_f): output 0 is too small: 16 of 20 bytes" in graph.take_log()
    few = Execution(graph, HostOnly(), [value(np.zeros(4, F))], [15]).run()
    assert few.result == BUFFER_SIZE
    assert few.outputs[0].data.size == 16
    assert "output 0 is too small: 15 of 16 bytes" in graph.take_log()


def test_numbers_of_inputs_and_outputs() -> None:
    graph = simple().prepared()
    assert execute(graph, []).result == ERROR
    assert "1 inputs are declared, but 0 were given" in graph.take_log()
    assert Execution(graph, HostOnly(), [value(np.zeros(4, F))], [64, 64]).run().result == ERROR
    assert "the graph has 1 outputs, but memory for 2 was given" in graph.take_log()


def test_several_graphs() -> None:
    first, second = simple(), Builder()
    second.output(second.node("Neg_f", second.input()))
    graphs = first.prepared(), second.prepared()
    for _ in range(2):
        found = [execute(graph, [np.array([1], F)]).outputs[0].reals.reshape(-1).tolist() for graph in graphs]
        assert found == [[1], [-1]]


def test_several_inputs_and_outputs() -> None:
    b = Builder()
    edges = b.input(2)
    b.output([*b.node("Sub_f", edges), *b.node("Sub_f", edges[::-1])])
    outcome = execute(b.prepared(), [np.array([5], F), np.array([3], F)])
    assert [one.reals.item() for one in outcome.outputs] == [2, -2]


def test_variables_keep_their_values() -> None:
    b = Builder()
    (held,) = b.node("Variable", [b.constant([10.0])])
    (total,) = b.node("Add_f", [held, *b.input()])
    b.node("Assign", [held, total], outputs=0)
    b.output([total])
    graph = b.prepared()
    found = [execute(graph, [np.array([1], F)]).outputs[0].reals.item() for _ in range(3)]
    assert found == [11, 12, 13]


def test_quantize_of_the_found_range() -> None:
    """Min_f and Max_f along the axis 0 of TensorFlow's flattened tensor: AutoQuantize instead."""
    b = Builder()
    (x,) = b.input()
    (flat,) = b.node("Flatten", [x])
    ends = [b.node(name, [flat, b.constant([0], np.int32)])[0] for name in ("Min_f", "Max_f")]
    quantized = b.node("Quantize", [x, *ends], 3)
    b.output(quantized)
    graph = b.prepared()
    names = [node.name for node in graph.nodes if node.name != "Const"]
    assert names == ["INPUT", "AutoQuantize", "OUTPUT"]
    outcome = execute(graph, [np.array([0, 5.1, 2], F)])
    assert outcome.outputs[0].codes.reshape(-1).tolist() == [0, 255, 100]


def test_texts() -> None:
    b = Builder()
    b.node("PPrint_f", b.node("Relu_f", b.input(), padding=Padding.SAME), outputs=0)
    graph = b.prepared()
    graph.debug_level = 2
    assert "node 0x2: operation 49 (Relu_f), padding SAME, 1 inputs, 1 outputs" in graph.text()
    assert "    input 0: output 0 of node 0x1" in graph.text()
    execute(graph, [np.array([1.5, -1], F)])
    log = graph.take_log()
    assert "[0,0,0,0] = 1.5" in log
    assert "[0,0,0,1] = 0" in log
    assert "on the host, 1 executions" in graph.text()


def test_log_is_bounded() -> None:
    graph = Graph(1)
    for _ in range(3000):
        graph.say("x" * 1000)
    assert 900_000 < len(graph.take_log()) < 1_100_000


def test_header_and_requests_have_the_same_numbers() -> None:
    """The numbers of native/hexagon_calls.h are those of `calls.HexagonRequest`."""
    import re

    from rkcosim.apis.hexagon.calls import HexagonRequest
    from rkcosim.apis.hexagon.library import SOURCES

    text = (SOURCES / "hexagon_calls.h").read_text()
    found = {name: int(number) for name, number in re.findall(r"HX_(\w+) = (\d+)", text)}
    assert found == {call.name: call.value for call in HexagonRequest}


def test_damaged_requests() -> None:
    """Numbers beyond the contents are an error of the protocol, not a crash."""
    from rkcosim.apis.hexagon.calls import HexagonCalls, HexagonRequest
    from rkcosim.apis.link.instruments import open_machine
    from rkcosim.apis.link.protocol import Message, ProtocolError
    from rkcosim.running.settings import Settings

    machine = open_machine(Settings(engine="golden"))
    try:
        calls = HexagonCalls(machine)

        def send(call: int, number: int, content: bytes) -> tuple[int, bytes]:
            answer, data = calls.answer(Message(call, number=number, used=len(content)), memoryview(content))
            return answer.number, data

        assert send(HexagonRequest.INIT, 0, bytes(8))[0] == 1
        assert send(HexagonRequest.PREPARE, 7, b"")[0] == 2**64 - 1
        assert struct.unpack("<4q", send(HexagonRequest.EXECUTE, 7, b"")[1])[0] == 4
        for call in (
            HexagonRequest.NODE,
            HexagonRequest.CONSTANT,
            HexagonRequest.POPULATE,
            HexagonRequest.EXECUTE,
        ):
            with pytest.raises(ProtocolError):
                send(call, 1, struct.pack("<3q", 1, 2, 2**60))
        with pytest.raises(ValueError, match="199"):
            send(199, 1, b"")
    finally:
        machine.close()


@pytest.mark.parametrize(
    "number", sorted({NUMBERS[one.name] for one in OPERATIONS.values()}), ids=NAMES.__getitem__
)
def test_no_tensor_is_too_strange(number: int) -> None:
    """Random tensors of random sizes: a node gives its outputs, or fails with a line in the log."""
    seed = seeds.seed(__name__)
    rng = np.random.default_rng(seed)
    operation = OPERATIONS[number]
    for _ in range(40):
        b = Builder()
        count = operation.inputs[0] + int(rng.integers(0, 2)) * (operation.inputs[1] != operation.inputs[0])
        edges = []
        for place in range(count):
            sizes = tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 4, 4))
            sizes = sizes if place < 2 or rng.random() < 0.3 else (1, 1, 1, int(rng.integers(1, 5)))
            kind = rng.choice(["u1", "f4", "i4", "none"])
            if kind == "none":
                edges.append(b.shape(*sizes))
            else:
                array = rng.integers(-3, 4, sizes) if kind == "i4" else rng.normal(size=sizes) * 100
                edges.append(b.constant(array.astype(kind), np.dtype(kind)))
                b.graph.nodes[-1].value = Value((*sizes,), b.graph.nodes[-1].value.data)
        outputs = operation.outputs[0] + int(rng.integers(0, 2)) * (operation.outputs[1] is None)
        b.output(b.node(NAMES[number], edges, outputs, Padding(int(rng.integers(6)))))
        outcome = execute(b.prepared())
        assert outcome.result == 0 or "execute: node" in b.graph.take_log(), f"seed {seed}"
