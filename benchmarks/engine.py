"""`rkcosim bench` under its old name.

python -m benchmarks.engine [--engines NAMES] [--workloads NAMES] [--seconds S] [--json FILE]
"""

from __future__ import annotations

import sys

from cosim.cli.main import app

if __name__ == "__main__":
    app(["bench", *sys.argv[1:]])
