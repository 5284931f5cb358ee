"""Messages of plug-ins: damaged ones are errors, and shared memory is bounded."""

from __future__ import annotations

import importlib
import socket
import struct

import numpy as np
import pytest

from rkcosim.apis.link.protocol import Channel, Message, ProtocolError, Reader
from rkcosim.running.settings import NAMES, read_settings
from tests import seeds


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def test_reader():
    data = numbers(-5, 3) + b"abc" + numbers(8) + struct.pack("<2i", 1, -1)
    reader = Reader(memoryview(data))
    assert (reader.number(), reader.text(), reader.ints()) == (-5, "abc", (1, -1))


@pytest.mark.parametrize(
    "data", [b"", numbers(9), numbers(-1), numbers(2**60), numbers(3) + b"abc", numbers(4)], ids=range(6)
)
def test_damaged_contents_are_errors(data: bytes):
    with pytest.raises(ProtocolError):
        Reader(memoryview(data)).ints()


@pytest.mark.parametrize(
    ("module", "package"), [("litert.graph", "ai_edge_litert"), ("ort.graph", "onnx")], ids=["litert", "ort"]
)
def test_random_graphs_are_errors_and_nothing_else(module: str, package: str):
    pytest.importorskip(package, reason="needs an extra")
    read_graph = importlib.import_module(f"rkcosim.apis.{module}").read_graph

    seed = seeds.seed(f"{__name__} {module}")
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(300):
        small = rng.integers(-2, 5, rng.integers(0, 60)).astype(np.int64).tobytes()
        try:
            read_graph(Reader(memoryview(small)))
        except ProtocolError:
            continue


def test_a_channel_refuses_messages_without_memory():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        channel = Channel(ours)
        for data in (b"short", struct.pack("<IIQQQ", 1, 0, 0, 8, 64)):
            theirs.send(data)
            with pytest.raises(ProtocolError):
                channel.receive()
        channel.send(Message(1))
        assert len(theirs.recv(100)) == 32
        theirs.close()
        assert channel.receive() is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("engine", "gold", "the option engine is one of verilator"),
        ("cores", "9", "a number from 1 to 3, not '9'"),
        ("check", "maybe", "1 or 0, not 'maybe'"),
        ("timeout", "-1", "the option timeout"),
    ],
)
def test_wrong_values(name: str, value: str, text: str):
    with pytest.raises(ValueError, match=text):
        read_settings({name: value})


def test_settings():
    assert read_settings({}).cores == 1 and read_settings({"check": "yes", "timeout": "5"}).timeout == 5
    for name in NAMES:
        with pytest.raises(ValueError, match=name):
            read_settings({name: ""})
    with pytest.raises(ValueError, match="did you mean timeline"):
        read_settings({"timelin": "x"})
