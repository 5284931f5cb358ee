"""Options that several commands share, each defined once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rkcosim.cli.app import Options, Parameter, needs, option

if TYPE_CHECKING:
    from rkcosim.engines.library import DramConfig
    from rkcosim.measure.models.input_files import Batch
    from rkcosim.waves.spec import TraceSpec

ENGINES = {
    "verilator": "compiled with Verilator, the default",
    "cxxrtl": "compiled with Yosys only",
    "amaranth": "Amaranth's simulator, slow",
    "changes": "C++ that evaluates only what has changed, without waveforms",
    "fast": "the timing of the RTL, with the bytes of the numpy model",
    "golden": "numpy model, counts no cycles",
}
"""Engines of `--engine`, each with a short description."""


def check_engine(name: str | None) -> None:
    """Raise ValueError for an engine that does not exist; the message names all, and the nearest one."""
    if name is not None and name not in ENGINES:
        near = get_close_matches(name, ENGINES, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not '{name}'{hint}")


def _dram() -> list[str]:
    from rkcosim.engines.settings import dram_settings

    return [f"{name}=" for name in dram_settings()]


Model = Annotated[
    Path,
    Parameter(
        argument=True,
        help="ONNX model (int8 in QDQ form, or floats run as fp16), full-integer TFLite "
        "model, .rknn file, or compiled model.",
    ),
]
Share = Annotated[int, Parameter("Cores among which large layers are divided.", low=1, high=3)]
Cores = Annotated[int, Parameter("Cores of the simulated NPU.", low=1, high=3)]
Csv = Annotated[Path | None, Parameter("Also write the table to this CSV file.", writes=True)]
Html = Annotated[Path | None, Parameter("Also write a report of the run to this HTML file.", writes=True)]
Dram = Annotated[
    tuple[str, ...],
    Parameter(
        "Set a parameter of the memory's timing, as core_bytes_per_cycle=8; repeatable (docs/models.md).",
        metavar="NAME=VALUE",
        words=_dram,
    ),
]
DramLists = Annotated[
    tuple[str, ...],
    Parameter(
        "Parameter of the memory's timing and the values to sweep, as read_latency=60,120; repeatable.",
        metavar="NAME=LIST",
        words=_dram,
    ),
]
Plan = Annotated[
    Literal["ours", "rknn"],
    Parameter(
        "How convolutions are divided into tasks: as this compiler divides them (ours), or as RKNN does "
        "(rknn). Compiled models and .rknn files keep their own plan."
    ),
]
Page = Annotated[
    Path | None,
    Parameter("Update this command's section of a Markdown page (between its marker comments).", writes=True),
]
"""For commands that write a section of docs/results/performance.md (cosim/measure/perf/page.py)."""
Scheduler = Annotated[
    str | None,
    Parameter(
        "Dask scheduler whose workers simulate, as tcp://host:8786; default: processes on this machine.",
        metavar="ADDRESS",
    ),
]
Workers = Annotated[
    int | None, Parameter("Number of processes on this machine; default: one per processor.", low=1)
]
MOST_CYCLES = 10_000_000
"""Bound of the run of a stream in cycles, if the user sets none."""

MaxCycles = Annotated[int, Parameter("Maximum number of cycles to wait for the interrupt.", low=1)]
Shapes = Annotated[
    tuple[str, ...],
    Parameter(
        "Shape of an input with open dimensions, as images=1,3,640,640; repeatable. Default: batches of 1 "
        "and sizes that the model accepts.",
        metavar="NAME=SIZES",
    ),
]
InputShapes = Annotated[
    str | None,
    Parameter(
        "Shapes of all inputs of an ONNX model in their order, as JSON ([[1,3,640,640],[1,2]]), in the place "
        "of those in the file.",
        metavar="JSON",
    ),
]
OpenDimensions = Annotated[
    Literal["choose", "batches", "refuse"],
    Parameter(
        "Open dimensions that --shape does not name: sizes that the model accepts (choose), only batches of "
        "1 (batches), or an error (refuse)."
    ),
]
Outputs = Annotated[
    str | None,
    Parameter(
        "Compute these values of the model instead of its outputs, separated by commas.", metavar="NAMES"
    ),
]


def _board(name: str) -> None:
    from rkcosim.driver.kernel.boards import board_named

    board_named(name)


BOARDS = "rkcosim.driver.kernel.boards:BOARDS"
BoardName = Annotated[
    str | None,
    Parameter(
        "Board whose device tree programs see (docs/device.md); default: radxa,rock-5b.",
        metavar="NAME",
        words=BOARDS,
        check=_board,
    ),
]
MachineName = Annotated[
    Literal["aarch64"] | None,
    Parameter("What uname tells the program as the machine, as on a board; default: the real one."),
]
Program = Annotated[tuple[str, ...], Parameter("Program and its arguments, after --.", argument=True)]


def planning(plan: str) -> AbstractContextManager[None]:
    """Return a context in which models are compiled with a plan of `Plan`."""
    from rkcosim.compiler.tiling import planned_by

    if plan != "rknn":
        return planned_by(None)
    from rkcosim.compiler.rknn_tiling import rknn_tiles

    return planned_by(rknn_tiles)


def one_cluster(scheduler: str | None, workers: int | None) -> None:
    """Raise ValueError if both an existing cluster and processes to be started are given."""
    if scheduler is not None and workers is not None:
        raise ValueError(
            "--workers starts processes on this machine, --scheduler uses an existing cluster: give only one "
            "of them"
        )


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """The engine that simulates, and the form of its array cell."""

    engine: str | None = option(
        f"Engine that simulates: {', '.join(ENGINES)}; default: verilator, or cxxrtl without it.",
        metavar="NAME",
        words=ENGINES,
        check=check_engine,
    )
    exact: bool = option(
        "Simulate the cells (array, DPU) as RTL instead of their C++ equivalents (slower).", default=False
    )
    fast: bool = option(
        "Simulate only what determines cycles, and take the bytes from the golden model: --engine fast.",
        default=False,
    )

    def __post_init__(self) -> None:
        if self.fast:
            if self.engine not in (None, "fast"):
                raise ValueError(f"--fast is the engine fast; leave out --fast or --engine {self.engine}")
            object.__setattr__(self, "engine", "fast")
        if self.exact:
            from rkcosim.engines.protocol import require_rtl_cell

            require_rtl_cell(self.engine)


@dataclass(frozen=True, kw_only=True)
class DramOptions(EngineOptions):
    """The engine and its memory, for commands that report cycles."""

    dram: Dram = ()

    @property
    def memory(self) -> DramConfig | None:
        """Return the memory's timing, None for the default; see `rkcosim.engines.settings.dram_of`."""
        from rkcosim.engines.settings import dram_of

        return dram_of(self.dram, self.engine)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """A model, and how its file is read."""

    model: Model
    float_: Literal["fp16", "host", "refuse"] = option(
        "Operators on float32 tensors: in fp16 on the NPU (fp16), in float32 on the host (host), or not at "
        "all (refuse).",
        default="fp16",
    )
    signature: str | None = option(
        "Signature of a TFLite file to run; default: the file's first subgraph.", metavar="NAME"
    )
    no_fallback: bool = option(
        "Refuse a model with operators that the NPU cannot do; by default onnxruntime or LiteRT computes "
        "them on the host.",
        default=False,
    )
    shape: Shapes = ()
    outputs: Outputs = None
    no_fold: bool = option("Do not fold the constants of an ONNX model.", default=False)

    READING = ("float_", "signature", "no_fallback", "shape", "outputs", "no_fold")
    """The options of this class that change how a file is read."""

    def reading(self, values: Mapping[str, Any] | None = None) -> AbstractContextManager[Any]:
        """Return a context in which model files are read with these options.

        Parameters
        ----------
        values
            Other values of the options in `READING`, for example those of a snapshot.
        """
        from rkcosim.compiler.options import using_options

        given = values or {name: getattr(self, name) for name in self.READING}
        return using_options(
            floats=given["float_"],
            signature=given["signature"],
            fallback=not given["no_fallback"],
            shapes=self._open_shapes() | dict(_shape(text) for text in given["shape"]),
            outputs=_names(given["outputs"]),
            fold=not given["no_fold"],
        )

    def _open_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return sizes for open dimensions of inputs that the command's inputs have."""
        return {}


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return name and sizes of NAME=1,3,640,640; a name may contain an equals sign."""
    name, _, sizes = text.rpartition("=")
    numbers = [size.strip() for size in sizes.split(",")]
    if not name or not all(size.isdecimal() and size.isascii() for size in numbers):
        raise ValueError(f"--shape must be NAME=SIZES, as images=1,3,640,640, not '{text}'")
    return name, tuple(int(size) for size in numbers)


def input_shapes(text: str | None) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of --input-shapes; raises ValueError for another text."""
    from rkcosim.compiler.several import sets_of

    if text is None:
        return ()
    try:
        return sets_of(f"[{text}]")[0]
    except ValueError as error:
        said = f"--input-shapes must be a shape for each input, as [[1,3,640,640],[1,2]], not '{text}'"
        raise ValueError(said) from error


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names in a text with commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(Options):
    """How an ONNX file is read by commands that do not run it."""

    shape: Shapes = ()
    input_shapes: InputShapes = None
    open_dimensions: OpenDimensions = "choose"
    outputs: Outputs = None

    def reading(self) -> AbstractContextManager[Any]:
        """Return a context in which model files are read with these options."""
        from rkcosim.compiler.options import using_options

        return using_options(
            shapes=dict(_shape(text) for text in self.shape),
            input_shapes=input_shapes(self.input_shapes),
            open_dimensions=self.open_dimensions,
            outputs=_names(self.outputs),
        )


@dataclass(frozen=True, kw_only=True)
class InputOptions(ModelOptions):
    """A model and its inputs."""

    input: tuple[Path, ...] = option(
        "Input file: an .npz with an array for each input (or images, and labels), pictures, or one .npy per "
        "model input. Arrays give the open dimensions of inputs their sizes, too. Repeatable.",
        "-i",
        "--input",
        default=(),
    )
    limit: int | None = option("Maximum number of inferences; default: all inputs.", low=1)
    seed: int = option("Seed of the random inputs that are used without --input.", default=0)

    def _open_shapes(self) -> dict[str, tuple[int, ...]]:
        from rkcosim.measure.models.open_shapes import shapes_of_arrays

        return shapes_of_arrays(self.model, self.input)

    def batch(self) -> Batch | None:
        """Return the given inputs, None for none; bad ones are reported before an engine is built.

        Raises like `rkcosim.rknn_file.opening.open_file` and `rkcosim.measure.models.input_files.load_batch`.
        """
        from rkcosim.measure.models.input_files import load_batch
        from rkcosim.rknn_file.opening import open_file

        if not self.input:
            return None
        return load_batch(list(self.input), list(open_file(self.model).inputs), self.limit)


@dataclass(frozen=True, kw_only=True)
class RecordedOptions(DramOptions):
    """What the engine records (a waveform, an event log, a timeline), and its threads."""

    threads: int | None = option(
        "Threads that simulate busy cores in parallel; default: whichever number is fastest. Results do not "
        "depend on it.",
        low=1,
        high=3,
    )
    trace: Path | None = option("Write a waveform to this file (docs/waves.md).", writes=True)
    trace_format: str | None = option(
        "Format of the waveform, vcd or fst; default: from the file's ending.",
        "--format",
        metavar="NAME",
        words=("vcd", "fst"),
    )
    trace_scope: tuple[str, ...] = option(
        "Record only these scopes of the waveform, as 'core0.CNA' or tasks; repeatable.",
        "--scope",
        metavar="GLOB",
        default=(),
    )
    trace_from: str | None = option(
        "First cycle of the waveform: a cycle number, task:N, task:N@JOB, layer:NAME, "
        "write:BLOCK.REGISTER[=VALUE], write:BLOCK.REGISTER.FIELD=VALUE, error or mismatch; default: the "
        "start of the run.",
        "--from",
        metavar="WHEN",
    )
    trace_to: str | None = option(
        "End of the waveform, in the same forms as --from (a cycle number is the first cycle that is not "
        "recorded); default: the end of the run, or 200 cycles after an error or mismatch of --from.",
        "--to",
        metavar="WHEN",
    )
    trace_before: int | None = option(
        "Number of cycles to record before --from; default: 2000 for an error or a mismatch, else 0.",
        "--before",
        metavar="CYCLES",
    )
    trace_limit: str | None = option(
        "End the waveform when the file reaches this size, as 500M; default: no limit.",
        "--trace-limit",
        metavar="SIZE",
    )
    events: Path | None = option(
        "Write the event log to this file: .parquet or .arrow (docs/events.md).", writes=True
    )
    timeline: Path | None = option("Write a timeline for ui.perfetto.dev to this file.", writes=True)
    event_kinds: str | None = option(
        "Record only these kinds of events, separated by commas: task, write, burst, stripe, mac, packet, "
        "irq, stall, busy, diagnostic, fault, layer; default: all.",
        metavar="KINDS",
    )

    def _trace_spec(self) -> TraceSpec | None:
        if self.trace is None:
            needs("--trace FILE", format=self.trace_format, scope=self.trace_scope, from_=self.trace_from)
            needs("--trace FILE", to=self.trace_to, before=self.trace_before, trace_limit=self.trace_limit)
            return None
        from rkcosim.waves.spec import TraceSpec, When, parse_size

        return TraceSpec(
            self.trace,
            self.trace_format or "",
            self.trace_scope,
            When.parse(self.trace_from or 0),
            When.parse(self.trace_to) if self.trace_to is not None else None,
            self.trace_before,
            parse_size(self.trace_limit) if self.trace_limit is not None else None,
        )

    @contextmanager
    def recording(self) -> Iterator[TraceSpec | None]:
        """Give the engine that is opened within the block its threads, and record its events.

        Yields
        ------
        The requested waveform, which the caller passes to the engine; None if there is none.

        Raises
        ------
        ValueError
            for options that exclude each other.
        """
        from rkcosim.engines.protocol import capabilities, require
        from rkcosim.engines.settings import using_threads

        trace = self._trace_spec()
        if not (trace or self.events or self.timeline):
            needs("--events FILE or --timeline FILE", event_kinds=self.event_kinds)
            with using_threads(self.threads):
                yield None
            return
        from rkcosim.engines.event_files import EventFiles, beside, writing

        files = []
        wanted = "--events" if self.events else "--timeline" if self.timeline else ""
        if trace is None and wanted:  # with a waveform, the command reports this itself
            require(self.engine, "has_events", wanted)
        if self.engine is None or capabilities(self.engine).has_events:
            if self.events or self.timeline:
                kinds = [kind.strip() for kind in (self.event_kinds or "").split(",")]
                files.append(
                    EventFiles(self.events, self.timeline, tuple(kinds) if self.event_kinds else None)
                )
            if trace is not None and self.events is None and (log := beside(trace)) is not None:
                files.append(log)
        with writing(files), using_threads(self.threads):
            yield trace


def means_and_stds(mean: str | None, std: str | None) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Return the numbers of --mean and --std for each input that they name; [] if neither is given.

    Raises
    ------
    ValueError
        if a text has no numbers, or the two name different numbers of inputs.
    """
    means, stds = _numbers(mean, "--mean"), _numbers(std, "--std")
    means, stds = means or [(0.0,)] * len(stds), stds or [(1.0,)] * len(means)
    if len(means) != len(stds):
        raise ValueError(f"--mean has numbers for {len(means)} inputs, --std for {len(stds)}")
    return list(zip(means, stds, strict=True))


def _numbers(text: str | None, name: str) -> list[tuple[float, ...]]:
    """Return the numbers of an option: a group for each input, separated by slashes; [] for None."""
    try:
        groups = [tuple(map(float, group.split(","))) for group in (text or "").split("/") if group]
    except ValueError:
        groups = []
    if text is not None and not groups:
        raise ValueError(
            f"{name} must be numbers separated by commas, as 123.7,116.3,103.5, with a slash between the "
            f"inputs of the model, not '{text}'"
        )
    return groups


def _check_time(text: str | None) -> None:
    from rkcosim.waves.clocking import parse_time

    if text is not None:
        parse_time(text)


@dataclass(frozen=True, kw_only=True)
class WaveOptions(Options):
    """How a waveform that no engine wrote is read; the options have no effect on other files."""

    cycle: str | None = option(
        "Length of a clock cycle in the waveform, as 10ns; default: 1ns, as --trace writes it.",
        metavar="TIME",
        check=_check_time,
    )
    first_edge: str | None = option(
        "Time of the clock's first rising edge, with which cycle 0 ends.", metavar="TIME", check=_check_time
    )
    clock: str | None = option(
        "Signal whose rising edges are the cycles; it may stop and change its period.", metavar="SIGNAL"
    )
    map_: Path | None = option(
        "Names of the core's ports in the waveform (TOML, docs/viewers.md).", "--map", metavar="FILE"
    )
    prefix: str | None = option("Beginning of the names of the core's ports, as top.dut.", metavar="TEXT")

    @property
    def opening(self) -> dict[str, Any]:
        """Arguments of `rkcosim.waves.open`.

        Raises
        ------
        ValueError
            for options that exclude each other.
        """
        if self.clock is not None and (self.cycle is not None or self.first_edge is not None):
            raise ValueError("--clock gives the length of each cycle: leave out --cycle and --first-edge")
        given = {"cycle": self.cycle, "first_edge": self.first_edge, "clock": self.clock}
        return given | {"ports": self.map_, "prefix": self.prefix}
