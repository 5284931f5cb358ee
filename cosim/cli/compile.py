"""`rkcosim compile`: compile a model, print its plan, write its container."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base import progress
from rkcosim.cli.app import command, option
from rkcosim.cli.options import (
    InputShapes,
    ModelOptions,
    OpenDimensions,
    Share,
    input_shapes,
    means_and_stds,
)
from rkcosim.cli.results import write_bytes
from rkcosim.measure.models.summary import fp16_lines

if TYPE_CHECKING:
    from rkcosim.compiler.preprocessing import Preprocessing
    from rkcosim.compiler.several import ShapeSet
    from rkcosim.measure.models.hosted import HostWork


@dataclass(frozen=True, kw_only=True)
class CompileOptions(ModelOptions):
    """Options of `rkcosim compile`."""

    output: Path | None = option(
        "Write the compiled model to this file; a name that ends with .rknn selects the vendor's container.",
        "-o",
        "--output",
        writes=True,
    )
    explain: bool = option("Print tasks, tiles, CBUF banks and memory addresses.", default=False)
    no_weights: bool = option(
        "Write no weights: the file uses those of another model (docs/rknn_api.md#shared-weights).",
        default=False,
    )
    input_shapes: InputShapes = None
    open_dimensions: OpenDimensions = "choose"
    dynamic_input: str | None = option(
        "Compile an ONNX model for each of several sets of shapes, which the file then keeps, as JSON "
        "([[[1,3,64,64]],[[1,3,96,96]]]); default: the list in the model's metadata, if it has one.",
        metavar="JSON",
    )
    custom_string: str | None = option(
        "Text for programs, which RKNN_QUERY_CUSTOM_STRING gives them; at most 1023 bytes.", metavar="TEXT"
    )
    keep: bool = option("Do not let tensors share memory.", default=False)
    cores: Share = 1
    mean: str | None = option(
        "With a .rknn file: the runtime subtracts these numbers from the channels of a program's pixels; a "
        "slash separates the inputs of the model.",
        metavar="NUMBERS",
    )
    std: str | None = option(
        "With a .rknn file: the runtime divides the channels by these numbers.", metavar="NUMBERS"
    )
    bgr: bool = option(
        "With a .rknn file: the runtime reverses three channels before --mean and --std (rgb2bgr).",
        default=False,
    )
    batch: int = option(
        "With a .rknn file: number of samples that a program gives at once (rknn_batch_size), for a model of "
        "one sample; a model of batches keeps its own number.",
        default=1,
        low=1,
    )

    plans: bool = option(
        "With a .rknn file: plans for one, two and three cores, as in the vendor's files.", default=False
    )

    def name(self, compiled: Any) -> None:
        """Give a compiled model the text of --custom-string.

        Raises
        ------
        ValueError
            if it is too long, or the file that is written has no place for it.
        """
        from rkcosim.compiler.graph import MOST_CUSTOM

        if self.custom_string is None:
            return
        if len(self.custom_string.encode()) > MOST_CUSTOM:
            raise ValueError(f"--custom-string has more than {MOST_CUSTOM} bytes")
        if self.output is not None and self.output.suffix == ".rknn":
            raise ValueError("--custom-string: a .rknn file has no place for it here; omit the suffix .rknn")
        compiled.graph.custom_string = self.custom_string

    def preprocessing(self) -> list[Preprocessing]:
        """Return what the runtime does with a program's numbers."""
        from rkcosim.compiler.preprocessing import Preprocessing

        given = means_and_stds(self.mean, self.std) or ([((0.0,), (1.0,))] if self.bgr else [])
        return [Preprocessing(mean, std, self.bgr) for mean, std in given]


@command(
    "rkcosim compile examples/digits/digits_int8.onnx --explain",
    "rkcosim compile model.tflite -o model.rkc --cores 3",
    "rkcosim compile model.onnx -o model.rknn --mean 123.7,116.3,103.5 --std 58.4,57.1,57.4 --batch 8",
)
def compile_command(asked: CompileOptions) -> None:
    """Compile a model: its tasks and its memory.

    The compiled model runs without the original file. --mean, --std, --bgr and --batch are written into a
    .rknn file; the model itself takes one sample of normalised numbers.
    """
    container = asked.output is not None and asked.output.suffix == ".rknn"
    if not container and (asked.mean or asked.std or asked.bgr or asked.batch > 1 or asked.plans):
        raise ValueError("--mean, --std, --bgr, --batch and --plans need -o with a name that ends with .rknn")
    if asked.no_weights and (container or asked.output is None):
        raise ValueError("--no-weights needs -o with a name that does not end with .rknn")
    from rkcosim.compiler.batch import batch_size, one_of
    from rkcosim.compiler.options import using_options
    from rkcosim.measure.models.hosted import host_work
    from rkcosim.rknn_file.model import FileModel
    from rkcosim.rknn_file.opening import open_file

    if sets := _sets(asked):
        if asked.no_weights:
            raise ValueError("--no-weights: a model of several shapes keeps its weights")
        _compile_several(asked, sets)
        return
    shapes, still = input_shapes(asked.input_shapes), asked.open_dimensions
    more = using_options(input_shapes=shapes, open_dimensions=still)
    with progress.step(f"compiling {asked.model.name}"), asked.reading(), more:
        compiled = open_file(asked.model, reuse=not asked.keep, cores=asked.cores)
    asked.name(compiled)
    summary = summarise(compiled)
    print_summary(asked.model.name, summary, host_work(compiled))
    if asked.explain:
        print(compiled.plan)
    if asked.output:
        from rkcosim.rknn_file.writer import write_rknn

        plan_of_ours = container and not isinstance(compiled, FileModel)
        if plan_of_ours:
            samples = batch_size(compiled)
            if samples > 1 and asked.batch > 1:
                raise ValueError(
                    f"--batch is for models of one sample; {asked.model.name} has a batch of {samples}"
                )
            cores = (1, 2, 3) if asked.plans else ()
            data = write_rknn(one_of(compiled), asked.preprocessing(), max(samples, asked.batch), cores)
        else:
            data = compiled.save(weights=not asked.no_weights)
        write_bytes(asked.output, data)
        print(f"container: {asked.output}, {asked.output.stat().st_size:,} bytes")
    asked.write({"model": asked.model.name, **summary}, say=True)


def _sets(asked: CompileOptions) -> list[ShapeSet]:
    """Return the sets of shapes for which the model is compiled; [] for a model of one shape.

    Raises
    ------
    ValueError
        if the text is no list of sets of shapes, or if another option gives shapes as well.
    """
    from rkcosim.base.files import identify, read_model
    from rkcosim.compiler.several import KEY, sets_of

    one = asked.shape or asked.input_shapes
    if asked.dynamic_input is not None and one:
        raise ValueError("--dynamic-input names all shapes: omit --shape and --input-shapes")
    data = read_model(asked.model)
    if identify(data) != "ONNX model":
        if asked.dynamic_input is not None:
            raise ValueError(f"--dynamic-input needs an ONNX model, {asked.model} is none")
        return []
    if asked.dynamic_input is not None:
        return sets_of(asked.dynamic_input)
    if one or KEY.encode() not in data:
        return []
    import onnx

    from rkcosim.compiler.loaders.onnx_file import listed_shapes

    return listed_shapes(onnx.load_model_from_string(data))


def _compile_several(asked: CompileOptions, sets: list[ShapeSet]) -> None:
    """Compile a model for several sets of shapes, print the figures of each, and write one file."""
    from rkcosim.compiler import several
    from rkcosim.compiler.options import using_options
    from rkcosim.measure.models.hosted import host_work
    from rkcosim.rknn_file.opening import open_file

    if asked.output is not None and asked.output.suffix == ".rknn":
        raise ValueError(
            "a .rknn file of several shapes is not written: choose a name that does not end with .rknn"
        )
    models, summaries = [], []
    for shapes in sets:
        said = ", ".join(str(list(shape)) for shape in shapes)
        with (
            progress.step(f"compiling {asked.model.name} for {said}"),
            asked.reading(),
            using_options(input_shapes=shapes),
        ):
            compiled = open_file(asked.model, reuse=not asked.keep, cores=asked.cores)
        asked.name(compiled)
        summary = summarise(compiled)
        print_summary(f"{asked.model.name} for {said}", summary, host_work(compiled))
        if asked.explain:
            print(compiled.plan)
        summaries.append({"shapes": shapes, **summary})
        models.append(compiled.save())
    if asked.output:
        write_bytes(asked.output, several.pack(sets, models))
        print(f"container: {asked.output}, {asked.output.stat().st_size:,} bytes")
    asked.write({"model": asked.model.name, "sets": summaries}, say=True)


def summarise(compiled: Any) -> dict[str, Any]:
    """Return the figures of a compiled model."""
    from rkcosim.compiler.batch import batch_size
    from rkcosim.compiler.steps import HostStep
    from rkcosim.measure.models.hosted import host_work

    plan = compiled.plan
    hosted = [step for step in plan.steps if isinstance(step, HostStep)]
    return {
        "layers": len(plan.steps),
        "tasks": len(plan.tasks),
        "jobs": plan.jobs,
        "cores": plan.cores,
        "on_one_core": plan.on_one_core,
        "samples": batch_size(compiled),
        "weights_bytes": len(plan.weights),
        "regcmd_bytes": plan.regcmd_bytes(),
        "activation_bytes": plan.activation_bytes,
        "activation_bytes_shared": plan.shared_bytes,
        "activation_bytes_separate": plan.separate_bytes,
        "macs": sum(task.macs for task in plan.tasks),
        "formula_npu": sum(task.formula_npu for task in plan.tasks),
        "host_layers": [{"name": step.name, "op": step.kind} for step in hosted],
        "floats_in_fp16": compiled.floats_in_fp16,
        "fp16_layers": compiled.fp16_layers,
        **host_work(compiled).as_json(),
    }


def print_summary(name: str, summary: dict[str, Any], host: HostWork) -> None:
    """Print the figures in a few lines."""
    if summary["samples"] > 1:
        print(f"{name}: a batch of {summary['samples']} samples, compiled for one, which runs once for each")
    print(
        f"{name}: {summary['layers']} layers, {summary['tasks']} tasks in {summary['jobs']} jobs on "
        f"{summary['cores']} cores, {summary['macs']:,} MACs, {summary['formula_npu']:,} cycles by formula"
    )
    if summary["on_one_core"]:
        print(summary["on_one_core"])
    shared, separate = summary["activation_bytes_shared"], summary["activation_bytes_separate"]
    print(
        f"memory: weights {summary['weights_bytes']:,}, commands {summary['regcmd_bytes']:,}, activations "
        f"{summary['activation_bytes']:,} bytes (if tensors share memory {shared:,}, if not {separate:,}: "
        f"{shared / max(separate, 1):.0%})"
    )
    for line in fp16_lines(summary["floats_in_fp16"], summary["fp16_layers"]):
        print(line)
    for line in host.lines():
        print(line)
