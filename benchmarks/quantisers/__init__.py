"""int8 models of this project beside those of onnxruntime's static quantisation, on the same inputs."""
