"""`rkcosim quantize` and `rkcosim accuracy`: int8 models from float ones, and how far they are from them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rkcosim.cli import results
from rkcosim.cli.app import argument, command, needs, option
from rkcosim.cli.options import LoadingOptions, means_and_stds

if TYPE_CHECKING:
    from rkcosim.compiler.quantization import Accuracy, FloatModel, Normalisation
    from rkcosim.measure.models.calibration import Reading

SHOWN = 20
"""Layers that are printed without --all."""


@dataclass(frozen=True, kw_only=True)
class DataOptions(LoadingOptions):
    """Samples, how they are normalised, and the report about them."""

    data: Path | None = option(
        "Samples: a folder of pictures or .npy files, an .npz with an array for each input (or images), or "
        "a .txt list with the files of one sample on each line.",
        metavar="SAMPLES",
    )
    limit: int | None = option("Maximum number of samples; default: all.", low=1)
    mean: str | None = option(
        "Subtract these numbers from the channels of the samples, whose pixels are then 0 to 255; a slash "
        "separates the inputs of the model.",
        metavar="NUMBERS",
    )
    std: str | None = option(
        "Divide the channels by these numbers; default: 1 with --mean, otherwise pixels are divided by 255.",
        metavar="NUMBERS",
    )
    bgr: bool = option("The channels of pictures are blue, green, red.", default=False)
    npu: bool = option(
        "Also compute the outputs with the NPU's arithmetic (the graph-level golden model).", default=False
    )
    all: bool = option(f"Print all layers, not only the {SHOWN} with the largest errors.", default=False)
    html: Path | None = option("Also write the report to this HTML file.", writes=True)
    gains: bool = option(
        "Also try each layer in floating point, and sort the layers by the error of the output that is left "
        "(one run of the model for each layer and sample).",
        default=False,
    )

    advice: bool = option(
        "Also try changes (cuts before a Concat, layers in floating point, other ranges) on copies of the "
        "model, and print those that lower the error of the outputs by more than its noise on samples that "
        "were not calibrated with.",
        default=False,
    )

    def normalisations(self) -> tuple[Normalisation, ...]:
        """Return the normalisations of --mean and --std, one for all inputs or one for each."""
        from rkcosim.compiler.quantization import Normalisation

        return tuple(Normalisation(*pair) for pair in means_and_stds(self.mean, self.std))

    def how(self, raw: bool = False) -> Reading:
        """Return how the samples are read; `raw` if the model normalises them."""
        from rkcosim.measure.models.calibration import MOST_SAMPLES, Reading

        return Reading(self.normalisations(), raw, self.bgr, self.limit or MOST_SAMPLES)


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions(DataOptions):
    """Options of `rkcosim quantize`."""

    model: Path = argument("ONNX or TFLite model in floating point.")
    output: Path = option(
        "File to write, in the format of the model.", "-o", "--output", default=MISSING, writes=True
    )
    method: Literal["minmax", "percentile", "entropy", "mse", "auto"] = option(
        "Ranges of activations: the extreme values (minmax), without outliers (percentile), with the "
        "smallest loss of information (entropy), with the smallest mean squared error (mse), or by the one "
        "of minmax and percentile with the smallest error of the outputs on samples that were not "
        "calibrated with (auto).",
        default="minmax",
    )
    percentile: float = option(
        "Percentage of the values that --method percentile keeps.", default=99.99, low=50.0, high=100.0
    )
    per_channel: bool = option(
        "Whether weights have a scale for each channel or one for the layer.",
        "--per-channel/--per-tensor",
        default=True,
    )
    mixed: int = option(
        "Keep N layers in floating point, those that the output gains most from (implies --gains).",
        default=0,
        low=0,
    )
    keep: tuple[str, ...] = option(
        "Keep the layer of this name in floating point; repeatable.", metavar="NAME", default=()
    )
    share: tuple[str, ...] = option(
        "Give the inputs of the Concat of this name the range of its result, so that no value is rounded a "
        "second time; repeatable, ONNX models only.",
        metavar="NAME",
        default=(),
    )
    like: Path | None = option(
        "Use the scales of this model, the same one quantised for other shapes, instead of --data.",
    )
    keep_between: tuple[str, ...] = option(
        "Keep the layers between two tensors in floating point; repeatable.", metavar="FIRST,LAST", default=()
    )
    below: float | None = option(
        "Keep the layers in floating point whose cosine alone is below this number.", low=0.0, high=1.0
    )
    held_out: Path | None = option(
        "Samples on which --advice is measured; default: half of those of --data, which are then not "
        "calibrated with for the advice.",
        metavar="SAMPLES",
    )
    pixels: bool = option(
        "Put the normalisation of --mean and --std into the model, which then takes pixels from 0 to 255.",
        default=False,
    )
    float_only: bool = option(
        "Quantise nothing: write the float model, with the normalisation of --pixels if it is given.",
        default=False,
    )


@command(
    "rkcosim quantize model.onnx --data pictures/ -o model_int8.onnx",
    "rkcosim quantize model.onnx --data pictures/ --mean 123.7,116.3,103.5 --std 58.4,57.1,57.4 --mixed 2 "
    "-o model_int8.onnx --html accuracy.html",
    "rkcosim quantize model.onnx --data samples.npz --method percentile -o model_int8.onnx --json -",
)
def quantize_command(asked: QuantizeOptions) -> None:
    """Make an int8 model from an ONNX or TFLite model in float.

    onnxruntime's quantiser writes ONNX models in QDQ form, the AI Edge Quantizer TFLite models. The report
    compares the result with the float model layer by layer, on the samples that were used for calibration.
    """
    from rkcosim.base.files import read_given, wrong
    from rkcosim.compiler import quantization
    from rkcosim.compiler.model import naming_model
    from rkcosim.measure.models.accuracy_words import output_text
    from rkcosim.measure.models.calibration import load_samples
    from rkcosim.measure.models.quantising import quantise

    baked = asked.normalisations() if asked.pixels else ()
    if asked.pixels and not baked:
        needs("--mean or --std", pixels=True)
    data = _known(read_given(asked.model), asked.model, wrong)
    with asked.reading(), naming_model(asked.model):
        model = quantization.open_float_model(data, baked)
        if asked.float_only:
            results.write_bytes(asked.output, model.file())
            print(f"{asked.output}: {asked.output.stat().st_size:,} bytes, in floating point")
            asked.write({"model": asked.model.name, "quantized": False}, say=True)
            return
    if asked.like is not None:
        _quantize_like(asked, model)
        return
    if asked.data is None:
        raise ValueError("--data is missing: quantisation needs samples of the model's inputs")
    if asked.held_out is not None and not asked.advice:
        needs("--advice", held_out=asked.held_out)
    how = asked.how(raw=asked.pixels)
    samples = load_samples(asked.data, model.inputs, how)
    held_out = load_samples(asked.held_out, model.inputs, how) if asked.held_out is not None else ()
    with naming_model(asked.model):
        kept = tuple(dict.fromkeys([*asked.keep, *_parts(model, asked.keep_between)]))
        method = "minmax" if asked.method == "auto" else asked.method
        settings = quantization.Settings(method, asked.percentile, asked.per_channel, kept, asked.share)
        done = quantise(
            model,
            samples,
            settings,
            mixed=asked.mixed,
            below=asked.below or None,
            gains=asked.gains,
            npu=asked.npu,
            advice=asked.advice,
            held_out=held_out,
            auto=asked.method == "auto",
        )
    found, before, kept = done.found, done.before, done.kept
    results.write_bytes(asked.output, done.data)
    _report(asked, asked.output.name, found)
    if kept:
        print(f"in floating point: {', '.join(kept)}")
    if before is not found:
        for name, figures in before.outputs.items():
            print(f"output {name} without these layers in floating point: {output_text(figures)}")
    print(f"{asked.output}: {asked.output.stat().st_size:,} bytes")
    document = {
        "model": asked.model.name,
        "quantized": True,
        "method": done.settings.method,
        "percentile": done.settings.percentile,
        "methods_tried": [vars(trial) for trial in done.selection.trials] if done.selection else [],
        "per_channel": asked.per_channel,
        "floats": list(kept),
        "shared": list(asked.share),
        "before_mixed": {name: vars(figures) for name, figures in before.outputs.items()},
        **found.as_json(),
    }
    asked.write(document, say=True)


def _quantize_like(asked: QuantizeOptions, model: FloatModel) -> None:
    """Quantise a model with the scales of the same model for other shapes, and write it."""
    import numpy as np

    from rkcosim.base.files import identify, read_given, wrong
    from rkcosim.compiler import quantization
    from rkcosim.compiler.model import naming_model

    assert asked.like is not None
    for name, value in (
        ("data", asked.data),
        ("mixed", asked.mixed),
        ("below", asked.below),
        ("share", asked.share),
    ):
        if value:
            raise ValueError(f"--{name} has no effect with --like, whose model has the scales already")
    like = read_given(asked.like)
    if identify(like) != "ONNX model" or identify(read_given(asked.model)) != "ONNX model":
        raise wrong(asked.like, like, "an ONNX model, like the one to be quantised")
    sample = {info.name: np.zeros(info.shape, info.dtype) for info in model.inputs}
    with naming_model(asked.model):
        kept = tuple(dict.fromkeys([*asked.keep, *_parts(model, asked.keep_between)]))
        settings = quantization.Settings(per_channel=asked.per_channel, keep=kept, like=like)
        made = model.quantize([sample], settings)
    results.write_bytes(asked.output, made)
    print(f"{asked.output}: {asked.output.stat().st_size:,} bytes, with the scales of {asked.like.name}")
    asked.write({"model": asked.model.name, "quantized": True, "like": asked.like.name}, say=True)


def _parts(model: FloatModel, pairs: tuple[str, ...]) -> list[str]:
    """Return the names of the nodes of --keep-between."""
    found = []
    for pair in pairs:
        first, comma, last = pair.partition(",")
        if not (first and comma and last):
            raise ValueError(f"--keep-between must be two names of tensors, as FIRST,LAST, not '{pair}'")
        found += model.between(first, last)
    return found


@dataclass(frozen=True, kw_only=True)
class AccuracyOptions(DataOptions):
    """Options of `rkcosim accuracy`."""

    quantized: Path = argument("Quantised ONNX or TFLite model.")
    model: Path = argument("The model in floating point from which it was made.")
    pixels: bool = option(
        "The quantised model normalises its inputs itself, with --mean and --std.", default=False
    )


@command(
    "rkcosim accuracy model_int8.onnx model.onnx --data pictures/",
    "rkcosim accuracy model_int8.onnx model.onnx --data samples.npz --npu --html accuracy.html",
)
def accuracy_command(asked: AccuracyOptions) -> None:
    """Compare a quantised model with its float original.

    Both are ONNX or both TFLite models; tensors are matched by their names. Each layer is compared alone and
    behind all layers in front of it.
    """
    from rkcosim.base.files import identify, read_given, wrong
    from rkcosim.compiler import quantization
    from rkcosim.compiler.model import naming_model
    from rkcosim.measure.models.calibration import load_samples
    from rkcosim.measure.models.hosted import host_work
    from rkcosim.measure.models.quantising import measure
    from rkcosim.rknn_file.opening import open_model

    baked = asked.normalisations() if asked.pixels else ()
    if asked.pixels and not baked:
        needs("--mean or --std", pixels=True)
    if asked.data is None:
        raise ValueError("--data is missing: the comparison needs samples of the model's inputs")
    with asked.reading():
        with naming_model(asked.model):
            original = _known(read_given(asked.model), asked.model, wrong)
            model = quantization.open_float_model(original, baked)
        data = _known(read_given(asked.quantized), asked.quantized, wrong)
        if identify(data) != identify(original):
            raise ValueError(f"{asked.quantized} and {asked.model} must have the same format")
        samples = load_samples(asked.data, model.inputs, asked.how(raw=asked.pixels))
        with naming_model(asked.quantized):
            found = measure(model, data, samples, gains=asked.gains, npu=asked.npu, advice=asked.advice)
            share = host_work(open_model(data)).share()
    _report(asked, asked.quantized.name, found)
    print(f"{asked.quantized.name}: {share}")
    asked.write({"model": asked.quantized.name, "original": asked.model.name, **found.as_json()}, say=True)


def _known(data: bytes, path: Path, wrong: Any) -> bytes:
    """Return the bytes of an ONNX or TFLite file; raises WrongKindError for another kind."""
    from rkcosim.base.files import UNKNOWN, identify

    if identify(data) not in ("ONNX model", "TFLite model", UNKNOWN):
        raise wrong(path, data, "an ONNX or TFLite model")
    return data


def _report(asked: DataOptions, name: str, found: Accuracy) -> None:
    """Print the report, and write its page if one is asked for."""
    console = results.console()
    print_accuracy(console, name, found, None if asked.all else SHOWN)
    if asked.html is not None:
        from rkcosim.measure.report import accuracy

        accuracy.write(asked.html, name, found)
        print(f"report: {asked.html}")


def print_accuracy(console: Any, name: str, found: Accuracy, most: int | None = SHOWN) -> None:
    """Print the layers, the codes in use and the outputs.

    Parameters
    ----------
    console : `rich.console.Console`.
    name : of the model.
    found : the comparison.
    most : maximum number of layers; None for all.
    """
    from rkcosim.measure.models.accuracy_words import advice_lines, layer_line, output_lines

    ranked = found.ranked()
    tried = any(layer.output for layer in ranked)
    rows = []
    for layer in ranked[:most]:
        cells: list[Any] = [results.shortened(layer.name, console), layer.op]
        for figures in (layer.alone, layer.accumulated):
            cells += [figures.sqnr, figures.cosine, figures.steps]
        if tried:
            cells.append(layer.output.sqnr if layer.output else None)
        rows.append(cells)
    columns = ("SQNR|.1f", "cosine|.5f", "steps|.1f")
    heads = ["layer", "op", *(f"{who} {column}" for who in ("alone", "accumulated") for column in columns)]
    if tried:
        heads.append("output, if float: SQNR|.1f")
    first = "most important for the output first" if tried else "largest errors first"
    title = f"{name} against the float model, {results.counted(found.samples, 'sample')}: {first}"
    console.print(results.table(title, heads, rows))
    if most is not None and len(ranked) > most:
        console.print(f"{len(ranked) - most} more layers (--all prints them)")
    if found.kept:
        console.print(f"layers with weights in floating point: {', '.join(found.kept)}", markup=False)
    if found.skipped:
        shown = ", ".join(found.skipped[:SHOWN])
        more = f" and {len(found.skipped) - SHOWN} more" if len(found.skipped) > SHOWN else ""
        console.print(f"not compared, the float model has no such tensor: {shown}{more}", markup=False)
    _print_codes(console, found, most)
    if line := layer_line(found):
        console.print(line, markup=False)
    for line in (*output_lines(found), *advice_lines(found)):
        console.print(line, markup=False)


def _print_codes(console: Any, found: Accuracy, most: int | None) -> None:
    """Print range, step and codes in use of the outputs and of tensors with lost channels; or of all."""
    from rkcosim.compiler.quantization.channels import CODES, FEW
    from rkcosim.measure.models.accuracy_words import code_rows, conspicuous

    rows = code_rows(found) if most is None else conspicuous(found)
    cells = [
        [
            results.shortened(row.layer.tensor, console),
            row.layer.op,
            row.range,
            row.step,
            row.channels,
            row.lost,
            row.fewest,
            row.median,
        ]
        for row in rows[:most]
    ]
    if not cells:
        return
    heads = ["tensor", "op", "range", "step|.4g", "channels", f"below {FEW} codes", "fewest", "median"]
    console.print(results.table(f"codes in use, of {CODES}: outputs and lost channels", heads, cells))
    if len(rows) > len(cells):
        console.print(f"{len(rows) - len(cells)} more tensors (--all prints them)")
