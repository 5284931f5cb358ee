"""The record of faults of handshakes, docs/results/handshakes.json, and the page that is made from it.

The record has all faults of the RTL's ports, with the verdict on each that has been tried: what found it, the
processor time that took, and a digest of the sources it depends on. A find depends on the component's module
and on the text of the test that failed; a fault that survived on all files of tests that were run. A verdict
whose sources have changed since stays until the fault is tried again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from rkcosim.waves.whole_file import whole_file
from tools.mutation.faulty_ports import PortFault

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs/results/handshakes.json"
PAGE = ROOT / "docs/results/handshakes.md"
HARMLESS = Path(__file__).with_name("harmless.toml")

SECONDS = 30
"""Processor time within which the tests of a block have to find a fault."""

FOUND, SURVIVED = "found", "survived"


@dataclass(frozen=True)
class Finding:
    """The verdict on one fault, the test that failed, the seconds it took, and a digest of the sources.

    `first` is the verdict of the first try, before benches were mended. A find without a test is older than
    the record; it has no time and no digest. A fault that survived shorter tests than `SECONDS` has no digest
    either: it is not decided.
    """

    fault: str
    result: str
    test: str
    seconds: float
    sources: str
    first: str = ""

    @property
    def decided(self) -> bool:
        """Whether this is a find, or the fault survived all tests or `SECONDS` of them."""
        return self.result == FOUND or bool(self.sources)


@dataclass
class Record:
    """All faults, in the order of their names, and the verdicts on those that have been tried."""

    faults: list[str] = field(default_factory=list)
    verdicts: dict[str, Finding] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = RECORD) -> Record:
        """Read a record; without a file it is empty."""
        record = cls()
        if not path.is_file():
            return record
        for component, kept in json.loads(path.read_text(encoding="utf-8")).items():
            for port, verdict in kept["faults"].items():
                record.faults.append(f"{component}: {port}")
                if verdict is not None:
                    result, test, seconds, sources, *first = verdict
                    record.verdicts[record.faults[-1]] = Finding(
                        record.faults[-1],
                        result,
                        kept["tests"][test],
                        seconds,
                        kept["sources"][sources],
                        first[0] if first else result,
                    )
        return record

    def write(self, path: Path = RECORD) -> None:
        """Write the record: for each component its tests, digests, and a line for each fault."""
        parts = []
        for component, faults in _by_component(self.faults).items():
            own = [self.verdicts[fault] for fault in faults if fault in self.verdicts]
            tests = sorted({one.test for one in own})
            sources = sorted({one.sources for one in own})
            rows = []
            for fault in faults:
                row = None
                if (one := self.verdicts.get(fault)) is not None:
                    row = [one.result, tests.index(one.test), one.seconds, sources.index(one.sources)]
                    row += [one.first] if one.first not in ("", one.result) else []
                rows.append(f"   {json.dumps(fault.partition(': ')[2])}: {json.dumps(row)}")
            parts.append(
                f' {json.dumps(component)}: {{\n  "tests": {json.dumps(tests)},\n'
                f'  "sources": {json.dumps(sources)},\n  "faults": {{\n' + ",\n".join(rows) + "\n  }\n }"
            )
        with whole_file(path) as part:
            part.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")

    @property
    def findings(self) -> list[Finding]:
        """The verdicts in the order of the faults."""
        return [self.verdicts[fault] for fault in self.faults if fault in self.verdicts]

    def current(self, fault: PortFault, paths: Sequence[str]) -> bool:
        """Whether there is a verdict on a fault, and what it depends on is as it was."""
        one = self.verdicts.get(str(fault))
        return one is not None and one.sources == digest_of(fault, one.test, paths)


def _by_component(faults: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fault in faults:
        found.setdefault(fault.partition(":")[0], []).append(fault)
    return found


def digest_of(fault: PortFault, test: str, paths: Sequence[str]) -> str:
    """Return a digest of what the verdict on a fault depends on.

    Parameters
    ----------
    test : the test that found the fault, as pytest names it, or a proof; anything else stands for all files.
    paths : files of tests that use the component, relative to the root.
    """
    digest = hashlib.sha256(Path(__file__).with_name("faulty_ports.py").read_bytes())
    digest.update(
        (ROOT / "rtl" / (fault.component.rpartition(".")[0].replace(".", "/") + ".py")).read_bytes()
    )
    path, found, name = test.partition("::")
    if found and (text := _functions(ROOT / path).get(name.partition("[")[0])) is not None:
        digest.update(text.encode())
    elif not test.startswith("proof "):
        for path in paths:
            digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()[:12]


@cache
def _functions(path: Path) -> Mapping[str, str]:
    """Return the functions of a file by name, as they are written, without their decorators."""
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name: ast.get_source_segment(text, node) or ""
        for node in ast.parse(text).body
        if isinstance(node, kinds)
    }


def reasons() -> dict[str, str]:
    """Return the reasons of harmless faults by the patterns of their names."""
    return dict(tomllib.loads(HARMLESS.read_text(encoding="utf-8"))["harmless"])


def reason_of(fault: str, known: Mapping[str, str]) -> str | None:
    """Return why a fault is harmless, or None."""
    return next((reason for pattern, reason in known.items() if fnmatchcase(fault, pattern)), None)


@dataclass(frozen=True)
class Count:
    """Numbers of a component's faults, or of all.

    Members
    -------
    tried, of : faults that have been tried, all faults.
    found, harmless, left : faults that are found, that survive with a reason, that survive without one.
    undecided : faults that no test of a shorter time found, without a reason.
    before : faults without a reason that survived the first try.
    """

    name: str
    tried: int
    of: int
    found: int
    harmless: int
    left: int
    undecided: int
    before: int


def counted(record: Record, known: Mapping[str, str]) -> list[Count]:
    """Return the numbers of each component that has been tried, and of all."""
    groups = {name: faults for name, faults in _by_component(record.faults).items()}
    rows = []
    for name, faults in (*groups.items(), ("all", record.faults)):
        own = [record.verdicts[fault] for fault in faults if fault in record.verdicts]
        found = sum(one.result == FOUND for one in own)
        others = [one for one in own if reason_of(one.fault, known) is None]
        left = sum(one.result != FOUND and one.decided for one in others)
        undecided = sum(not one.decided for one in others)
        before = sum(one.decided and (one.first or one.result) == SURVIVED for one in others)
        harmless = len(own) - found - left - undecided
        count = Count(name, len(own), len(faults), found, harmless, left, undecided, before)
        rows += [count] if own or name == "all" else []
    return rows


def page(record: Record, known: Mapping[str, str]) -> str:
    """Return the page: counts by component, faults that survive, and the reasons of harmless ones."""
    *rows, all_ = counted(record, known)
    findings = record.findings
    tried = f"All {all_.of:,}" if all_.tried == all_.of else f"{all_.tried:,} of {all_.of:,}"
    slow = sorted(one.seconds for one in findings if one.result == FOUND and one.test)
    older = sum(one.result == FOUND and not one.test for one in findings)
    median = slow[len(slow) // 2] if slow else 0.0
    lines = [
        "# Faults of handshakes",
        "",
        "Written by `python -m tools.mutation.handshakes`, from its record `docs/results/handshakes.json`.",
        "Every port of one bit and every count that a component of the RTL drives is made wrong in turn:",
        "a cycle late, held for one cycle longer, raised in cycles in which it is low, dropped, one more or",
        "one less. The component keeps its own value, so that both sides of the port disagree. A fault is",
        "found if a test of `tests/block` that uses the component, or one of its proofs, fails within",
        f"{SECONDS} seconds of processor time.",
        "",
        f"{tried} faults have been tried: {all_.found:,} are found (median {median:.1f} s), {all_.harmless}",
        f"are harmless for a reason that is given below, and {all_.left} survive. {all_.undecided} are not",
        "decided: no test has found them yet, but tests ran for a few seconds only.",
        f"{all_.before} survived the first try: then benches were mended, and the RTL got assertions.",
        "The components take turns, each with faults in an order by a hash of their names, so that what has",
        "been tried is a sample of each.",
        *(
            [f"{older} finds are older than the record, which has no test and no time of them."]
            if older
            else []
        ),
        "",
        "| component | tried | of | found | harmless | survived at first | survive | not decided |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| `{one.name}` | {one.tried} | {one.of} | {one.found} | {one.harmless} | {one.before} | "
            f"{one.left} | {one.undecided} |"
            for one in rows
        ),
        "",
    ]
    if untried := sorted(set(_by_component(record.faults)) - {one.name for one in rows}):
        lines += ["No fault has been tried of " + ", ".join(f"`{name}`" for name in untried) + ".", ""]
    survivors = [one for one in findings if one.result != FOUND]
    for title, decided in (("Faults that survive", True), ("Faults that are not decided", False)):
        rows_left = [
            f"- `{one.fault}` ({one.test})"
            for one in survivors
            if one.decided is decided and reason_of(one.fault, known) is None
        ]
        lines += [f"## {title}", "", *(rows_left or ["None."]), ""]
    lines += ["## Harmless faults", ""]
    groups: dict[str, list[str]] = {}
    for one in survivors:
        if (reason := reason_of(one.fault, known)) is not None:
            groups.setdefault(reason, []).append(one.fault)
    lines += [
        f"- {reason} {', '.join(f'`{fault}`' for fault in names)}." for reason, names in groups.items()
    ] or ["None."]
    return "\n".join(lines) + "\n"
