"""`rkcosim bench --layers`: cycles of twelve layers on the RTL beside the formula.

python -m benchmarks.array [--check] [--json FILE] [--page FILE]
"""

from __future__ import annotations

import sys

from cosim.cli.main import app

if __name__ == "__main__":
    app(["bench", "--layers", *sys.argv[1:]])
