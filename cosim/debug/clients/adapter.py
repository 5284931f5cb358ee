"""The debugger behind the Debug Adapter Protocol, for editors.

Messages are JSON with a header that has their length, as the protocol's specification describes
(microsoft.github.io/debug-adapter-protocol). One adapter serves one client.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any, BinaryIO

from rkcosim.base import Error
from rkcosim.debug.base import BaseSession, Stop
from rkcosim.debug.breakpoints import BreakpointError, register_named
from rkcosim.debug.clients.memory_view import FIRST_REFERENCE, MemoryView, Variable
from rkcosim.debug.clients.terminal import Terminal
from rkcosim.debug.deviations.against import Tolerance, read_references
from rkcosim.debug.opening import open_debugged
from rkcosim.debug.places import ListingPlace, task_title
from rkcosim.debug.program import open_program
from rkcosim.debug.sessions import session_on
from rkcosim.debug.texts import field_text, shown
from rkcosim.golden.task.errors import MemoryFault
from rkcosim.spec.regs import registers

MOST_MESSAGE = 1 << 24
"""Maximum number of bytes of a message."""

MOST_HEADER = 4096
"""Maximum number of bytes of the header of a message."""

FRAMES = 16
"""Numbers of stack frames that each job has."""

SIGNALS, PARTS = 1 << 20, 1000
"""Reference of the first block with signals, and the references that each block has."""

FIRST_BLOCK, FIRST_GROUP = 4, 100
"""References of variables: of the first block's registers, and of the first group of the first block."""

SOURCE = 1
"""Reference of the listing, which clients get by the request `source`."""


class ProtocolError(Error, ValueError):
    """A client does not keep to the protocol; the connection ends."""


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """Read a message; None at the end of the input.

    Raises
    ------
    ProtocolError
        for a header without a length, a message that is too long or ends early, or one that is no object.
    """
    size, length = 0, None
    while True:
        line = stream.readline(MOST_HEADER)
        size += len(line)
        if not line:
            if size:
                raise ProtocolError("the input ends inside a header")
            return None
        if size > MOST_HEADER or not line.endswith(b"\n"):
            raise ProtocolError(f"a header has at most {MOST_HEADER} bytes")
        if not line.strip():
            break
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            if not value.strip().isdigit():
                raise ProtocolError("Content-Length is not a number")
            length = int(value)
    if length is None or length > MOST_MESSAGE:
        raise ProtocolError(f"a message needs a Content-Length of at most {MOST_MESSAGE}")
    body = stream.read(length)
    if len(body) < length:
        raise ProtocolError("the input ends inside a message")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise ProtocolError("a message is a JSON object")
    return message


def write_message(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write a message and flush."""
    body = json.dumps(message).encode()
    stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    stream.flush()


class Adapter:
    """Serves one client, until it disconnects or its input ends.

    Parameters
    ----------
    read, write : the client's messages, and where ours go.
    session : what is debugged; None: the request `launch` says it (`program`, `against`, `tolerance`,
        `relative`, `input`, `seed`, `cores`, `engine`; or `command`, a program and its arguments).
    engine : name of the engine if `launch` does not say it; None: the golden model.
    may_start : whether `launch` may name a program to start, as a client may that started the debugger.
    """

    def __init__(
        self,
        read: BinaryIO,
        write: BinaryIO,
        session: BaseSession | None = None,
        engine: str | None = None,
        *,
        may_start: bool = True,
    ) -> None:
        self._read, self._write = read, write
        self._session, self._engine, self._may_start = session, engine, may_start
        self._memory: MemoryView | None = None
        self._number = 0
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        self._lines_set: list[int] = []
        self._functions_set: list[int] = []
        self._data_set: list[int] = []
        self._filters_set: list[int] = []
        self._stop_at_entry = True
        self._done = False
        self._busy = False
        """Whether the stream runs, up to the event that says why it stands."""

    # -- messages --------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer requests up to the end of the input; the run ends then, too."""
        try:
            while not self._done:
                message = read_message(self._read)
                if message is None:
                    break
                if message.get("type") == "request":
                    self._answer(message)
        except (ProtocolError, OSError) as error:
            if not isinstance(error, OSError):
                self._event("output", {"category": "stderr", "output": f"{error}\n"})
        finally:
            self._halt()
            if self._session is not None:
                self._session.close()

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._number += 1
            try:
                write_message(self._write, {"seq": self._number, **message})
            except (OSError, ValueError):  # the client is gone
                self._done = True

    def _event(self, name: str, body: dict[str, Any] | None = None) -> None:
        self._send({"type": "event", "event": name, **({} if body is None else {"body": body})})

    def _answer(self, request: dict[str, Any]) -> None:
        command = request.get("command")
        arguments = request.get("arguments")
        method = getattr(self, f"_on_{command}", None) if isinstance(command, str) else None
        reply = {"type": "response", "request_seq": request.get("seq", 0), "command": str(command)}
        after: Callable[[], None] | None = None
        try:
            if method is None:
                raise ProtocolError(f"the debugger has no request {command!r}")
            if self._busy and command not in FREE:
                raise ProtocolError("the stream is running; pause it first")
            body, after = method(arguments if isinstance(arguments, dict) else {})
        except (Error, ValueError, TypeError, KeyError, OSError, MemoryFault) as error:
            text = f"missing argument {error}" if isinstance(error, KeyError) else str(error)
            fail = {"error": {"id": 1, "format": text.replace("{", "(").replace("}", ")"), "showUser": True}}
            self._send({**reply, "success": False, "message": text, "body": fail})
            return
        self._send({**reply, "success": True, **({} if body is None else {"body": body})})
        if after is not None:
            after()

    @property
    def session(self) -> BaseSession:
        """What is debugged."""
        if self._session is None:
            raise ProtocolError("nothing is debugged yet: launch comes first")
        return self._session

    @property
    def memory(self) -> MemoryView:
        """The memory of what is debugged."""
        if self._memory is None:
            self._memory = MemoryView(self.session)
        return self._memory

    # -- the life of a session -------------------------------------------------------------------

    def _on_initialize(self, arguments: dict[str, Any]) -> Any:
        return CAPABILITIES, None

    def _on_launch(self, arguments: dict[str, Any]) -> Any:
        if "command" in arguments or "program" in arguments:
            if self._session is not None:
                self._session.close()
                self._session, self._memory = None, None
            self._session = self._opened(arguments)
        self._stop_at_entry = bool(arguments.get("stopOnEntry", True))
        if self._session is None:
            raise ProtocolError("launch needs a program: a stream, a capture or a model")
        return None, lambda: self._event("initialized")

    def _opened(self, arguments: dict[str, Any]) -> BaseSession:
        """Open what a request names: a program, or a file with its references."""
        engine = arguments.get("engine", self._engine)
        engine = None if engine is None else str(engine)
        if "command" in arguments:
            if not self._may_start:
                raise ProtocolError("a program is named on the command line of rkcosim debug --port")
            command = arguments["command"]
            if not isinstance(command, list) or not command:
                raise ProtocolError("command is a list: a program and its arguments")
            work = open_program([str(one) for one in command], int(arguments.get("cores", 3)), quiet=True)
        else:
            work = open_debugged(
                Path(str(arguments["program"])),
                inputs=[Path(str(one)) for one in arguments.get("input", [])],
                seed=int(arguments.get("seed", 0)),
                cores=int(arguments.get("cores", 1)),
            )
        try:
            against = arguments.get("against")
            known = [] if against is None else read_references(Path(str(against)), work)
            tolerance = Tolerance(float(arguments.get("tolerance", 0)), float(arguments.get("relative", 0)))
            return session_on(engine, work, known, tolerance)
        except BaseException:
            if work.program is not None:
                work.program.close()
            raise

    def _on_attach(self, arguments: dict[str, Any]) -> Any:
        return self._on_launch(arguments)

    def _on_configurationDone(self, arguments: dict[str, Any]) -> Any:
        if self._stop_at_entry:
            return None, lambda: self._told(self.session.stop)
        return None, lambda: self._run(self.session.proceed)

    def _on_disconnect(self, arguments: dict[str, Any]) -> Any:
        self._halt()
        self._done = True
        return None, None

    def _on_terminate(self, arguments: dict[str, Any]) -> Any:
        self._halt()
        return None, lambda: self._event("terminated")

    def _halt(self) -> None:
        """Stop a run and wait for its end."""
        if self._session is not None:
            self._session.asked_to_pause.set()
        if self._running is not None and self._running is not threading.current_thread():
            while self._running.is_alive():
                self.session.asked_to_pause.set()
                self._running.join(0.05)

    # -- running ---------------------------------------------------------------------------------

    def _run(self, work: Callable[[], Stop]) -> None:
        """Run in a thread, so that the client can pause it."""

        def body() -> None:
            try:
                stop = work()
            except (Error, ValueError, MemoryFault) as error:
                self._event("output", {"category": "stderr", "output": f"{error}\n"})
                stop = self.session.stop
            self._busy = False
            self._told(stop)

        self._busy = True
        self._running = threading.Thread(target=body, name="debugged stream", daemon=True)
        self._running.start()

    def _told(self, stop: Stop) -> None:
        """Tell the client why the run stands."""
        if stop.reason == "end":
            self._event("output", {"category": "console", "output": f"{stop.text}\n"})
        reason = REASONS.get(stop.reason, stop.reason)
        body = {"reason": reason, "description": stop.text[:200], "text": stop.text, "threadId": self._thread}
        self._event("stopped", {**body, "allThreadsStopped": True, "hitBreakpointIds": stop.breakpoints})

    @property
    def _thread(self) -> int:
        return self.session.job + 1

    def _go(self, work: Callable[[], Stop]) -> Any:
        return {"allThreadsContinued": True}, lambda: self._run(work)

    def _on_continue(self, arguments: dict[str, Any]) -> Any:
        return self._go(self.session.proceed)

    def _on_next(self, arguments: dict[str, Any]) -> Any:
        return self._go(lambda: self.session.step("word"))

    def _on_stepIn(self, arguments: dict[str, Any]) -> Any:
        return self._go(lambda: self.session.step("word"))

    def _on_stepOut(self, arguments: dict[str, Any]) -> Any:
        return self._go(lambda: self.session.step("task"))

    def _on_stepBack(self, arguments: dict[str, Any]) -> Any:
        return self._go(lambda: self.session.step_back("word"))

    def _on_reverseContinue(self, arguments: dict[str, Any]) -> Any:
        return self._go(self.session.proceed_back)

    def _on_pause(self, arguments: dict[str, Any]) -> Any:
        self.session.asked_to_pause.set()
        return None, None

    # -- breakpoints -----------------------------------------------------------------------------

    def _renew(self, old: list[int], wanted: list[str], watch: bool = False) -> list[dict[str, Any]]:
        """Replace a client's breakpoints of one kind; return what became of each."""
        for number in old:
            self.session.breakpoints.pop(number, None)
        old.clear()
        made: list[dict[str, Any]] = []
        for text in wanted:
            try:
                one = self.session.watch(text) if watch else self.session.set_breakpoint(text)
            except BreakpointError as error:
                made.append({"verified": False, "message": str(error)})
                continue
            old.append(one.number)
            item: dict[str, Any] = {"id": one.number, "verified": True}
            if one.place is not None:
                item |= {"line": self.session.source.line_of(one.place), "source": self._source()}
            made.append(item)
        return made

    def _on_setBreakpoints(self, arguments: dict[str, Any]) -> Any:
        wanted = [_conditional(str(int(one["line"])), one) for one in _objects(arguments, "breakpoints")]
        return {"breakpoints": self._renew(self._lines_set, wanted)}, None

    def _on_setFunctionBreakpoints(self, arguments: dict[str, Any]) -> Any:
        wanted = [_conditional(str(one["name"]), one) for one in _objects(arguments, "breakpoints")]
        return {"breakpoints": self._renew(self._functions_set, wanted)}, None

    def _on_dataBreakpointInfo(self, arguments: dict[str, Any]) -> Any:
        name = str(arguments["name"])
        work = self.session.work
        if name in work.tensors or name in work.regions:
            return {"dataId": name, "description": f"writes of {name}", "accessTypes": ["write"]}, None
        try:
            register_named(name)
        except BreakpointError as error:
            return {"dataId": None, "description": str(error)}, None
        return {"dataId": name, "description": f"writes of {name}", "accessTypes": ["write"]}, None

    def _on_setDataBreakpoints(self, arguments: dict[str, Any]) -> Any:
        wanted = [_conditional(str(one["dataId"]), one) for one in _objects(arguments, "breakpoints")]
        return {"breakpoints": self._renew(self._data_set, wanted, watch=True)}, None

    def _on_setExceptionBreakpoints(self, arguments: dict[str, Any]) -> Any:
        filters = arguments.get("filters", [])
        known = [one["filter"] for one in CAPABILITIES["exceptionBreakpointFilters"]]
        return {
            "breakpoints": self._renew(self._filters_set, [str(one) for one in filters if one in known])
        }, None

    # -- what is shown ---------------------------------------------------------------------------

    def _source(self) -> dict[str, Any]:
        # A program adds jobs: the listing with them has another reference, so that clients ask for it.
        number = SOURCE if self.session.work.program is None else len(self.session.work.jobs)
        return {"name": f"{self.session.work.name} (listing)", "sourceReference": number}

    def _on_source(self, arguments: dict[str, Any]) -> Any:
        return {"content": "\n".join(self.session.source.lines) + "\n"}, None

    def _on_loadedSources(self, arguments: dict[str, Any]) -> Any:
        return {"sources": [self._source()]}, None

    def _on_threads(self, arguments: dict[str, Any]) -> Any:
        jobs = self.session.work.jobs
        named = [{"id": n + 1, "name": f"job {n}, core {job.stream.core}"} for n, job in enumerate(jobs)]
        return {"threads": named}, None

    def _on_stackTrace(self, arguments: dict[str, Any]) -> Any:
        session = self.session
        job = int(arguments.get("threadId", self._thread)) - 1
        if job not in session.running_jobs:
            return {"stackFrames": [], "totalFrames": 0}, None
        place = session.position_of(job)
        line = session.source.line_of(place)
        first = session.source.line_of(ListingPlace(place.job, place.task, 0))
        more = session.position_text() if job == session.job else ""
        names = [
            (session.source.lines[line - 1], line),
            (task_title(session.work, place.job, place.task) + (f" ({more})" if more else ""), first),
        ]
        if node := session.node_of(place):
            names.append((f"node {node}", first))
        names.append((f"job {place.job}, core {session.work.jobs[place.job].stream.core}", 1))
        frames = [
            {"id": FRAMES * job + number + 1, "name": name, "line": at, "column": 1, "source": self._source()}
            for number, (name, at) in enumerate(names)
        ]
        return {"stackFrames": frames, "totalFrames": len(frames)}, None

    def _on_scopes(self, arguments: dict[str, Any]) -> Any:
        session = self.session
        job = int(arguments.get("frameId", 1)) // FRAMES
        if job in session.running_jobs:
            session.choose(job)
        names = ["State", "Tensors", "Memory", *(f"{name} registers" for name in session.register_blocks())]
        scopes = [
            {"name": name, "variablesReference": number, "expensive": number == 2}
            for number, name in enumerate(names, 1)
        ]
        scopes += [
            {"name": f"{name} signals", "variablesReference": SIGNALS + number * PARTS, "expensive": True}
            for number, name in enumerate(session.signal_blocks())
        ]
        return {"scopes": scopes}, None

    def _on_variables(self, arguments: dict[str, Any]) -> Any:
        reference = int(arguments["variablesReference"])
        if reference >= SIGNALS:
            found = self._signals(*divmod(reference - SIGNALS, PARTS))
        elif reference >= FIRST_REFERENCE:
            part = int(arguments.get("start") or 0), int(arguments.get("count") or 0)
            found = self.memory.variables(reference, *part)
        else:
            found = self._variables(reference)
        return {"variables": [one.as_json() for one in found]}, None

    def _variables(self, reference: int) -> list[Variable]:
        """Return the children of a scope: 1 the state, 2 the tensors, 3 the memory, then the blocks.

        100 and more are the two groups of a block.
        """
        session, blocks = self.session, list(self.session.register_blocks())
        if reference == 1:
            return [Variable(*_halves(line)) for line in session.state_lines()]
        if reference == 2:
            return self.memory.tensors()
        if reference == 3:
            return self.memory.regions()
        number = reference - FIRST_BLOCK
        if 0 <= number < len(blocks):
            halves = [session.held_registers(blocks[number], group).title.partition(" (") for group in (0, 1)]
            return [
                Variable(name, text.rstrip(")"), FIRST_GROUP + 2 * number + group)
                for group, (name, _, text) in enumerate(halves)
            ]
        if 0 <= reference - FIRST_GROUP < 2 * len(blocks):
            number, group = divmod(reference - FIRST_GROUP, 2)
            held = session.held_registers(blocks[number], group).words
            return [
                Variable(register.name, field_text(register, held[register.offset]))
                for register in registers()[blocks[number]]
                if register.offset in held
            ]
        raise ProtocolError(f"there is nothing with the reference {reference}")

    def _signals(self, block: int, part: int) -> list[Variable]:
        """Return the signals of a block: part 0 its own and its parts, from 1 on those of a part."""
        blocks = self.session.signal_blocks()
        if block >= len(blocks):
            raise ProtocolError(f"there is no block {block} with signals")
        signals = self.session.inside(blocks[block])
        parts = sorted({name.partition(".")[0] for name, _ in signals if "." in name})
        if part:
            if part > len(parts):
                raise ProtocolError(f"{blocks[block]} has no part {part}")
            head = f"{parts[part - 1]}."
            return [Variable(n.removeprefix(head), shown(v)) for n, v in signals if n.startswith(head)]
        own = [Variable(name, shown(value)) for name, value in signals if "." not in name]
        first = SIGNALS + block * PARTS
        return [*own, *(Variable(name, "", first + number) for number, name in enumerate(parts, 1))]

    def _on_readMemory(self, arguments: dict[str, Any]) -> Any:
        offset, count = int(arguments.get("offset") or 0), int(arguments["count"])
        return self.memory.read(str(arguments["memoryReference"]), offset, count), None

    def _on_evaluate(self, arguments: dict[str, Any]) -> Any:
        text = str(arguments["expression"]).strip()
        if arguments.get("context") != "repl":
            if text in self.session.work.tensors:
                (found,) = [one.as_json() for one in self.memory.tensors() if one.name == text]
                return {"result": found.pop("value"), **found}, None
            return {"result": shown(self.session.evaluate(text)), "variablesReference": 0}, None
        out, before = StringIO(), self.session.place
        terminal = Terminal(self.session, out)
        word = terminal.parseline(text)[0] or ""
        if f"do_{word}" in terminal.get_names() and word not in ("quit", "EOF"):
            terminal.onecmd(text)
            after = None if self.session.place == before else lambda: self._told(self.session.stop)
            return {"result": out.getvalue().rstrip("\n"), "variablesReference": 0}, after
        return {"result": shown(self.session.evaluate(text)), "variablesReference": 0}, None

    def _on_exceptionInfo(self, arguments: dict[str, Any]) -> Any:
        stop = self.session.stop
        return {"exceptionId": stop.reason, "description": stop.text, "breakMode": "always"}, None


def _objects(arguments: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a list; raises ProtocolError for anything else."""
    found = arguments.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ProtocolError(f"{name} is not a list of objects")
    return found


def _conditional(text: str, asked: dict[str, Any]) -> str:
    condition = str(asked.get("condition") or "").strip()
    return f"{text} if {condition}" if condition else text


def _halves(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(": ")
    return (name, value) if colon else ("", line)


FREE = ("pause", "disconnect", "terminate", "initialize", "threads", "source", "loadedSources")
"""Requests that are answered while the stream runs."""

REASONS = {
    "start": "entry",
    "end": "pause",
    "hang": "exception",
    "error": "exception",
    "deviation": "exception",
    "difference": "exception",
    "diagnostic": "exception",
}
"""Reasons of the protocol for those of a session that it does not have."""

CAPABILITIES: dict[str, Any] = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsDataBreakpoints": True,
    "supportsStepBack": True,
    "supportsEvaluateForHovers": True,
    "supportsTerminateRequest": True,
    "supportsLoadedSourcesRequest": True,
    "supportsExceptionInfoRequest": True,
    "supportsReadMemoryRequest": True,
    "exceptionBreakpointFilters": [
        {"filter": "diagnostic", "label": "Diagnostics of the device", "default": True},
        {"filter": "interrupt", "label": "Interrupts", "default": False},
    ],
}


def serve_port(
    port: int,
    make: Callable[[], BaseSession | None],
    told: Callable[[str], None],
    engine: str | None = None,
) -> None:
    """Serve clients on a port of the loopback interface, one after the other, until interrupted.

    Parameters
    ----------
    port : its number; 0: any free one.
    make : makes the session of each client.
    told : called with a line that has the port.
    engine : as for `Adapter`.
    """
    with socket.create_server(("127.0.0.1", port)) as server:
        told(f"listening on 127.0.0.1:{server.getsockname()[1]}")
        while True:
            client, _ = server.accept()
            # A client that is gone raises an error when what is left for it is flushed.
            with suppress(OSError), client, client.makefile("rb") as read, client.makefile("wb") as write:
                Adapter(read, write, make(), engine, may_start=False).serve()
