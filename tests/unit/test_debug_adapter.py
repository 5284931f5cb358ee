"""The Debug Adapter Protocol of the debugger, with a client written from the protocol's specification."""

from __future__ import annotations

import base64
import io
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.debug.clients.adapter import Adapter, ProtocolError, read_message, serve_port, write_message

DIGITS = Path(__file__).resolve().parents[2] / "examples/streams/digits.json"


class Client:
    """Sends requests and collects events; messages are checked for the members that the protocol requires."""

    def __init__(self, read: Any, write: Any) -> None:
        self.read, self.write, self.number = read, write, 0
        self.events: list[dict[str, Any]] = []

    def _next(self) -> dict[str, Any]:
        message = read_message(self.read)
        assert message is not None, "the adapter has ended"
        assert isinstance(message["seq"], int)
        assert message["type"] in ("response", "event")
        return message

    def ask(self, command: str, /, wrong: bool = False, **arguments: Any) -> Any:
        """Send a request; return the body of its response, or the message of a refusal."""
        self.number += 1
        number = self.number
        write_message(
            self.write, {"seq": number, "type": "request", "command": command, "arguments": arguments}
        )
        while True:
            message = self._next()
            if message["type"] == "event":
                self.events.append(message)
                continue
            assert (message["request_seq"], message["command"]) == (number, command)
            assert message["success"] is not wrong, message.get("message")
            return message["message"] if wrong else message.get("body")

    def wait(self, name: str) -> dict[str, Any]:
        """Return the body of the next event of a name."""
        while True:
            for event in self.events:
                if event["event"] == name:
                    self.events.remove(event)
                    return dict(event.get("body", {}))
            message = self._next()
            assert message["type"] == "event"
            self.events.append(message)

    def line(self) -> int:
        """Return the line of the innermost frame."""
        (first, *_) = self.ask("stackTrace", threadId=1)["stackFrames"]
        return int(first["line"])


@contextmanager
def client() -> Iterator[Client]:
    """Connect a client with an adapter by pipes; at the end the adapter must have ended."""
    ours, theirs = os.pipe(), os.pipe()
    with suppress(BrokenPipeError), open(ours[0], "rb") as read, open(theirs[1], "wb") as write:
        adapter = Adapter(read, write)
        thread = threading.Thread(target=adapter.serve)
        thread.start()
        with open(theirs[0], "rb") as answers, open(ours[1], "wb") as requests:
            yield Client(answers, requests)
        thread.join(10)
        assert not thread.is_alive()


def test_a_session_of_an_editor(tmp_path: Path):
    wrong = tmp_path / "reference.npz"
    np.savez(wrong, out7=np.zeros((64, 4, 4), np.int8))
    with client() as editor:
        said = editor.ask("initialize", adapterID="rkcosim", linesStartAt1=True)
        assert said["supportsStepBack"]
        editor.ask("launch", program=str(DIGITS), against=str(wrong), stopOnEntry=True)
        editor.wait("initialized")
        text = editor.ask("source", sourceReference=1)["content"].splitlines()
        shift = next(n for n, line in enumerate(text, 1) if line.startswith("DPU.OUT_CVT_SHIFT") and n > 300)
        (set_,) = editor.ask("setBreakpoints", source={"sourceReference": 1}, breakpoints=[{"line": shift}])[
            "breakpoints"
        ]
        assert (set_["verified"], set_["line"]) == (True, shift)
        made = editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "task 6"}, {"name": "task 99"}])[
            "breakpoints"
        ]
        assert [one["verified"] for one in made] == [True, False]
        info = editor.ask("dataBreakpointInfo", name="out3")
        editor.ask("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])
        editor.ask("setExceptionBreakpoints", filters=["diagnostic"])
        editor.ask("configurationDone")
        assert editor.wait("stopped")["reason"] == "entry"
        assert editor.ask("threads")["threads"] == [{"id": 1, "name": "job 0, core 0"}]
        editor.ask("continue", threadId=1)
        editor.wait("stopped")
        lines = [editor.line()]
        for _ in range(2):
            editor.ask("continue", threadId=1)
            stopped = editor.wait("stopped")
            lines.append(editor.line())
        assert shift in lines
        assert stopped["reason"] == "breakpoint"
        here = editor.line()
        editor.ask("stepBack", threadId=1)
        editor.wait("stopped")
        assert editor.line() < here
        editor.ask("next", threadId=1)
        editor.wait("stopped")
        assert editor.line() == here
        for _ in range(9):
            editor.ask("continue", threadId=1)
            stopped = editor.wait("stopped")
            if stopped["reason"] == "exception":
                break
        assert "task 7 deviates from the reference: out7" in stopped["text"]
        scopes = {one["name"]: one["variablesReference"] for one in editor.ask("scopes", frameId=1)["scopes"]}
        groups = editor.ask("variables", variablesReference=scopes["DPU registers"])["variables"]
        held = editor.ask("variables", variablesReference=groups[1]["variablesReference"])["variables"]
        assert any(one["name"] == "OUT_CVT_SHIFT" and "OUT_CVT_SHIFT=22" in one["value"] for one in held)
        assert editor.ask("evaluate", expression="DPU[1].WIDTH + 1", context="watch")["result"] == "4"
        assert "task 8" in editor.ask("evaluate", expression="info tasks", context="repl")["result"]
        editor.ask("reverseContinue", threadId=1)
        editor.wait("stopped")
        editor.ask("disconnect")


def test_memory_is_read_by_name_and_tensors_are_shown_in_both_layouts():
    with client() as editor:
        editor.ask("initialize", adapterID="rkcosim")
        editor.ask("launch", program=str(DIGITS))
        editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "task 3"}])
        editor.ask("configurationDone")
        editor.wait("stopped")
        editor.ask("continue", threadId=1)
        editor.wait("stopped")
        scopes = {one["name"]: one["variablesReference"] for one in editor.ask("scopes", frameId=1)["scopes"]}

        def children(reference: int, **more: int) -> list[dict[str, Any]]:
            return list(editor.ask("variables", variablesReference=reference, **more)["variables"])

        (tensor,) = [one for one in children(scopes["Tensors"]) if one["name"] == "out2"]
        elements, atoms = children(tensor["variablesReference"])
        channels = children(elements["variablesReference"], start=16, count=2)
        assert [one["name"] for one in channels] == ["[16]", "[17]"]
        rows = [children(one["variablesReference"])[15]["value"].split() for one in channels]
        assert atoms["indexedVariables"] == 512
        (last,) = children(atoms["variablesReference"], start=511)
        held = last["value"].partition(": ")[2].split()
        assert "channels 16 to 31, row 15, column 15" in last["value"]
        assert [row[15] for row in rows] == held[:2]

        # The same bytes by their name, and by the address that the atom has.
        read = editor.ask("readMemory", memoryReference="out2", offset=511 * 16, count=16)
        assert read == editor.ask("readMemory", memoryReference=last["memoryReference"], count=16)
        assert np.frombuffer(base64.b64decode(read["data"]), np.int8).tolist() == list(map(int, held))
        region = max(children(scopes["Memory"]), key=lambda one: int(one["memoryReference"], 0))
        size = int(region["value"].split()[0])
        read = editor.ask("readMemory", memoryReference=region["name"], offset=size - 4, count=1 << 16)
        there = len(base64.b64decode(read["data"]))
        assert there >= 4 and there + read["unreadableBytes"] == 1 << 16  # mappings end with a page
        nowhere = editor.ask("readMemory", memoryReference="0xFFFFFFF0", count=64)
        assert nowhere == {"address": "0xFFFFFFF0", "unreadableBytes": 64}
        assert "there are out0" in editor.ask("readMemory", wrong=True, memoryReference="x", count=1)
        assert "at most" in editor.ask("readMemory", wrong=True, memoryReference="out2", count=1 << 30)
        assert editor.ask("readMemory", memoryReference="out2", count=0) == {"address": "0x107000"}
        assert "reference 99999" in editor.ask("variables", wrong=True, variablesReference=99999)


def test_bad_requests_are_refused_and_the_session_goes_on():
    with client() as editor:
        assert "launch comes first" in editor.ask("threads", wrong=True)
        assert "launch needs a program" in editor.ask("launch", wrong=True)
        assert editor.ask("launch", wrong=True, program="/nothing/there.json")
        assert "no request" in editor.ask("nothing", wrong=True)
        assert "a list" in editor.ask("launch", wrong=True, command="ls")
        editor.ask("launch", program=str(DIGITS))
        for command, arguments in (
            ("evaluate", {}),
            ("evaluate", {"expression": "__import__('os')"}),
            ("variables", {"variablesReference": 77}),
            ("variables", {"variablesReference": "x"}),
            ("setBreakpoints", {"breakpoints": 5}),
            ("setBreakpoints", {"breakpoints": [{}]}),
        ):
            assert editor.ask(command, wrong=True, **arguments)
        assert editor.ask("threads")["threads"]


def test_a_client_that_vanishes_ends_the_adapter():
    with client() as editor:
        editor.ask("launch", program=str(DIGITS), stopOnEntry=False)
        editor.ask("configurationDone")


def test_clients_of_a_port_come_one_after_the_other_and_may_vanish():
    ports: list[str] = []
    told = threading.Event()

    def say(text: str) -> None:
        ports.append(text)
        told.set()

    server = threading.Thread(target=serve_port, args=(0, lambda: None, say), daemon=True)
    server.start()
    assert told.wait(10)
    place = ("127.0.0.1", int(ports[0].rpartition(":")[2]))
    with socket.create_connection(place, 10) as gone:
        gone.sendall(b"Content-Length: 50\r\n\r\n{")
    with socket.create_connection(place, 10) as file, file.makefile("rwb") as both:
        editor = Client(both, both)
        assert editor.ask("initialize")["supportsStepBack"]
        assert "command line" in editor.ask("launch", wrong=True, command=["true"])
        with socket.create_connection(place, 10):  # a second one waits
            assert "no request" in editor.ask("nothing", wrong=True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"Content-Length: 99999999999\r\n\r\n", "at most"),
        (b"Content-Length: x\r\n\r\n", "not a number"),
        (b"\r\n{}", "needs a Content-Length"),
        (b"Content-Length: 5\r\n\r\n{}", "ends inside a message"),
        (b"Content-Length: 2\r\n\r\n[]", "JSON object"),
        (b"Content-Length: 2\r\n\r\n{x", "not JSON"),
        (b"x" * 5000, "at most 4096 bytes"),
        (b"Content-Length: 2\r\n", "inside a header"),
    ],
)
def test_damaged_messages_are_refused(data: bytes, said: str):
    with pytest.raises(ProtocolError, match=said):
        read_message(io.BytesIO(data))


def test_messages_are_framed():
    file = io.BytesIO()
    write_message(file, {"text": "ä"})
    head, _, body = file.getvalue().partition(b"\r\n\r\n")
    assert head == b"Content-Length: %d" % len(body)
    assert json.loads(body) == {"text": "ä"}
    file.seek(0)
    assert read_message(file) == {"text": "ä"}
    assert read_message(file) is None
