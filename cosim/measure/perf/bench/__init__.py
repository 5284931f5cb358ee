"""Speed of the engines: the same work in each of them, in one run on one machine.

`run_bench` measures; `document` and `markdown` present the results; `rkcosim bench` is the command.
"""

from rkcosim.measure.perf.bench.engines import DEFAULT_ENGINES, ENGINES
from rkcosim.measure.perf.bench.jobs import JOBS
from rkcosim.measure.perf.bench.rows import Bench, BenchRow, EngineFacts
from rkcosim.measure.perf.bench.run import run_bench

__all__ = ["DEFAULT_ENGINES", "ENGINES", "JOBS", "Bench", "BenchRow", "EngineFacts", "run_bench"]
