"""Class RKNN of RKNN-Toolkit2 (vendor's user guide), implemented with `rkcosim` and librknnrt.so.

Scripts that are started by `rkcosim rknn -- python SCRIPT` import this module by `from rknn.api import RKNN`.
It depends only on numpy: models are quantised and compiled by the command `rkcosim` in another process, and
they run like those of `rknnlite`, whose class this one extends.
"""

from __future__ import annotations

import ctypes as ct
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rkcosim.rknn_api.lite.rknn_lite import FAILED, SUCCESS
    from rkcosim.rknn_api.lite.rknn_runtime import NUMBERS, struct
    from rkcosim.rknn_api.toolkit.conversion import PLATFORM, Conversion
else:
    from rknn.conversion import PLATFORM, Conversion
    from rknnlite.api.rknn_lite import FAILED, SUCCESS
    from rknnlite.api.rknn_runtime import NUMBERS, struct

_PerfRun, _PerfDetail, _MemSize = (struct(f"rknn_{name}") for name in ("perf_run", "perf_detail", "mem_size"))


class RKNN(Conversion):
    """Conversion of a model and inference with it.

    Calls return 0, or -1 after an error, unless they say otherwise; messages go to standard error.
    """

    def init_runtime(  # type: ignore[override]  # the toolkit has other arguments
        self,
        target: str | None = None,
        device_id: str | None = None,
        perf_debug: bool = False,
        core_mask: int = Conversion.NPU_CORE_AUTO,
        **others: Any,
    ) -> int:
        """Open the model on the simulated NPU.

        Parameters
        ----------
        target : None or "rk3588"; both are the simulated NPU.
        device_id : no effect, because there is one NPU.
        perf_debug : whether `eval_perf` lists the layers.
        core_mask : cores that run the model.
        others : options of the toolkit that have no effect here.
        """
        if not self._without_effect("init_runtime", {"device_id": device_id, **others}):
            return FAILED
        if target is not None and str(target).lower() != PLATFORM:
            return self._failed(
                f"init_runtime: target '{target}' is not available: there is a simulated {PLATFORM} and no "
                "connection to boards"
            )
        if self.rknn_data is None:
            return self._failed("init_runtime: call build or load_rknn first")
        self.flags = NUMBERS["RKNN_FLAG_COLLECT_PERF_MASK"] if perf_debug else 0
        self._ran = False
        return super().init_runtime(core_mask=core_mask)

    def inference(
        self,
        inputs: list[Any] | np.ndarray,
        data_type: str | None = None,
        data_format: list[str] | str | None = None,
        inputs_pass_through: list[int] | None = None,
        get_frame_id: bool = False,
    ) -> list[Any] | None:
        """Run the model once; see `RKNNLite.inference`.

        `mean_values` and `std_values` of a TFLite model in a container of rkcosim are applied here, because
        the model takes no pixels; in a `.rknn` file they belong to the inputs.
        """
        self._without_effect("inference", {"data_type": data_type})
        given = inputs = [inputs] if isinstance(inputs, np.ndarray) else inputs
        apart = self._own and self._tflite() and self._pixels()
        if apart and isinstance(inputs, (list, tuple)):
            self._once("the exported file of a TFLite model has no mean_values and std_values")
            if data_format not in (None, "nhwc"):
                self._failed("inference: mean_values of a TFLite model need the data_format nhwc")
                return None
            pairs = zip(self._settings["means"], self._settings["stds"], strict=True)
            try:
                given = [
                    (np.asarray(array, np.float32) - np.float32(mean)) / np.float32(std)
                    for array, (mean, std) in zip(inputs, pairs, strict=True)
                ]
            except ValueError as error:
                self._failed(f"inference: mean_values do not fit the inputs: {error}")
                return None
        found = super().inference(given, None, data_format, inputs_pass_through, get_frame_id)
        self._ran = self._ran or found is not None
        return found

    def eval_perf(self, is_print: bool = True, **others: Any) -> str | None:
        """Return the time of an inference on the simulated NPU as text, and print it.

        With `perf_debug` of `init_runtime` it has a row for each layer. If the model has not run yet, it runs
        on zeros. Returns None before `init_runtime`.
        """
        if not self._without_effect("eval_perf", others) or not self._ready("eval_perf"):
            return None
        if not self._ran and self.rknn_runtime is not None:
            shapes = [self.rknn_runtime.get_tensor_attr(n) for n in range(self.rknn_runtime.n_inputs)]
            zeros = [np.zeros(tuple(attr.dims[: attr.n_dims]), np.float32) for attr in shapes]
            if self.inference(zeros) is None:
                return None
        run, detail = _PerfRun(), _PerfDetail()
        if self._query("RKNN_QUERY_PERF_RUN", run):
            return None
        lines = []
        if self.flags:
            if self._query("RKNN_QUERY_PERF_DETAIL", detail):
                return None
            lines.append(ct.string_at(detail.perf_data, detail.data_len).decode().rstrip("\0\n"))
        lines.append(f"Total Time(us): {run.run_duration}")
        lines.append(f"FPS: {1e6 / max(run.run_duration, 1):.2f}")
        text = "\n".join(lines)
        if is_print:
            print(text)
        return text

    def eval_memory(self, is_print: bool = True) -> dict[str, int] | None:
        """Return the bytes of weights, of other tensors, and their sum; None before `init_runtime`."""
        size = _MemSize()
        if not self._ready("eval_memory") or self._query("RKNN_QUERY_MEM_SIZE", size):
            return None
        found = {
            "total_weight_allocation": int(size.total_weight_size),
            "total_internal_allocation": int(size.total_internal_size),
        }
        found["total_model_allocation"] = sum(found.values())
        if is_print:
            for name, value in found.items():
                print(f"{name}: {value}")
        return found

    def accuracy_analysis(
        self,
        inputs: list[str],
        output_dir: str | None = "./snapshot",
        target: str | None = None,
        **others: Any,
    ) -> int:
        """Compare the quantised model with the float one, layer by layer.

        Parameters
        ----------
        inputs : path of a picture or .npy for each input.
        output_dir : folder that gets `error_analysis.txt`, `.json` and `.html`; None only prints the report.
        target : None or "rk3588"; both compare with the NPU's arithmetic.
        others : `device_id`, which has no effect.
        """
        if not self._without_effect("accuracy_analysis", others):
            return FAILED
        if target is not None and str(target).lower() != PLATFORM:
            return self._failed(f"accuracy_analysis: target '{target}' is not available")
        if not self._built or self._source is None:
            return self._failed("accuracy_analysis: call build with do_quantization first")
        files = [os.path.abspath(name) for name in ([inputs] if isinstance(inputs, str) else inputs)]
        if wrong := [name for name in files if len(name.split()) != 1]:
            return self._failed(f"accuracy_analysis: '{wrong[0]}' has a blank in its path")
        rows = self._folder / "inputs.txt"
        rows.write_text(" ".join(files) + "\n")
        place = Path(output_dir) if output_dir is not None else self._folder / "snapshot"
        words = ["accuracy", str(self._model), str(self._source), "--data", str(rows)]
        words += [*self._analysed, *self._normalising, *(["--bgr"] if self._settings["bgr"] else [])]
        words += ["--npu", "--all", "--json", str(place / "error_analysis.json")]
        words += ["--html", str(place / "error_analysis.html")]
        text = self._command("accuracy_analysis", words)
        if text is None:
            return FAILED
        (place / "error_analysis.txt").write_text(text)
        print(text, end="")
        return SUCCESS

    def release(self) -> None:
        """Free the model and remove temporary files; may be called repeatedly."""
        super().release()
        self._source = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ready(self, call: str) -> bool:
        if self.rknn_runtime is None:
            self._failed(f"{call}: call init_runtime first")
        return self.rknn_runtime is not None
