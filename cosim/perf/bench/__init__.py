"""How fast the engines are: the same work in each of them, in one run on one machine.

`run_bench` measures, `document` and `markdown` say what was found; `rkcosim bench` is their command.
"""

from cosim.perf.bench.engines import DEFAULT_ENGINES, ENGINES
from cosim.perf.bench.jobs import JOBS
from cosim.perf.bench.rows import Bench, EngineFacts, Row
from cosim.perf.bench.run import run_bench

__all__ = ["DEFAULT_ENGINES", "ENGINES", "JOBS", "Bench", "EngineFacts", "Row", "run_bench"]
