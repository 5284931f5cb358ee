"""The figures of docs/results/index.md, read from the pages that programs write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rkcosim.base import PACKAGE
from rkcosim.measure.perf.page import PageError
from rkcosim.measure.perf.page import table as lines_of

RESULTS = Path(PACKAGE) / "docs" / "results"


@dataclass(frozen=True)
class Figure:
    """A figure with the place it is read from.

    Members
    -------
    question : what it answers.
    answer : text with the names of the patterns' groups in braces, such as `{rate}`.
    page : file below docs/results.
    patterns : expressions with named groups, each of which occurs exactly once on the page.
    anchor : section of the page.
    """

    question: str
    answer: str
    page: str
    patterns: tuple[str, ...]
    anchor: str = ""

    def read(self, folder: Path = RESULTS) -> str:
        """Return the answer with the page's numbers.

        Raises
        ------
        PageError
            If a pattern does not occur exactly once.
        """
        text = (folder / self.page).read_text(encoding="utf-8")
        found: dict[str, str] = {}
        for pattern in self.patterns:
            places = list(re.finditer(pattern, text, re.MULTILINE))
            if len(places) != 1:
                raise PageError(f"{self.page}: {len(places)} places match {pattern!r}, not 1")
            found |= places[0].groupdict()
        return self.answer.format_map(found)


FIGURES = (
    Figure(
        "How fast is the RTL simulated?",
        "{busy} cycles a second while the array works, {times} times as fast as plain Verilog in Verilator",
        "performance.md",
        (
            r"^\| default: Verilator[^|]*\| (?P<busy>[\d,]+) \|",
            r"^\| to plain Verilog in Verilator[^|]*\| (?P<times>[\d.]+) \|",
        ),
        "speed-of-the-engines",
    ),
    Figure(
        "How fast with `--fast`, for questions about time?",
        "{rate} cycles a second on ResNet-50, {ratio} times the default engine",
        "performance.md",
        (r"^\| resnet50 (?:\| [\d,]+ ){3}\| [\d.]+ \| (?P<rate>[\d,]+) \| (?P<ratio>[\d.]+) \|",),
        "the-engines-fast-and-changes",
    ),
    Figure(
        "How far are times of whole networks from boards?",
        "median {ours} with this compiler's plans, {rknn} with the division of layers that RKNN uses, over "
        "{held} networks that nothing was fitted to",
        "performance.md",
        (
            r"^\| models (?:\| [-+\d.%]+ ){5}\| (?P<held>\d+) \| (?P<ours>[\d.]+%)(?: \| [-+\d.]+%){4} \|$",
            r"^\| models (?:\| [-+\d.%]+ ){5}\| \d+ \| (?P<rknn>[\d.]+%)(?: \| [-+\d.]+%){2} \|$",
        ),
        "against-boards",
    ),
    Figure(
        "How far is an estimate from the RTL's cycles?",
        "median {median}, worst {worst}, on {layers} layers that were not used to fit it",
        "performance.md",
        (
            r"^\| held out \| (?P<layers>\d+) \| (?P<median>[\d.]+%) (?:\| [\d.]+% ){2}\| "
            r"(?P<worst>[\d.]+%) \|",
        ),
        "the-estimator",
    ),
    Figure(
        "Does an estimate name what the cycles went into?",
        "the right cause for {right} of the cycles of {networks} networks",
        "attribution.md",
        (r"attribution.md`: (?P<networks>\d+) networks", r" cycles\. (?P<right>[\d.]+%) of the cycles are"),
    ),
    Figure(
        "Do networks that people run on the chip work?",
        "{match} of {networks} match both golden models in every tensor; {within} of {compared} are within "
        "the rounding of their operators of LiteRT or onnxruntime",
        "zoo.md",
        (
            r"^(?P<match>\d+) of (?P<networks>\d+) match in every tensor; "
            r"(?P<within>\d+) of (?P<compared>\d+) that a reference",
        ),
    ),
    Figure(
        "Do model files load as they are published?",
        "{load} of {files} valid files load, {equal} match bit for bit",
        "public_models.md",
        (r"^Of (?P<files>\d+) valid files, (?P<load>\d+) load as shipped and (?P<equal>\d+) of these match",),
    ),
    Figure(
        "Do files that nobody tried before run, with the right outputs?",
        "{right} of {files} right, {away} further away, {refused} refused, {neither} that the reference does "
        "not run either",
        "whole_outputs.md",
        (
            r"^Of (?P<files>\d+) files, (?P<right>\d+) are right, (?P<away>\d+) are further away, "
            r"(?P<refused>\d+) are refused .* (?P<neither>\d+) cannot be run",
        ),
    ),
    Figure(
        "Do other people's tests pass where they pass on a board?",
        "{golden} of {all_golden} on the golden model, {rtl} of {all_rtl} on the RTL",
        "outside.md",
        (
            r"that have it here: (?P<golden>\d+) of (?P<all_golden>\d+) on the golden model, "
            r"(?P<rtl>\d+) of (?P<all_rtl>\d+) on the RTL",
        ),
    ),
    Figure(
        "How much of the RTL do simulations reach?",
        "{lines} of its lines and {bits} of the bits of its signals; each of the rest has a reason",
        "rtl_coverage.md",
        (
            r"^\| lines \| [\d,]+ \| [\d,]+ \| (?P<lines>[\d.]+ %) \|",
            r"^\| bits \| [\d,]+ \| [\d,]+ \| (?P<bits>[\d.]+ %) \|",
        ),
    ),
    Figure(
        "What is proved for all inputs?",
        "{always} of {claims} claims in all cycles, {bounded} in a bounded number",
        "proofs.md",
        (r"(?P<claims>\d+) claims, (?P<always>\d+) of them in all cycles, (?P<bounded>\d+) in a bounded",),
    ),
    Figure(
        "Would a fault be noticed?",
        "conformance finds {rtl} of {all_rtl} planted in the RTL, {golden} of {all_golden} in the golden "
        "model",
        "mutation.md",
        (
            r"^\| RTL \| (?P<all_rtl>\d+) \| (?P<rtl>\d+) \|",
            r"^\| golden model \| (?P<all_golden>\d+) \| (?P<golden>\d+) \|",
        ),
    ),
)


def table(folder: Path = RESULTS) -> str:
    """Return the table of the figures (Markdown)."""
    rows = []
    for figure in FIGURES:
        place = figure.page + (f"#{figure.anchor}" if figure.anchor else "")
        title = (folder / figure.page).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        rows.append((figure.question, figure.read(folder), f"[{title}]({place})"))
    return "\n".join(lines_of(("question", "answer", "page"), rows))
