"""The ways into the simulation for a graph: the C library, rknnlite, `run`, `compare`, onnxruntime."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tools.graph_fuzz.draw import Array, Graph
from tools.graph_fuzz.forks import Forks

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS = 60.0
"""Time after which a door counts as one that does not answer."""

C_TYPES = {"float32": 0, "int32": 6, "int64": 8}
NOTHING = "that could be compared"
"""How `compare` says that its reference keeps none of the tensors of a model: the other doors judge it."""

PROVIDER = "RkCosim"

MASKS = {0: 0, 1: 1, 2: 3, 3: 7}

RUNS = 200
"""Graphs that the C program and the Python of rknnlite run before they are started again."""

ALONE = 20
"""Of this many sessions of onnxruntime one starts a new process; a fork serves each of the others."""


class DoorFault(Exception):
    """A door gave no outputs; the text says what it gave.

    `ended` is true if the program or its server has ended.
    """

    def __init__(self, text: str, ended: bool = False) -> None:
        super().__init__(text)
        self.ended = ended


@dataclass(frozen=True)
class Form:
    """How a graph is run: the number of cores (0: as the library decides) and the order of maps."""

    cores: int = 0
    order: str = "nchw"


class Program:
    """A program under `rkcosim rknn run` that answers a line with a line."""

    def __init__(self, command: list[str], folder: Path, engine: str) -> None:
        self.command, self.engine = command, engine
        self.log = (folder / f"log_{Path(command[-1]).name}").open("w+b")
        self.process: subprocess.Popen[bytes] | None = None
        self.runs = 0

    def ask(self, line: str) -> str:
        """Return the answer to a line.

        Raises
        ------
        DoorFault
            if the program ends, says nothing in time, or gives an error; the text has its stderr.
        """
        if self.runs >= RUNS:
            self.close()
        if self.process is None:
            self.runs = 0
            command = [sys.executable, "-m", "rkcosim", "rknn", "run", "--engine", self.engine, "--"]
            self.process = subprocess.Popen(
                [*command, *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
            )
        self.runs += 1
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        before = os.lseek(self.log.fileno(), 0, os.SEEK_END)
        try:
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], SECONDS)
            answer = process.stdout.readline().decode() if ready else ""
        except BrokenPipeError:
            ready, answer = [process.stdout], ""
        if answer.startswith("ok"):
            return answer
        if not answer:
            self.close()
            what = "the program has ended" if ready else f"no answer in {SECONDS:.0f} s"
            raise DoorFault(f"{what}: {self._said(before)}", ended=True)
        self.close()  # and the server has written its line too
        raise DoorFault(f"{answer.strip()}: {self._said(before)}")

    def _said(self, before: int) -> str:
        self.log.seek(before)
        return self.log.read().decode(errors="replace").strip()[-2000:]

    def close(self) -> None:
        """End the program."""
        if self.process is not None:
            if self.process.poll() is None and self._stuck():
                self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                with suppress(BrokenPipeError):
                    assert pipe is not None
                    pipe.close()
            self.process = None

    def _stuck(self) -> bool:
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            return True
        return False


class Doors:
    """Runs graphs through each door; a context manager, since programs are running in between.

    Parameters
    ----------
    engine
        The engine of all of them.
    """

    NAMES = ("c", "lite", "run", "compare", "ort")

    def __init__(self, engine: str = "golden") -> None:
        self.engine = engine
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="graphs-")))
        self._c: Program | None = None
        self._lite: Program | None = None
        self._forks: Forks | None = None
        self._sessions = 0
        self._graph: Graph | None = None
        self._read: list[list[Array]] | None = None

    def __enter__(self) -> Doors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in (self._c, self._lite):
            if program is not None:
                program.close()
                program.log.close()
        if self._forks is not None:
            self._forks.close()
        self._stack.close()

    def outputs(self, door: str, graph: Graph, form: Form) -> list[Array] | None:
        """Return a graph's outputs; None if the door compares them itself and found no fault.

        Raises
        ------
        DoorFault
            if it gives none.
        """
        path = self.folder / "model.onnx"
        if graph is not self._graph:
            path.write_bytes(graph.model.SerializeToString())
            self._graph, self._read = graph, None
        calls = {"c": self._by_c, "lite": self._by_lite, "run": self._by_run, "ort": self._by_provider}
        if door in calls:
            return calls[door](path, graph, form)
        self._by_compare(path, graph)
        return None

    def _files(self, graph: Graph, form: Form) -> list[tuple[Path, Array]]:
        for old in self.folder.glob("out.*"):
            old.unlink()
        files = []
        for number, array in enumerate(graph.feeds.values()):
            given = array
            if array.ndim == 4 and form.order == "nhwc":
                given = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
            path = self.folder / f"in.{number}"
            given.tofile(path)
            files.append((path, given))
        return files

    def _by_c(self, path: Path, graph: Graph, form: Form) -> list[Array]:
        if self._c is None:
            self._c = Program([str(self._built())], self.folder, self.engine)
        words = [str(path), form.order, str(MASKS[form.cores]), str(len(graph.feeds))]
        for file, array in self._files(graph, form):
            words += [str(file), str(C_TYPES[array.dtype.name])]
        answer = self._c.ask(" ".join([*words, str(self.folder / "out")]))
        return [np.fromfile(self.folder / f"out.{n}", np.float32) for n in range(int(answer.split()[1]))]

    def _built(self) -> Path:
        from rkcosim.devices.native_library import c_compiler
        from rkcosim.devices.rknn_library import lay_out, rknn_library

        prefix, program = self.folder / "prefix", self.folder / "door"
        lay_out(prefix, rknn_library(), copy=True)
        flags = [f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}", "-lrknnrt", "-lpthread", "-ldl"]
        command = [*c_compiler(), "-O1", "-Wall", "-o", str(program), str(HERE / "door.c"), *flags]
        subprocess.run(command, check=True)
        return program

    def _by_lite(self, path: Path, graph: Graph, form: Form) -> list[Array]:
        if self._lite is None:
            self._lite = Program([sys.executable, str(HERE / "door_lite.py")], self.folder, self.engine)
        words = [str(path), form.order, str(MASKS[form.cores]), str(len(graph.feeds))]
        for file, array in self._files(graph, form):
            words += [str(file), array.dtype.name, "x".join(map(str, array.shape)) or "1"]
        answer = self._lite.ask(" ".join([*words, str(self.folder / "out")]))
        return [np.load(self.folder / f"out.{n}.npy") for n in range(int(answer.split()[1]))]

    def _by_run(self, path: Path, graph: Graph, form: Form) -> list[Array]:
        from rkcosim.measure.models.run import run_model

        try:
            done = run_model(
                path, self._items(path, graph), engine=self.engine, cores=form.cores or 1, check=True
            )
        except Exception as error:
            raise DoorFault(_kind(error)) from error
        if done.verdict["match"] is False:
            raise DoorFault(f"MISMATCH: {done.verdict['first_difference']}")
        return [
            np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*done.results, strict=True)
        ]

    def _items(self, path: Path, graph: Graph) -> list[list[Array]]:
        """Return the inputs of each inference, as `--input` reads them from files; once for each graph."""
        if self._read is not None:
            return [[array.copy() for array in item] for item in self._read]
        from rkcosim.measure.models.input_files import load_batch
        from rkcosim.rknn_file.opening import open_file

        files = []
        for number, array in enumerate(graph.feeds.values()):
            files.append(self.folder / f"in{number}.npy")
            np.save(files[-1], array)
        items: list[list[Array]] = [
            list(item) for item in load_batch(files, list(open_file(path).inputs), None).items
        ]
        self._read = [[array.copy() for array in item] for item in items]
        return items

    def _by_provider(self, path: Path, graph: Graph, form: Form) -> list[Array] | None:
        """Run onnxruntime with the provider, which gives parts of the graph to the NPU.

        None: onnxruntime fails in the same way without the provider. With its optimisations it refuses some
        quantised graphs that it computes without them, as scales of 1e-12 behind a GlobalAveragePool.
        """
        from rkcosim.compiler.host_runtimes import import_onnxruntime

        ort = import_onnxruntime()
        if self._forks is None:
            self._forks = Forks()
            if PROVIDER not in ort.get_available_providers():
                ort.register_execution_provider_library(PROVIDER, str(self._forks.library()))
        self._forks.use(self._sessions % ALONE != 0)
        self._sessions += 1
        options = ort.SessionOptions()
        options.log_severity_level = 4
        how = {"engine": self.engine, "cores": str(form.cores or 1), "check": "1"}
        providers = [(PROVIDER, how), "CPUExecutionProvider"]

        def run(providers: list[Any]) -> list[Array]:
            session = ort.InferenceSession(str(path), options, providers=providers)
            found: list[Array] = session.run(None, graph.feeds)
            return found

        try:
            return run(providers)
        except Exception as error:  # its classes have no public base
            try:
                run(["CPUExecutionProvider"])
            except Exception as alone:
                if _nameless(alone) == _nameless(error):
                    return None
            raise DoorFault(f"{type(error).__name__}: {error}") from error

    def _by_compare(self, path: Path, graph: Graph) -> None:
        from rkcosim.measure.models.compare import compare
        from rkcosim.measure.models.references import ReferenceProblem

        try:
            found = compare(path, self._items(path, graph))
        except ReferenceProblem as error:
            if NOTHING in str(error):
                return
            raise DoorFault(_kind(error)) from error
        except Exception as error:
            raise DoorFault(_kind(error)) from error
        if not found.match:
            raise DoorFault(f"does not match: {'; '.join(list(found.reasons())[:3])}")


def _nameless(error: Exception) -> str:
    """Return an error's text without names of nodes, which optimisations change."""
    return re.sub(r"Name:'[^']*'", "", str(error))


def _kind(error: Exception) -> str:
    """Return a fault's text; one that commands report as a fault of their own has the name of its class."""
    from rkcosim.cli.exits import INTERNAL, exit_code

    return str(error) if exit_code(error) != INTERNAL else f"{type(error).__name__}: {error}"
