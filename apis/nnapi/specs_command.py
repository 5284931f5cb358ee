"""`rkcosim nnapi-specs`: AOSP's specifications of the operations of NNAPI."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rkcosim.base import progress
from rkcosim.cli import results
from rkcosim.cli.app import argument, command, option
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import EngineOptions

if TYPE_CHECKING:
    from rkcosim.apis.nnapi.conformance import Tally, Verdict
    from rkcosim.running.machine import Machine

SHOWN = 20
"""Wrong examples that are printed; the JSON document has all."""


@dataclass(frozen=True, kw_only=True)
class SpecsOptions(EngineOptions):
    """Options of `rkcosim nnapi-specs`."""

    folder: Path = argument("A checkout of AOSP's packages/modules/NeuralNetworks.", metavar="FOLDER")
    seed: int | None = option("Seed of the draws; default: a new one, which is printed.")
    only: tuple[str, ...] = option(
        "Run only operations whose names contain this text; repeatable.", metavar="TEXT", default=()
    )
    limit: int | None = option("Most examples, drawn with the seed.", low=1)
    rtl_share: int = option(
        "Percentage of the examples whose jobs run on the RTL, drawn with the seed. The others run on the "
        "golden model.",
        low=0,
        high=100,
        default=100,
    )
    resume: Path | None = option("Keep verdicts in this file, and do not run those in it again.")


@command(
    "rkcosim nnapi-specs NeuralNetworks --seed 1 --limit 300",
    "rkcosim nnapi-specs NeuralNetworks --rtl-share 0 --only conv_2d --json nnapi.json",
)
def nnapi_specs_command(asked: SpecsOptions) -> None:
    """Run AOSP's examples of NNAPI's operations.

    The exit code is 1 if a result differs from AOSP's.
    """
    tally = run_specs(asked)
    asked.write(tally.as_json())
    raise SystemExit(OK if tally.ok else MISMATCH)


def run_specs(asked: SpecsOptions) -> Tally:
    """Run the examples that the options choose, and print the table.

    Raises
    ------
    ValueError
        If the folder is no checkout, or the file to resume from is of another run.
    """
    from rkcosim.apis.link.instruments import open_machine
    from rkcosim.apis.nnapi.conformance import Tally, all_examples, fraction, operation_of, run_example
    from rkcosim.engines.protocol import GOLDEN
    from rkcosim.running.settings import Settings

    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    share = asked.rtl_share
    print(f"seed {seed}", flush=True)
    tally = Tally()
    chosen = list(all_examples(asked.folder, tally))
    if asked.only:
        chosen = [e for e in chosen if any(text.lower() in operation_of(e).lower() for text in asked.only)]
    if asked.limit is not None:
        chosen = sorted(chosen, key=lambda e: fraction(seed, e.name))[: asked.limit]
    with ExitStack() as stack:
        known, log = _resumed(asked.resume, seed, share, stack)
        machines: dict[bool, Machine] = {}

        def machine(rtl: bool) -> Machine:
            if rtl not in machines:
                settings = Settings(engine=asked.engine if rtl else GOLDEN, exact=asked.exact and rtl)
                machines[rtl] = stack.enter_context(closing(open_machine(settings)))
            return machines[rtl]

        shown = stack.enter_context(progress.step("examples", len(chosen), "examples"))
        for example in chosen:
            verdict = known.get(example.name)
            if verdict is None:
                rtl = fraction(seed, example.name, "rtl") < share / 100
                verdict = run_example(example, machine(rtl), rtl)
                if log is not None:
                    log.write(json.dumps(asdict(verdict)) + "\n")
                    log.flush()
            tally.add(verdict)
            shown.advance()
    _show(tally, seed)
    return tally


def _resumed(
    path: Path | None, seed: int, share: int, stack: ExitStack
) -> tuple[dict[str, Verdict], TextIO | None]:
    """Return the verdicts in a file, and the file open for more; the first line says which run it is."""
    from rkcosim.apis.nnapi.conformance import Verdict

    if path is None:
        return {}, None
    head = {"seed": seed, "rtl_share": share}
    known: dict[str, Verdict] = {}
    lines: Iterator[str] = iter(path.read_text().splitlines() if path.exists() else ())
    first = next(lines, None)
    try:
        if first is not None and json.loads(first) != head:
            raise ValueError(f"{path} is of another run: {first}, not {json.dumps(head)}; give its --seed")
        for line in lines:
            verdict = Verdict(**json.loads(line))
            known[verdict.name] = verdict
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"{path} has no verdicts of this command: {error}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    file = stack.enter_context(path.open("a"))
    if first is None:
        file.write(json.dumps(head) + "\n")
    return known, file


def _show(tally: Any, seed: int) -> None:
    from rich.box import HEAVY_HEAD
    from rich.console import Console

    heads = ("operation", "NPU|", "host|", "refused|", "wrong|", "on the RTL|")
    table = results.table(
        f"NNAPI specifications, seed {seed}", heads, tally.rows(), title_justify="center", box=HEAVY_HEAD
    )
    Console(width=100).print(table)
    for verdict in tally.wrong[:SHOWN]:
        print(f"wrong: {verdict.name}: {verdict.text}")
    if len(tally.wrong) > SHOWN:
        print(f"wrong: {len(tally.wrong) - SHOWN} more (--json has all)")
    for text in tally.unreadable:
        print(f"not read: {text}")
    counts = ", ".join(
        f"{tally.total(place)} {text}"
        for place, text in (("npu", "on the NPU"), ("host", "on the host"), ("refused", "refused"))
    )
    print(
        f"{tally.total()} examples: {counts}, {tally.total('wrong')} wrong; {sum(tally.rtl.values())} on the "
        f"RTL, {tally.cycles} cycles"
    )
