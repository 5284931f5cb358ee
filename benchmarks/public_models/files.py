"""The public model files, by family, with the repository or package that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Public:
    """A public model file.

    Members
    -------
    family
        Heading of its table.
    source
        Repository and commit, or package and version.
    path
        Path within the repository or package.
    invalid
        Whether the file is deliberately invalid, so that a refusal is right.
    outputs
        Values before custom operators that no runtime here has: the file is refused as shipped, and measured
        with these outputs (`--outputs`).
    """

    family: str
    source: str
    path: str
    invalid: bool = False
    outputs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """File name, with the folder for names that are no names (model.onnx)."""
        path = Path(self.path)
        return f"{path.parent.name}/{path.name}" if path.stem == "model" else path.name


CORAL = "google-coral/test_data, commit 104342d"
TINY = "mlcommons/tiny, commit 1afd2c9"
ORANGE = "widgetii/orangepi5plus-npu, commit 8824479"
ROCKET = "gregordinary/rocket-userspace, commit e067786"
ALLBILLY = "allbilly/rk3588, commit 40fae7b"
MEDIAPIPE = "mediapipe 0.10.21"
RAPIDOCR = "rapidocr-onnxruntime 1.4.4"
NUDENET = "nudenet 3.4.2"
SILERO = "silero-vad 6.2.3"
MAGIKA = "magika 1.0.3"
WAKEWORD = "pymicro-wakeword 2.5.0"

_BYTES = "int8 and uint8: classifiers, keyword spotting, anomalies, wake words"
_SMALL = "Small test models"
_MAPS = "int8 and uint8: segmentation, poses, detection"
_FLOATS = "float32 and dynamic-range TFLite"
_MEDIAPIPE = "float32 and float16 TFLite: faces, hands, poses, selfies"
_ONNX = "ONNX of Python packages"
_STREAMS = "Streams and recurrent networks"

_TOYCAR = "benchmark/training/anomaly_detection/trained_models/ToyCar/baseline_tf23/model"
_TRAINED = {
    "anomaly": "benchmark/training/anomaly_detection/trained_models",
    "images": "benchmark/training/image_classification/trained_models",
    "words": "benchmark/training/keyword_spotting/trained_models",
    "streaming": "benchmark/training/streaming_wakeword/trained_models",
    "visual": "benchmark/training/visual_wake_words/trained_models",
}


_POSE = ("float_heatmaps", "float_short_offsets", "float_mid_offsets")
_BODY = (*_POSE, "float_long_offsets", "float_segments", "float_part_heatmaps")


def _of(family: str, source: str, *paths: str, outputs: tuple[str, ...] = ()) -> list[Public]:
    return [Public(family, source, path, outputs=outputs) for path in paths]


FILES: list[Public] = [
    *_of(
        _BYTES,
        CORAL,
        "mobilenet_v1_0.25_128_quant.tflite",
        "mobilenet_v1_0.5_160_quant.tflite",
        "mobilenet_v1_0.75_192_quant.tflite",
        "mobilenet_v1_1.0_224_quant_embedding_extractor.tflite",
        "mobilenet_v2_1.0_224_quant.tflite",
        "mobilenet_v2_1.0_224_inat_bird_quant.tflite",
        "mobilenet_v2_1.0_224_inat_insect_quant.tflite",
        "tf2_mobilenet_v2_1.0_224_ptq.tflite",
        "tools/mobilenet_quant_v1_224_head_layers.tflite",
        "tools/split_concat.tflite",
    ),
    *_of(
        _BYTES,
        TINY,
        f"{_TOYCAR}/model_ToyCar_quant_fullint.tflite",
        f"{_TOYCAR}/model_ToyCar_quant_fullint_micro.tflite",
        f"{_TOYCAR}/model_ToyCar_quant_fullint_micro_intio.tflite",
        f"{_TRAINED['anomaly']}/ad01_int8.tflite",
        f"{_TRAINED['images']}/pretrainedResnet_quant.tflite",
        f"{_TRAINED['images']}/pretrainedResnet_large_int8.tflite",
        f"{_TRAINED['words']}/kws_ref_model.tflite",
        f"{_TRAINED['streaming']}/str_ww_ref_model.tflite",
        f"{_TRAINED['visual']}/vww_96_int8.tflite",
    ),
    *_of(
        _SMALL,
        ORANGE,
        "librocketnpu/tests/makers/fc_model_int8.tflite",
        "test_models/test_2conv.tflite",
        "test_models/test_concat.tflite",
        "test_models/test_logistic.tflite",
        "test_models/test_maxpool.tflite",
        "test_models/test_maxpool_only.tflite",
        "test_models/test_pad.tflite",
        "test_models/test_resize.tflite",
    ),
    *_of(_SMALL, ROCKET, "tests/data/teflon-dw-capture/dw_pt.tflite"),
    *_of(
        _SMALL,
        ALLBILLY,
        "experimental/rknn/models/b1_c32_h14_w14_oc128_wic32_k3x3_g1.onnx",
        "experimental/rknn/models/b1_c160_h14_w14_oc320_wic160_k3x3_g1.onnx",
    ),
    *_of(
        _MAPS,
        CORAL,
        "deeplabv3_mnv2_dm05_pascal_quant.tflite",
        "deeplabv3_mnv2_pascal_quant.tflite",
        "deeplab_mobilenet_edgetpu_slim_cityscapes_quant.tflite",
        "automl_video_ondevice/traffic_model.tflite",
        "movenet_single_pose_lightning_ptq.tflite",
    ),
    *_of(
        _MAPS,
        CORAL,
        "posenet/posenet_mobilenet_v1_075_353_481_16_quant_decoder.tflite",
        "posenet/posenet_mobilenet_v1_075_481_641_16_quant_decoder.tflite",
        "posenet/posenet_mobilenet_v1_075_721_1281_16_quant_decoder.tflite",
        outputs=_POSE,
    ),
    *_of(_MAPS, CORAL, "posenet/bodypix_mobilenet_v1_075_512_512_16_quant_decoder.tflite", outputs=_BODY),
    *_of(
        _FLOATS,
        TINY,
        f"{_TOYCAR}/model_ToyCar.tflite",
        f"{_TOYCAR}/model_ToyCar_quant.tflite",
        f"{_TRAINED['anomaly']}/ad01_fp32.tflite",
        f"{_TRAINED['images']}/pretrainedResnet.tflite",
        f"{_TRAINED['images']}/pretrainedResnet_large_float.tflite",
        f"{_TRAINED['words']}/kws_ref_model_float32.tflite",
        f"{_TRAINED['visual']}/vww_96_float.tflite",
    ),
    *_of(
        _MEDIAPIPE,
        MEDIAPIPE,
        "mediapipe/modules/face_detection/face_detection_short_range.tflite",
        "mediapipe/modules/face_detection/face_detection_full_range_sparse.tflite",
        "mediapipe/modules/face_landmark/face_landmark.tflite",
        "mediapipe/modules/hand_landmark/hand_landmark_lite.tflite",
        "mediapipe/modules/hand_landmark/hand_landmark_full.tflite",
        "mediapipe/modules/holistic_landmark/hand_recrop.tflite",
        "mediapipe/modules/iris_landmark/iris_landmark.tflite",
        "mediapipe/modules/palm_detection/palm_detection_lite.tflite",
        "mediapipe/modules/palm_detection/palm_detection_full.tflite",
        "mediapipe/modules/pose_detection/pose_detection.tflite",
        "mediapipe/modules/pose_landmark/pose_landmark_full.tflite",
        "mediapipe/modules/selfie_segmentation/selfie_segmentation.tflite",
        "mediapipe/modules/selfie_segmentation/selfie_segmentation_landscape.tflite",
    ),
    *_of(
        _MEDIAPIPE,
        MEDIAPIPE,
        "mediapipe/modules/face_landmark/face_landmark_with_attention.tflite",
        outputs=("output_mesh_identity", "conv_faceflag", "multiply_by_constant"),
    ),
    *_of(
        _ONNX,
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    ),
    *_of(_ONNX, NUDENET, "nudenet/320n.onnx"),
    *_of(_ONNX, MAGIKA, "magika/models/standard_v3_3/model.onnx"),
    *_of(
        _ONNX,
        SILERO,
        "silero_vad/data/silero_vad.onnx",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "silero_vad/data/silero_vad_half.onnx",
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        "silero_vad/data/silero_vad_openvino_16k.onnx",
    ),
    *_of(
        _STREAMS,
        WAKEWORD,
        "pymicro_wakeword/models/alexa.tflite",
        "pymicro_wakeword/models/hey_jarvis.tflite",
        "pymicro_wakeword/models/hey_mycroft.tflite",
        "pymicro_wakeword/models/okay_nabu.tflite",
    ),
    *_of(_STREAMS, CORAL, "keras_lstm_mnist_ptq.tflite"),
    Public("Deliberately invalid", CORAL, "invalid_models/model_invoking_error.tflite", invalid=True),
]


def found_in(folders: Sequence[Path], files: Sequence[Public]) -> dict[Public, Path]:
    """Return the places of those files that are in the folders.

    A file is recognised by its path within its repository or package, which ends the path on this machine.
    """
    places = [
        path
        for folder in folders
        for ending in ("tflite", "onnx")
        for path in sorted(folder.rglob(f"*.{ending}"))
    ]
    known = {}
    for item in files:
        wanted = Path(item.path).parts
        here = [path for path in places if path.parts[-len(wanted) :] == wanted]
        if here:
            known[item] = min(here, key=lambda path: (len(path.parts), path))
    return known
