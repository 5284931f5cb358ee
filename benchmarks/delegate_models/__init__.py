"""Public model files in scripts of LiteRT and onnxruntime with the plug-in, beside `rkcosim run`.

    python -m benchmarks.delegate_models DIR... [--only TEXT] [--again] [--rtl CYCLES] [--page FILE]

The files, and DIR, are those of `python -m benchmarks.public_models`.  Each file runs in `script.py`, a
script of its runtime with one line for the plug-in, and in `rkcosim run` on the same inputs.
"""
