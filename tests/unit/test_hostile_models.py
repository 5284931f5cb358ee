"""ONNX files that become more than their bytes: each ends in one error of bounded time and memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from onnx import TensorProto, helper, numpy_helper

from rkcosim.compiler import host_runtimes
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.loaders.onnx_bounds import MOST_NODES, check_bounds
from rkcosim.compiler.model import compile_model
from rkcosim.rknn_api.custom_graph import split

SHAPE = [1, 4, 4, 4]


def model(nodes, *, functions=(), opset=17, shape=SHAPE, initializers=()):
    """Return an ONNX model of x to y."""
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        list(initializers),
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)


def function(name, *calls):
    """Return a function that calls others one after the other."""
    values = ["a", *(f"v{i}" for i in range(len(calls) - 1)), "b"]
    nodes = [
        helper.make_node(call, [values[i]], [values[i + 1]], domain="own" if call.startswith("F") else "")
        for i, call in enumerate(calls)
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, imports)


def call(name):
    return helper.make_node(name, ["x"], ["y"], domain="own")


def turns(count):
    """Return an endless Loop that appends 4 KiB in each turn, and the sum of what it appended."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes"]),
            helper.make_node("Identity", ["page"], ["part"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("part", TensorProto.FLOAT, [1024]),
        ],
    )
    constants = [
        numpy_helper.from_array(np.array(count, np.int64), "count"),
        numpy_helper.from_array(np.array(True), "on"),
        numpy_helper.from_array(np.ones(1024, np.float32), "page"),
    ]
    nodes = [
        helper.make_node("Loop", ["count", "on"], ["all"], body=body),
        helper.make_node("ReduceSum", ["all"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    return model(nodes, initializers=constants)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            model([call("F0")], functions=[function(f"F{i}", *[f"F{i + 1}"] * 2) for i in range(40)]
                  + [function("F40", "Relu")]),
            f"more than {MOST_NODES:,} nodes with its functions expanded; the largest function is 'F0'",
        ),
        (
            model([call("F0")], functions=[function("F0", "Relu", "F1"), function("F1", "F0")]),
            "calls itself, or a function that calls it",
        ),
        (model([helper.make_node("Relu", ["x"], ["y"])], opset=9999), "opset 9999 is not known"),
        (
            model([helper.make_node("Relu", ["x"], ["y"])], shape=[1, 4, -4, 4]),
            "input 'x': dimension 2 is -4",
        ),
    ],
    ids=["functions", "recursion", "opset", "dimension"],
)  # fmt: skip
def test_what_a_file_becomes_is_bounded(made, said):
    begin = time.monotonic()
    with pytest.raises(ModelError, match=said):
        compile_model(made.SerializeToString())
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("domain", ["", "custom"])
@pytest.mark.parametrize("place", ["initializer", "attribute", "input", "output"])
def test_unknown_element_types_are_refused(place: str, domain: str):
    """onnx' checker takes types that the package does not have, and reading such a tensor is a KeyError."""
    made = model(
        [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(4, np.float32))),
            helper.make_node("Add", ["x", "c"], ["s"]),
            helper.make_node("Mul", ["s", "w"], ["y"], domain=domain),
        ],
        initializers=[numpy_helper.from_array(np.ones(4, np.float32), "w")],
    )
    made.opset_import.add(domain="custom", version=1)
    if place == "initializer":
        made.graph.initializer[0].data_type = 35
    elif place == "attribute":
        made.graph.node[0].attribute[0].t.data_type = 35
    else:
        getattr(made.graph, place)[0].type.tensor_type.elem_type = 35
    with pytest.raises(ModelError, match="has the element type 35, which is unknown"):
        (split if domain else compile_model)(made.SerializeToString())


def test_functions_of_usual_models_are_taken():
    check_bounds(model([call("F0")], functions=[function("F1", "Relu"), function("F0", "F1", "F1")]))
    check_bounds(model([helper.make_node("Relu", ["x"], ["y"])], shape=[-1, 4, 4, 4]))


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [("LOOP_SECONDS", 0.3, "more than 0 s in a loop"), ("LOOP_BYTES", 1 << 20, "of memory in a loop")],
)
def test_a_loop_that_does_not_end(monkeypatch, limit, value, said):
    monkeypatch.setattr(host_runtimes, limit, value)
    with pytest.raises(ModelError, match=said):
        compile_model(turns(2**40).SerializeToString())


def test_a_loop_that_ends_is_computed():
    compiled = compile_model(turns(3).SerializeToString())
    assert compiled.plan is not None


def test_a_signal_ends_a_run_of_onnxruntime():
    """The handler runs at once, and not when onnxruntime returns, and no thread stays behind."""
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compile_model(turns(2**40).SerializeToString())
        time.sleep(5)
    assert time.monotonic() - begin < 10
    assert not [t for t in threading.enumerate() if t.name == "onnxruntime" and t.is_alive()]


LARGE_RUN = """
import sys
import numpy as np
from rkcosim.base.processes import resident
from rkcosim.compiler.host_runtimes import OnnxRuntime

run = OnnxRuntime().load(sys.stdin.buffer.read(), ["x"], ["y"])
run([np.ones(8, np.float32)])
before = resident()
large = run([np.ones(1 << 25, np.float32)])
during = resident()
assert large[0].shape == (1 << 25,)
del large
print(before, during, resident())
"""


def test_a_program_keeps_no_memory_of_a_large_run():
    """As a session's arena would; programs are kept for the next model that has the same part.

    A process of its own is measured: the pages of this one depend on the tests before.
    """
    wide = model([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])], shape=["n"])
    words = [sys.executable, "-c", LARGE_RUN]
    done = subprocess.run(words, input=wide.SerializeToString(), stdout=subprocess.PIPE, check=True)
    before, during, after = map(int, done.stdout.split())
    assert during - before > 64 << 20 > after - before
