"""`rkcosim rknn run` (also `rkcosim rknn -- PROGRAM`): run unmodified programs that call `rknn_api.h`."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.cli.app import command, option
from rkcosim.cli.options import BOARDS, Cores, Html, MachineName, Program, RecordedOptions

if TYPE_CHECKING:
    from rkcosim.measure.models.products import ProductRow
    from rkcosim.measure.models.run import ModelRun

NO_BOARD = "none"

MODELS = (".rknn", ".onnx", ".tflite")
"""Suffixes of arguments that are assumed to name models."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(RecordedOptions):
    """Options of `rkcosim rknn run`."""

    program: Program = ()
    cores: Cores = 3
    report: bool = option(
        "Print jobs, cycles, host time, each model's frames and the matrix products at the end.",
        default=False,
    )
    html: Html = None
    any_path: bool = option(
        "Also redirect requests for librknnrt.so with a path, as /usr/lib/librknnrt.so (by LD_AUDIT).",
        default=False,
    )
    board: str | None = option(
        "Board whose device tree and NPU files the program sees (docs/device.md), or none; default: "
        "radxa,rock-5b.",
        metavar="NAME",
        words=BOARDS,
    )
    machine: MachineName = None
    prefix: Path | None = option(
        "Install library, declarations and the rknnlite module in this folder; run no program.",
        metavar="FOLDER",
    )


@dataclass
class Account:
    """Record of the models and products that programs ran, collected when contexts are destroyed.

    Members
    -------
    device : the engine.
    rows : number of frames and last frame of each model's context that ran.
    products : the matrix products.
    """

    device: Any
    rows: list[tuple[int, ModelRun]] = field(default_factory=list)
    products: list[ProductRow] = field(default_factory=list)

    def add(self, name: str, context: Any) -> None:
        """Record a context before it is destroyed; `name` is that of its model."""
        from rkcosim.measure.models.products import merged, product_rows
        from rkcosim.measure.models.run import run_of_frame
        from rkcosim.rknn_api.matmul_state import MatmulContext

        if isinstance(context, MatmulContext):
            self.products = merged([*self.products, *product_rows(context, self.device)])
        elif context.report is not None and context.loaded is not None:
            shown = run_of_frame(name or "model", self.device, context.model, context.loaded, context.report)
            self.rows.append((context.frame_id, shown))

    def text(self) -> str:
        """Return a line for each model's context, and those about all products."""
        from rkcosim.measure.models.products import product_lines

        lines = []
        for frames, run in self.rows:
            cycles = f"{run.cycles:,} cycles in the last" if run.measured else "- cycles"
            lines.append(f"{run.model}: {frames} frame{'s' * (frames != 1)}, {cycles}")
        lines += product_lines(self.products, self.device.cores)
        return "\n".join(lines)


@command(
    "rkcosim rknn run -- ./rknn_mobilenet_demo model/mobilenet.onnx picture.jpg",
    "rkcosim rknn run --engine golden -- python detect.py",
    "rkcosim rknn run --report --html run.html --timeline run.perfetto-trace -- ./program arguments",
    "rkcosim rknn run --any-path -- ./program_with_fixed_path arguments",
    "rkcosim rknn run --prefix ~/rknn",
    context={"allow_interspersed_args": False},
    waits=True,
)
def run_command(asked: RunOptions) -> None:
    """Run an unmodified program that calls rknn_api.h on the simulated NPU.

    The program finds librknnrt.so and a Python module rknnlite. The word "run" may be omitted before "--".
    The exit code is that of the program; 70 if it is 0 and an internal error occurred behind a call.
    """
    from rkcosim.devices.rknn_library import lay_out, rknn_library

    if asked.prefix is not None:
        if asked.program:
            raise ValueError("rknn: --prefix only installs files; omit the program")
        lay_out(asked.prefix, rknn_library(), copy=True)
        print(f"installed: {asked.prefix}/lib/librknnrt.so")
        return
    if not asked.program:
        raise ValueError("rknn: name a program: rkcosim rknn -- PROGRAM ARGUMENTS...")
    if asked.board == NO_BOARD and asked.machine is not None:
        raise ValueError("rknn: --machine needs a board")
    raise SystemExit(_run(asked, list(asked.program)))


def _run(asked: RunOptions, program: list[str]) -> int:
    from rkcosim import rknn_api
    from rkcosim.base.failures import Failures
    from rkcosim.base.tables import console
    from rkcosim.cli.moments import Work, check_trace
    from rkcosim.devices import program as run
    from rkcosim.devices.ending import Ending
    from rkcosim.devices.preload import audit_library
    from rkcosim.devices.rknn_library import rknn_library
    from rkcosim.devices.rknn_surroundings import rknn_surroundings
    from rkcosim.devices.simulated import Metered, account_of
    from rkcosim.driver import Driver
    from rkcosim.driver.kernel import BoardView
    from rkcosim.driver.kernel.boards import board_named
    from rkcosim.engines.engine import open_engine
    from rkcosim.measure.models.products import products_table
    from rkcosim.measure.report.kept import keeping, write_page
    from rkcosim.running.meter import meter

    board = None if asked.board == NO_BOARD else board_named(asked.board)
    with asked.recording() as trace, keeping(asked.html) as kept, contextlib.ExitStack() as stack:
        check_trace(trace, Work(None, cores=asked.cores))
        rknn_library()  # built before anything is opened
        audit = audit_library() if asked.any_path else None
        run.many_descriptors()
        engine = open_engine(
            asked.engine, exact=asked.exact, cores=asked.cores, dram=asked.memory, trace=trace
        )
        ending = stack.enter_context(Ending(run.ENDING))  # until the engine is closed
        stack.callback(engine.close)
        device = Metered(engine)
        stack.callback(rknn_api.use_device, None)
        driver = Driver(device, shared=True)
        rknn_api.use_device(driver, meter=meter(engine) if engine.has_cycles else None)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rkcosim-")))
        ending.at_last(lambda: _remove(folder))
        account = Account(engine)
        device.start_clock()
        failures = Failures()
        stack.enter_context(failures.watching())
        view = None if board is None else BoardView(board, driver.files())
        if view is not None:
            view.log.failures = failures
        surroundings = rknn_surroundings(
            folder,
            failures,
            files=view,
            machine=asked.machine,
            audit=audit,
            closed=account.add,
        )
        with surroundings as env:
            code = run.run_program(program, env, ending)
        done = account_of(device)
    _tell_missing(program, code)
    code = failures.code(code)
    if asked.report:
        if account.products:
            console(error=True).print(products_table(account.products))
        print("\n".join(filter(None, (done.text(), account.text()))), file=sys.stderr)
    models = [row.as_json() | {"frames": frames} for frames, row in account.rows]
    products = [row.as_json() for row in account.products]
    more = {"exit_code": code, "errors": failures.lines, "models": models, "products": products}
    asked.write(done.as_json() | more)
    for number, row in enumerate(models if asked.html else ()):
        assert asked.html is not None
        name = asked.html.name if not number else f"{asked.html.stem}-{number + 1}{asked.html.suffix}"
        write_page(asked.html.with_name(name), row, kept.log if len(models) == 1 else None)
    return code


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _tell_missing(program: list[str], code: int) -> None:
    """Print a hint for each missing model file among the arguments of a program that has failed."""
    from rkcosim.rknn_api.server.calls import MISSING

    for text in program[1:] if code else ():
        if text.endswith(MODELS) and not Path(text).exists():
            print(
                f"rkcosim: there is no file {text}; if the program was to read it, "
                f"{MISSING.format(path=text)}",
                file=sys.stderr,
            )
