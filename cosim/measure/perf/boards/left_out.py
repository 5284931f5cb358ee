"""Published figures of [HW 12.3] and [HW 12.4] that are no rows of the table, with reasons.

They do not state what was run, or are no time of one run on the NPU.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LeftOut:
    """Rows of `section` whose line contains `quote`."""

    section: str
    quote: str
    what: str
    why: str

    def as_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)


_THROUGHPUT = "throughput of several processes at once, including work of their hosts"
_OTHER_STACK = "another software stack: its compiler and its driver's time per task are most of the figure"
_POOL = "throughput of a pool of runtimes on three cores"
_SHAPES = "no layer table is published, so its shapes would be guesses"
_HOST = "parts of it run on the host and are included in the figure"
_REWORKED = "the model zoo changed stem and pooling of the published network, and has no layer table"

LEFT_OUT = (
    LeftOut("12.3", "~11 GFLOPS", "1 x K x N, fp16", "K and N are not stated"),
    LeftOut("12.3", "461 GOP/s", "512 x 3840 x 4096, fp16, three cores", _THROUGHPUT),
    LeftOut("12.3", "386 GOP/s", "same, int8", _THROUGHPUT),
    LeftOut("12.3", "413 GOP/s", "same, int4", _THROUGHPUT),
    LeftOut("12.3", "56.5 / 75.3 GFLOPS", "same, fp16, cold", "with packing on the host and a cold start"),
    LeftOut("12.3", "37 GOP/s", "tf32", "shape and cores are not stated"),
    LeftOut("12.3", "40-58 % utilisation", "int8 prefill of language models", "no shapes, no times"),
    LeftOut(
        "12.3", "1.72 times as fast", "Q x K, fp16, by the type of the results", "the shape is not stated"
    ),
    LeftOut("12.3", "914 / 514 ms", "products of 28 layers of a language model", "the shapes are not stated"),
    LeftOut("12.3", "created in 31.7 ms", "an int4 context", "the shape is not stated"),
    LeftOut(
        "12.4", "28,248 fps at most", "18 models of one operator, an earlier run", "the shapes are not stated"
    ),
    LeftOut("12.4", "10-11 ms per invoke", "MobileNetV1, Mesa", _OTHER_STACK),
    LeftOut("12.4", "11.18, 9.77", "MobileNetV1, Mesa and librocketnpu", _OTHER_STACK),
    LeftOut("12.4", "6.01 avg / 5.49 min ms", "MobileNetV1, librocketnpu, 28 submits", _OTHER_STACK),
    LeftOut("12.4", "| 2.6 ms |", "MobileNetV1, RKNN", "the upper end of the range of the row MobileNetV1"),
    LeftOut("12.4", "2.18 avg / 1.98 min ms", "MobileNetV1, RKNN", "unclear whether on one core or three"),
    LeftOut("12.4", "7.73 / 3.49", "MobileNetV1, pools of runtimes", _POOL),
    LeftOut("12.4", "7.9 -> 1.65 ms per image", "EfficientNet-Lite0", _POOL),
    LeftOut("12.4", "30 fps", "SSD MobileDet, Mesa", _OTHER_STACK),
    LeftOut("12.4", "22.9 / 19.8 ms", "SSD MobileNetV1, Mesa", _OTHER_STACK),
    LeftOut("12.4", "27.7 ms p50", "YOLOv5s", "with pre- and postprocessing on the host"),
    LeftOut("12.4", "66.1 / 82.5 / 48.4 / 20.9 fps", "yolov5s_relu, n, s, m", _REWORKED),
    LeftOut("12.4", "73.5 / 38.0 / 16.2 fps", "yolov8n, s, m", _REWORKED),
    LeftOut(
        "12.4", "60.0 / 33.0 / 12.7 fps", "yolo11n, s, m", "attention between activations is not compiled"
    ),
    LeftOut("12.4", "10.0 fps", "mobilesam encoder", _SHAPES),
    LeftOut("12.4", "586.4 fps", "lprnet", _SHAPES),
    LeftOut("12.4", "73.9 fps", "ppocr rec v4", _SHAPES),
    LeftOut("12.4", "RTF 0.133", "wav2vec2", _HOST),
    LeftOut("12.4", "RTF 0.215", "whisper base", _HOST),
    LeftOut("12.4", "867.6 / 343.8 fps", "lite-transformer", _SHAPES),
    LeftOut("12.4", "147 KiB input", "memory traffic of MobileNetV1", "bytes, not times"),
    LeftOut("12.4", "873 ms vs 4283 ms", "ViT-B/16", _HOST),
    LeftOut("12.4", "30.3 s vs 49.3 s", "Qwen3-0.6B prefill", _HOST),
    LeftOut("12.4", "17.0 s vs 36.4 s", "Whisper large-v3 encoder", _HOST),
    LeftOut("12.4", "~649 ms", "Qwen3-VL prefill", _HOST),
)
