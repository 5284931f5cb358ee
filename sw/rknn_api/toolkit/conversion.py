"""The part of class RKNN that converts models: options, loading, quantisation, compilation, export.

Like `api.py`, this module is copied into the folder `rknn`.  Models are quantised and compiled by the command
`rkcosim` in another process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rkcosim.compiler.several import ShapeSet, largest, pack, sets_of
    from rkcosim.rknn_api.lite.rknn_lite import FAILED, SUCCESS, RKNNLite
    from rkcosim.rknn_api.toolkit.hybrid import ALGORITHMS, METHODS, hybrid_text, read_hybrid
else:
    from rknn.hybrid import ALGORITHMS, METHODS, hybrid_text, read_hybrid
    from rknn.several import ShapeSet, largest, pack, sets_of
    from rknnlite.api.rknn_lite import FAILED, SUCCESS, RKNNLite

PYTHON_VARIABLE = "RKCOSIM_PYTHON"
"""Environment variable with the interpreter that runs `rkcosim`; `rkcosim rknn` sets it."""

OF_PROGRAM = ("LD_AUDIT", "RKCOSIM_SOCKET", "RKCOSIM_MACHINE")
"""Environment variables by which the program sees a board, which the commands do not."""

LONGEST = 6 * 3600
"""Seconds after which a command is given up."""

PLATFORM = "rk3588"

MOST_BATCH = 1024
"""Largest batch of a .rknn file."""

PROPOSED = 3
"""Layers that `hybrid_quantization_step1` proposes for floating point."""

UNNAMED = "and nobody named their sizes"
"""Words of the compiler's message about free dimensions, before its advice for users of commands."""

REFUSING = ["--open-dimensions", "refuse"]
"""Words of commands: sizes that nobody named are not chosen."""

TYPES = ("asymmetric_quantized-8", "w8a8")

WITHOUT_EFFECT: dict[str, dict[str, Any]] = {
    "config": {
        "compress_weight": False,
        "auto_hybrid_euc_thresh": None,
        "disable_rules": [],
        "enable_flash_attention": False,
        "float_dtype": "float16",
        "inputs_yuv_fmt": None,
        "model_pruning": False,
        "op_target": None,
        "optimization_level": 3,
        "quantize_weight": False,
        "quantized_hybrid_level": 0,
        "remove_reshape": False,
        "single_core_mode": False,
        "sparse_infer": False,
    },
    "init_runtime": {
        "async_mode": False,
        "device_id": None,
        "eval_mem": False,
        "fallback_prior_device": "gpu",
    },
    "load_onnx": {"input_initial_val": None},
    "load_tflite": {"input_is_nchw": False},
    "inference": {"data_type": None},
    "eval_perf": {"fix_freq": True},
    "accuracy_analysis": {"device_id": None},
}
"""Options of each call that are accepted without effect, with their default values."""


class Conversion(RKNNLite):
    """Conversion of a model.

    Calls return 0, or -1 after an error, unless they say otherwise; messages go to standard error.

    Parameters
    ----------
    verbose : print messages about each call on standard error, and those of the commands.
    verbose_file : also write the messages to this file, if `verbose` is set.
    """

    NAME = "RKNN"

    def __init__(self, verbose: bool = False, verbose_file: str | None = None) -> None:
        super().__init__(verbose, verbose_file)
        self._folder = Path(tempfile.mkdtemp(prefix="rkcosim-toolkit-"))
        self._named: set[str] = set()
        self._settings: dict[str, Any] = {}
        self._source: Path | None = None
        self._model = self._folder / "model.onnx"  # the quantised one
        self._reading: list[str] = []
        self._analysed: list[str] = []
        self._normalising: list[str] = []
        self._own = ""  # why the built model is in a container of rkcosim; "" if it is a .rknn file
        self._built = self._ran = False
        self.config()

    def config(
        self,
        mean_values: Any = None,
        std_values: Any = None,
        quant_img_RGB2BGR: bool = False,
        quantized_dtype: str = TYPES[0],
        quantized_algorithm: str = "normal",
        quantized_method: str = "channel",
        target_platform: Any = None,
        auto_hybrid_cos_thresh: float = 0.98,
        remove_weight: bool | None = None,
        dynamic_input: Any = None,
        custom_string: str | None = None,
        **others: Any,
    ) -> int:
        """Set the options of the conversion.

        Parameters
        ----------
        mean_values, std_values : a list with a number for each channel, for each input; the built model
            computes (pixel - mean) / std itself.
        quant_img_RGB2BGR : the pictures of the dataset become blue, green, red.
        quantized_dtype : "asymmetric_quantized-8" or "w8a8".
        quantized_algorithm : "normal" (extreme values), "kl_divergence" or "mmse" (least squared error).
        quantized_method : "channel" or "layer", scales of the weights.
        target_platform : None or "rk3588".
        auto_hybrid_cos_thresh : cosine of a layer alone, below which `auto_hybrid` of `build` leaves it in
            floating point.
        remove_weight : True if `export_rknn` is to write no weights; the file uses those of a full model
            (RKNN_FLAG_SHARE_WEIGHT_MEM), which is built with False. With None it can be a `.rknn` file, whose
            weights other models cannot use.
        dynamic_input : sets of shapes, one shape for each input of an ONNX model, for example
            [[[1, 3, 64, 64]], [[1, 3, 96, 96]]]; the model is built for each set, in the place of the shapes
            in the file. A dataset has the shapes of the largest set, whose scales the others share.
        custom_string : text of at most 1023 bytes, which RKNN_QUERY_CUSTOM_STRING gives to programs.
        others : options of the toolkit that have no effect here.
        """
        if not self._without_effect("config", others):
            return FAILED
        platforms = [target_platform] if isinstance(target_platform, str) else list(target_platform or ())
        wrong = next((name for name in platforms if str(name).lower() != PLATFORM), None)
        if wrong is not None:
            return self._failed(f"config: target_platform '{wrong}': only {PLATFORM} is simulated")
        for name, value, known in (
            ("quantized_dtype", quantized_dtype, TYPES),
            ("quantized_algorithm", quantized_algorithm, ALGORITHMS),
            ("quantized_method", quantized_method, METHODS),
        ):
            if value not in known:
                return self._failed(f"config: {name} '{value}' is not available, only {', '.join(known)}")
        try:
            means, stds = _groups(mean_values), _groups(std_values)
        except (TypeError, ValueError):
            return self._failed("config: mean_values and std_values must be lists of lists of numbers")
        try:
            sets = [] if dynamic_input is None else sets_of(dynamic_input)
        except ValueError as error:
            return self._failed(f"config: {error}")
        if sets and remove_weight:
            return self._failed("config: a model of several shapes (dynamic_input) keeps its weights")
        if means and stds and [len(group) for group in means] != [len(group) for group in stds]:
            return self._failed("config: mean_values and std_values have different numbers of values")
        self._settings = {
            "means": means or [[0.0] * len(group) for group in stds],
            "stds": stds or [[1.0] * len(group) for group in means],
            "bgr": bool(quant_img_RGB2BGR),
            "method": ALGORITHMS[quantized_algorithm],
            "weights": METHODS[quantized_method],
            "below": auto_hybrid_cos_thresh,
            "removes": None if remove_weight is None else bool(remove_weight),
            "sets": sets,
            "custom": [] if custom_string is None else [f"--custom-string={custom_string}"],
        }
        if sets:
            self._say(f"config: the largest shapes are dynamic_input[{largest(sets)}]")
        return SUCCESS

    def load_onnx(
        self,
        model: str,
        inputs: list[str] | None = None,
        input_size_list: list[list[int]] | None = None,
        outputs: list[str] | None = None,
        **others: Any,
    ) -> int:
        """Take an ONNX model.

        Parameters
        ----------
        model : path of the file.
        inputs, input_size_list : names of inputs and their shapes, for free dimensions. Without them, and
            without `dynamic_input` of `config`, `build` refuses a model that has such dimensions.
        outputs : names of the values that become the outputs.
        others : `input_initial_val`, which has no effect.
        """
        if not self._without_effect("load_onnx", others):
            return FAILED
        if input_size_list and self._settings["sets"]:
            return self._failed("load_onnx: dynamic_input of config has all shapes: omit input_size_list")
        if input_size_list and (not inputs or len(inputs) != len(input_size_list)):
            return self._failed("load_onnx: input_size_list needs a name in inputs for each shape")
        reading = []
        for name, shape in zip(inputs or (), input_size_list or (), strict=False):
            reading += ["--shape", f"{name}={','.join(map(str, shape))}"]
        if outputs:
            reading += ["--outputs", ",".join(outputs)]
        return self._load("load_onnx", model, reading)

    def load_tflite(self, model: str, **others: Any) -> int:
        """Take a TFLite model from a path; `input_is_nchw` has no effect."""
        if not self._without_effect("load_tflite", others):
            return FAILED
        return self._load("load_tflite", model, [])

    def _load(self, call: str, model: str, reading: list[str]) -> int:
        path = Path(model)
        if not path.is_file():
            return self._failed(f"{call}: there is no file {model}")
        self._close()
        self.rknn_data, self._built, self._own = None, False, ""
        self._source, self._reading = path.absolute(), reading
        self._say(f"{call}: {model}, {path.stat().st_size} bytes")
        return SUCCESS

    def _absent(self, call: str, instead: str) -> int:
        return self._failed(f"{call}: not available; {instead}")

    def load_caffe(self, *_: Any, **__: Any) -> int:
        """Return -1: not available."""
        return self._absent("load_caffe", "convert the model to ONNX first")

    def load_darknet(self, *_: Any, **__: Any) -> int:
        """Return -1: not available."""
        return self._absent("load_darknet", "convert the model to ONNX first")

    def load_tensorflow(self, *_: Any, **__: Any) -> int:
        """Return -1: not available."""
        return self._absent("load_tensorflow", "convert the model to ONNX or TFLite first")

    def load_pytorch(self, *_: Any, **__: Any) -> int:
        """Return -1: not available."""
        return self._absent("load_pytorch", "export the model to ONNX first")

    def hybrid_quantization_step1(
        self,
        dataset: str | None = None,
        rknn_batch_size: int | None = None,
        proposal: bool = False,
        proposal_dataset_size: int = 1,
        custom_hybrid: Any = None,
    ) -> int:
        """Write the files for `hybrid_quantization_step2` into the working directory.

        Their names are those of the model with the endings `.model` (the float model, in ONNX), `.data`
        (settings and layers, in JSON) and `.quantization.cfg`, a text in which users name layers that stay
        in floating point.

        Parameters
        ----------
        dataset : a text file as for `build`; step 2 reads it again.
        rknn_batch_size : None or 1.
        proposal : whether the text names the layers that the output gains most from in floating point.
        proposal_dataset_size : number of samples of the comparison that finds these layers.
        custom_hybrid : pairs of tensors; the text names the layers between the two tensors of each.
        """
        call = "hybrid_quantization_step1"
        if self._settings["sets"]:
            return self._failed(f"{call}: not available with dynamic_input")
        if self._source is None or self._source.suffix.lower() == ".tflite":
            return self._failed(f"{call}: call load_onnx first")
        if dataset is None:
            return self._failed(f"{call}: a dataset is needed")
        if rknn_batch_size not in (None, 1):
            return self._failed(f"{call}: rknn_batch_size {rknn_batch_size} is not available, only 1")
        try:
            bounds = [f"{first},{last}" for first, last in custom_hybrid or ()]
        except (TypeError, ValueError):
            return self._failed(f"{call}: custom_hybrid must be a list of pairs of names of tensors")
        stem, report = self._source.stem, self._folder / "layers.json"
        model = self._folder / "float.model"
        floats = ["quantize", str(self._source), "-o", str(model), "--float-only"]
        if self._command(call, [*floats, *self._reading]) is None:
            return FAILED
        quantising = ["--method", self._settings["method"], self._settings["weights"]]
        quantising += [*_outside(self._pixels()), *(["--bgr"] if self._settings["bgr"] else [])]
        words = ["quantize", str(model), "-o", str(self._folder / "trial.onnx"), "--data", str(dataset)]
        words += [*quantising, "--limit", str(max(1, int(proposal_dataset_size))), "--json", str(report)]
        words += ["--gains"] if proposal else []
        for pair in bounds:
            words += ["--keep-between", pair]
        if self._command(call, words) is None:
            return FAILED
        found = json.loads(report.read_text())
        layers = {layer["tensor"]: layer["name"] for layer in found["layers"]}
        tensors = {name: tensor for tensor, name in layers.items()}
        named = [*found["floats"], *(found["float_first"][:PROPOSED] if proposal else ())]
        first = [tensors[name] for name in dict.fromkeys(named) if name in tensors]
        data = {"dataset": os.path.abspath(dataset), "quantising": quantising, "layers": layers}
        try:
            shutil.copyfile(model, f"{stem}.model")
            Path(f"{stem}.data").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            text = hybrid_text(first, list(layers))
            Path(f"{stem}.quantization.cfg").write_text(text, encoding="utf-8")
        except OSError as error:
            return self._failed(f"{call}: {error}")
        self._say(f"{call}: wrote {stem}.model, {stem}.data and {stem}.quantization.cfg")
        return SUCCESS

    def hybrid_quantization_step2(
        self, model_input: str, data_input: str, model_quantization_cfg: str
    ) -> int:
        """Quantise and compile a model, with some layers in floating point.

        Parameters
        ----------
        model_input, data_input, model_quantization_cfg : the files of `hybrid_quantization_step1`.
        """
        call = "hybrid_quantization_step2"
        try:
            dataset, quantising, kept = read_hybrid(data_input, model_quantization_cfg)
        except (OSError, ValueError) as error:
            return self._failed(f"{call}: {error}")
        if self._load(call, model_input, []) != SUCCESS or self._source is None:
            return FAILED
        model = self._model = self._folder / "model.onnx"
        words = ["quantize", str(self._source), "-o", str(model), f"--data={dataset}", *quantising]
        words += [f"--keep={name}" for name in kept]
        if self._command(call, words) is None:
            return FAILED
        normalising = [word for word in quantising if word.startswith(("--mean", "--std"))]
        if not self._vendor_form(call, model, normalising):
            normalising += ["--pixels"] * bool(normalising)
            if normalising and self._command(call, [*words, "--pixels"]) is None:
                return FAILED
            if not self._compiled(call, model, []):
                return FAILED
        self._built, self._normalising = True, normalising
        self._settings["bgr"] = "--bgr" in quantising
        return SUCCESS

    def _tflite(self) -> bool:
        """Return whether the model that was loaded is a TFLite file."""
        return self._source is not None and self._source.suffix.lower() == ".tflite"

    def _vendor_form(self, call: str, model: Path, options: Sequence[str]) -> bool:
        """Compile a model to a `.rknn` file in the vendor's form; return whether it has such a form.

        If it has none, `_own` says why, and `_compiled` makes a container of rkcosim.
        """
        target = self._folder / "model.rknn"
        self.rknn_data, self._own = None, ""
        if self._settings["removes"] is not None:
            self._own = "its weights are shared with other models (remove_weight)"
            return False
        code, _, said = self._ended(
            call, ["compile", str(model), "-o", str(target), "--plans", *REFUSING, *options]
        )
        if code:
            self._own = _reason(said, code)
            self._say(f"{call}: {self._own}")
            return False
        self.rknn_data = target.read_bytes()
        return True

    def _container(self, call: str, model: Path, reading: list[str]) -> bytes | None:
        """Compile a model and return its container; None after an error."""
        target = self._folder / "model.rkc"
        if (
            self._command(
                call,
                ["compile", str(model), "-o", str(target), *REFUSING, *reading, *self._settings["custom"]],
            )
            is None
        ):
            return None
        return target.read_bytes()

    def _compiled(self, call: str, model: Path, reading: list[str]) -> bool:
        """Compile a model to a container of rkcosim; return whether that worked."""
        self.rknn_data = self._container(call, model, reading)
        return self.rknn_data is not None

    def build(
        self,
        do_quantization: bool = True,
        dataset: str | None = None,
        rknn_batch_size: int | None = None,
        auto_hybrid: bool = False,
        auto_hybrid_quant: bool = False,
    ) -> int:
        """Quantise and compile the model that was loaded.

        The result is a `.rknn` file in the vendor's form, which has `mean_values` and `std_values` of the
        inputs and the batch. A model that this form cannot hold becomes a container of rkcosim, in which the
        network of an ONNX model normalises pixels itself.

        Parameters
        ----------
        do_quantization : whether to quantise a float model; otherwise it runs in fp16, and a model that is
            already quantised as it is.
        dataset : a text file with the files of one sample (pictures or .npy) on each line.
        rknn_batch_size : number of samples that a program gives at once.
        auto_hybrid : whether layers with a small cosine stay in floating point.
        auto_hybrid_quant : an older name of the same.
        """
        if self._source is None:
            return self._failed("build: call load_onnx or load_tflite first")
        if rknn_batch_size is not None and not 1 <= rknn_batch_size <= MOST_BATCH:
            return self._failed(f"build: rknn_batch_size {rknn_batch_size}; 1 to {MOST_BATCH} are available")
        if do_quantization and dataset is None:
            return self._failed("build: do_quantization needs a dataset")
        self._built, self.rknn_data = False, None
        self._analysed = list(self._reading)
        quantising: list[str] = []
        if do_quantization:
            quantising = ["--data", str(dataset), "--method", self._settings["method"]]
            quantising += [self._settings["weights"], *(["--bgr"] if self._settings["bgr"] else [])]
            if auto_hybrid or auto_hybrid_quant:
                quantising += ["--below", str(self._settings["below"])]
        batch = [] if rknn_batch_size in (None, 1) else ["--batch", str(rknn_batch_size)]
        if self._settings["sets"]:
            if batch:
                return self._failed("build: rknn_batch_size with dynamic_input is not available")
            pixels = _outside(self._pixels()) if self._tflite() else self._pixels()
            done = self._build_sets(self._settings["sets"], quantising, pixels)
            self._own, self._normalising = "it has several shapes (dynamic_input)", pixels
        else:
            done = self._build_one(quantising, batch)
        self._built = done and do_quantization
        return SUCCESS if done else FAILED

    def _build_one(self, quantising: list[str], batch: list[str]) -> bool:
        """Build the model of one shape; `quantising` is empty for one that stays as it is.

        The runtime normalises what programs give to a `.rknn` file. In a container of rkcosim an ONNX model
        does that itself, and a TFLite model takes normalised samples.
        """
        pixels = self._pixels()
        self._normalising = normalising = _outside(pixels)
        made = self._quantised(quantising, normalising)
        if made is None:
            return False
        if self._vendor_form("build", made[0], [*made[1], *normalising, *batch]):
            return True
        if batch:
            self._failed(f"build: rknn_batch_size: {self._own}")
            return False
        if pixels != normalising and not self._tflite():
            self._normalising = pixels
            made = self._quantised(quantising, pixels)
        return made is not None and self._compiled("build", *made)

    def _made(self, call: str, model: Path, words: Sequence[str]) -> bool:
        """Write a quantised or normalised model of the source; return whether that worked."""
        refusing = [] if self._tflite() else REFUSING
        return (
            self._command(call, ["quantize", str(self._source), "-o", str(model), *refusing, *words])
            is not None
        )

    def _build_sets(self, sets: list[ShapeSet], quantising: list[str], pixels: list[str]) -> bool:
        """Build the model for each set of shapes; the largest set decides the scales of a quantised one."""
        if self._tflite():
            self._failed("build: dynamic_input needs an ONNX model")
            return False
        first, report = largest(sets), self._folder / "quantized.json"
        containers: dict[int, bytes] = {}
        kept: list[str] = []
        for number in sorted(range(len(sets)), key=lambda number: number != first):
            reading = [*self._reading, "--input-shapes", json.dumps(sets[number])]
            model, call = self._source, f"build: dynamic_input[{number}]"
            if quantising or pixels:
                model = self._folder / f"model-{number}.onnx"
                words = [*reading, *pixels]
                if quantising and number == first:
                    words += [*quantising, "--json", str(report)]
                elif quantising:
                    words += ["--like", str(self._model), self._settings["weights"], *kept]
                else:
                    words.append("--float-only")
                if not self._made(call, model, words):
                    return False
                reading = []
            if number == first:
                assert model is not None
                self._model = model
                self._analysed = [*self._reading, "--input-shapes", json.dumps(sets[number])]
            if quantising and number == first:
                kept = [
                    word for name in json.loads(report.read_text())["floats"] for word in ("--keep", name)
                ]
            assert model is not None
            made = self._container(call, model, reading)
            if made is None:
                return False
            containers[number] = made
        self.rknn_data = pack(sets, [containers[number] for number in range(len(sets))])
        return True

    def _quantised(self, quantising: list[str], normalising: list[str]) -> tuple[Path, list[str]] | None:
        """Return the model to compile, and the options for its shapes; None after an error.

        Without `quantising` a model stays as it is, unless it is to normalise pixels itself.
        """
        assert self._source is not None
        if not quantising and "--pixels" not in normalising:
            return self._source, self._reading
        model = self._model = self._folder / f"model{self._source.suffix.lower()}"
        words = [*self._reading, *normalising, *(quantising or ["--float-only"])]
        return (model, []) if self._made("build", model, words) else None

    def _pixels(self) -> list[str]:
        """Return the options for the normalisation, none if it changes nothing."""
        means, stds = self._settings["means"], self._settings["stds"]
        if not any(any(group) for group in means) and all(value == 1 for group in stds for value in group):
            return []
        mean, std = ("/".join(",".join(map(str, group)) for group in groups) for groups in (means, stds))
        return [f"--mean={mean}", f"--std={std}", "--pixels"]

    def export_rknn(self, export_path: str, **others: Any) -> int:
        """Write the built model to a file: a `.rknn` file in the vendor's form, or a container of rkcosim.

        The file runs on the simulated NPU only. Other arguments of the toolkit have no effect.
        """
        for name in others:
            self._once(f"export_rknn: the option '{name}' has no effect")
        if self.rknn_data is None:
            return self._failed("export_rknn: call build first")
        data = self.rknn_data
        if self._settings["removes"]:
            full, target = self._folder / "full.rkc", self._folder / "without.rkc"
            full.write_bytes(data)
            if (
                self._command("export_rknn", ["compile", str(full), "-o", str(target), "--no-weights"])
                is None
            ):
                return FAILED
            data = target.read_bytes()
        try:
            Path(export_path).write_bytes(data)
        except (OSError, TypeError) as error:
            return self._failed(f"export_rknn: {error}")
        if self._own:
            self._once(f"export_rknn: the file is a container of rkcosim, no .rknn file: {self._own}")
        return SUCCESS

    def _without_effect(self, call: str, given: dict[str, Any]) -> bool:
        """Name options without effect, once; return False for unknown ones."""
        known = WITHOUT_EFFECT[call]
        for name, value in given.items():
            if name not in known:
                self._failed(f"{call}: there is no option '{name}'")
                return False
            if value != known[name]:
                self._once(f"{call}: the option '{name}' has no effect")
        return True

    def _once(self, text: str) -> None:
        if text not in self._named:
            self._named.add(text)
            self.rknn_log.w(text)

    def _command(self, call: str, words: Sequence[str]) -> str | None:
        """Run a command of rkcosim; return what it printed, or None after an error."""
        code, printed, said = self._ended(call, words)
        if code:
            self._failed(f"{call}: {_reason(said, code)}")
            return None
        return printed

    def _ended(self, call: str, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a command of rkcosim; return its exit code, what it printed, and its messages."""
        python = os.environ.get(PYTHON_VARIABLE)
        if not python:
            return FAILED, "", "start the script with `rkcosim rknn -- python SCRIPT`"
        self._folder.mkdir(parents=True, exist_ok=True)
        apart = {name: value for name, value in os.environ.items() if name not in OF_PROGRAM}
        self._say(f"{call}: rkcosim {' '.join(words)}")
        try:
            done = subprocess.run(
                [python, "-P", "-m", "rkcosim", *words, *([] if self.verbose else ["--quiet"])],
                env=apart,
                capture_output=True,
                text=True,
                timeout=LONGEST,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return FAILED, "", str(error)
        if self.verbose:
            sys.stderr.write(done.stderr)
        return done.returncode, done.stdout, done.stderr


def _reason(said: str, code: int) -> str:
    """Return the last line of a command's messages, with the words of the toolkit."""
    line = (said.strip() or f"rkcosim ended with {code}").splitlines()[-1].removeprefix("rkcosim: ")
    if UNNAMED in line:
        line = line.partition(UNNAMED)[0] + UNNAMED
        line += ": use inputs and input_size_list of load_onnx, or dynamic_input of config"
    return line


def _outside(pixels: list[str]) -> list[str]:
    """Return the options of a normalisation that is not a part of the model."""
    return [word for word in pixels if word != "--pixels"]


def _groups(values: Any) -> list[list[float]]:
    """Return numbers for each input: [[1, 2, 3]], or [1, 2, 3] for one input; [] for None."""
    if values is None:
        return []
    if values and not isinstance(values[0], (list, tuple)):
        values = [values]
    return [[float(value) for value in group] for group in values]
