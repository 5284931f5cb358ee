"""Where each rule of docs/reference comes from: `python -m tools.pages provenance`.

A mark such as `[board: KEY]` closes the text since the mark before it on the same line.  Marks in a row share
that text: each of them holds for a part of it.  A mark may name several keys.

Each file of docs/reference whose name begins with a number is a chapter (`# 7. DPU`) of sections
(`## 7.10 OUT_CVT`) of paragraphs and numbered rules.  All of their text is marked, except the introduction of
a chapter and block quotes.  A table is followed by a paragraph that begins with "Sources of the table".

A test that holds numbers of a board or of another outside source, computed by none of the project's models,
is a witness of rules: `@pytest.mark.board("7.8.4", source="remaining-ops", place="where in the source")`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rkcosim.measure.perf.page import PageError, table
from rkcosim.spec.regs.options import OPTIONS, Option

KINDS = {
    "board": "measured on RK3588 boards",
    "family": "measured on a related chip (RV1103, RV1106, RK3576)",
    "derived": "follows from the vendor's manual, from command lists of the vendor or of Mesa, from drivers "
    "or from the ancestor's sources, or is computed from measured numbers",
    "assumed": "nothing known supports it but its plausibility",
}
"""Kinds of marks, best evidence first, with what they mean."""

SOURCES, EXPERIMENTS = "Sources", "Experiments"
"""Headings of the two tables that explain the keys."""

REFERENCE = Path("docs/reference")
"""Folder of the hardware reference, from the project's root."""

TABLE_SOURCES = "Sources of the table"
"""Begin of the paragraph that follows each table."""

TESTS = Path("tests")
"""Folder of the tests, from the project's root."""

BEHAVIOUR = range(1, 12)
"""Chapters that say how the hardware behaves; the others have measurements, questions and programs."""

_MARK = re.compile(rf"\[({'|'.join(KINDS)}): ([a-z0-9]+(?:-[a-z0-9]+)*(?:, [a-z0-9]+(?:-[a-z0-9]+)*)*)\]")
_MARK_LIKE = re.compile(rf"\[ ?(?:{'|'.join(KINDS)})\b[^\]]*\]", re.IGNORECASE)
_MARKED = re.compile(rf"(.*?)((?:{_MARK.pattern}[ .;,:]*)+)")
_CITATION = re.compile(r" ?\(?\x5bHW \d[\d.]*\]\)?")
_ITEM = re.compile(r"(\d+)\. +(.*)")
_CHAPTER = re.compile(r"# +((\d+)\. +.+)")
_SECTION = re.compile(r"## +(\d+\.\d+) +(.+)")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+|https://[\w./-]+|\(web page\)")
_COMMIT = re.compile(r"[0-9a-f]{7,40}|-")
_OPTION = re.compile(r"option `(\w+)`")
_SHOWN, _SHOWN_RULE = 240, 110


@dataclass(frozen=True)
class Mark:
    """What a piece of text rests on."""

    kind: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """Text of a rule and the marks that close it; no marks where none does."""

    text: str
    marks: tuple[Mark, ...]


@dataclass
class Rule:
    """A numbered rule with all its lines, or the paragraphs of a section.

    Members
    -------
    name : `7.10.1`; the number of the section for its paragraphs.
    chapter : number and title of the chapter.
    lines : its text, a line each.
    """

    name: str
    chapter: str
    lines: list[str]

    @cached_property
    def claims(self) -> list[Claim]:
        """The rule's text cut behind its marks."""
        return [claim for line in self.lines for claim in _claims(line)]


@dataclass(frozen=True)
class Source:
    """A row of the table of sources."""

    key: str
    repository: str
    commit: str
    file: str
    shows: str


@dataclass(frozen=True)
class Experiment:
    """A row of the table of experiments: what would settle an assumption, and how."""

    key: str
    experiment: str
    outcomes: str


@dataclass(frozen=True)
class Witness:
    """A test with numbers of an outside source.

    Members
    -------
    test : file and function, `tests/system/test_board_values.py::test_fp32_sums`.
    rules : names of the rules that would be wrong if the test failed.
    source, place : key of the source, and where in it the numbers are.
    """

    test: str
    rules: tuple[str, ...]
    source: str
    place: str


@dataclass
class Page:
    """The hardware reference as far as provenance goes.

    Members
    -------
    rules : numbered rules, and the paragraphs of sections, in their order.
    places : what a citation can name: numbers of chapters, sections and rules.
    sources, experiments : rows of the two tables.
    faults : what could not be read.
    """

    rules: list[Rule] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    sources: list[Source] = field(default_factory=list)
    experiments: list[Experiment] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def _claims(line: str) -> Iterator[Claim]:
    end = 0
    for match in _MARKED.finditer(line):
        end = match.end()
        marks = [Mark(kind, tuple(keys.split(", "))) for kind, keys in _MARK.findall(match[2])]
        yield Claim(match[1].strip(), tuple(marks))
    rest = line[end:].strip()
    if rest:
        yield Claim(rest, ())


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def read(folder: Path = REFERENCE) -> Page:
    """Read all chapters of the reference.

    Parameters
    ----------
    folder : the folder with the chapters, files whose names begin with a number.

    Returns
    -------
    The rules of all chapters; what cannot be read is among the faults.
    """
    page = Page()
    for path in sorted(folder.glob("[0-9]*.md")):
        _read_chapter(page, path.name, path.read_text("utf-8"))
    if not page.places:
        page.faults.append(f"{folder}: there is no chapter")
    return page


def _read_chapter(page: Page, name: str, text: str) -> None:
    first, *lines = text.splitlines() or [""]
    heading = _CHAPTER.fullmatch(first)
    if not heading:
        page.faults.append(f"{name}: the first line is no heading such as '# 7. DPU'")
        return
    chapter, number = heading[1], heading[2]
    _enter(page, number)
    section = ""
    rule: Rule | None = None
    before = ""
    for line in lines:
        if section in (SOURCES, EXPERIMENTS):
            before = ""
        if line and before.startswith("|") and not line.startswith(("|", TABLE_SOURCES)):
            page.faults.append(f"{section or chapter}: a table without a paragraph '{TABLE_SOURCES}'")
        before = line or before
        if line.startswith("#"):
            section, rule = _section(page, number, line), None
        elif section in (SOURCES, EXPERIMENTS):
            _read_row(page, section, line)
        elif not section or not line or line.startswith(("|", ">")):
            rule = rule if line.startswith("  ") or not line else None
        elif item := _ITEM.fullmatch(line):
            rule = Rule(f"{section}.{item[1]}", chapter, [item[2]])
            _enter(page, rule.name)
            page.rules.append(rule)
        elif line.startswith("  ") and rule is not None:
            rule.lines.append(line.strip())
        else:
            _add_paragraph(page, section, chapter, line.strip())
            rule = None


def _add_paragraph(page: Page, section: str, chapter: str, line: str) -> None:
    """Add to the rule that holds the paragraphs of a section."""
    rule = next((rule for rule in reversed(page.rules) if rule.name == section), None)
    if rule is None:
        page.rules.append(Rule(section, chapter, [line]))
    else:
        rule.lines.append(line)


def _enter(page: Page, place: str) -> None:
    if place in page.places:
        page.faults.append(f"{place} is there twice")
    page.places.add(place)


def _section(page: Page, chapter: str, line: str) -> str:
    """The number of the section that a heading begins, or the heading of one of the two tables."""
    heading = _SECTION.fullmatch(line)
    if heading and heading[1].split(".")[0] == chapter:
        _enter(page, heading[1])
        return heading[1]
    title = line.lstrip("# ")
    if title not in (SOURCES, EXPERIMENTS):
        page.faults.append(f"chapter {chapter}: the heading '{title}' has no number of this chapter")
    return title


def _read_row(page: Page, section: str, line: str) -> None:
    if not line.startswith("|"):
        return
    row: type[Source] | type[Experiment] = Source if section == SOURCES else Experiment
    cells, width = _cells(line), len(row.__dataclass_fields__)
    if cells[0] in ("KEY", "key") or set(cells[0]) <= {"-", " ", ":"}:
        return
    if len(cells) != width:
        page.faults.append(f"{section}: '{cells[0]}' has {len(cells)} columns, not {width}")
    elif row is Source:
        page.sources.append(Source(*cells))
    else:
        page.experiments.append(Experiment(*cells))


def witnesses(folder: Path = TESTS) -> tuple[list[Witness], list[str]]:
    """The tests that are marked `board`, in the order of files and lines, and what is wrong with their marks.

    Parameters
    ----------
    folder : the folder of the tests.
    """
    found: list[Witness] = []
    wrong: list[str] = []
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text("utf-8")
        if "mark.board(" in text:
            _read_tests(f"{folder.name}/{path.relative_to(folder)}", ast.parse(text), found, wrong)
    return found, wrong


def _read_tests(name: str, module: ast.Module, found: list[Witness], wrong: list[str]) -> None:
    shared = {
        target.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.board":
                test = f"{name}::{node.name}"
                try:
                    found.append(_witness(test, mark, shared))
                except (ValueError, KeyError, TypeError) as error:
                    wrong.append(f"{test}: the mark board is not readable: {error}")


def _witness(test: str, mark: ast.Call, shared: dict[str, ast.expr]) -> Witness:
    rules: list[str] = []
    for argument in mark.args:
        if isinstance(argument, ast.Starred):
            rules += ast.literal_eval(shared[ast.unparse(argument.value)])
        else:
            rules.append(ast.literal_eval(argument))
    words = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
    if set(words) != {"source", "place"} or not rules:
        raise ValueError("it takes rules, source and place")
    return Witness(test, tuple(rules), words["source"], words["place"])


def witness_faults(page: Page, found: Iterable[Witness]) -> list[str]:
    """Witnesses of rules or from sources that do not exist, a sentence each."""
    names = {rule.name for rule in page.rules}
    keys = {source.key for source in page.sources}
    wrong = []
    for witness in found:
        wrong += [f"{witness.test}: there is no rule {name}" for name in witness.rules if name not in names]
        if witness.source not in keys:
            wrong.append(f"{witness.test}: {witness.source} is not in {SOURCES}")
        if not witness.place:
            wrong.append(f"{witness.test}: the place in {witness.source} is missing")
    return wrong


def faults(page: Page, options: Sequence[Option] = ()) -> list[str]:
    """Everything wrong with marks and tables, a sentence each; nothing for a page in order."""
    found = list(page.faults)
    used: dict[bool, set[str]] = {False: set(), True: set()}
    known = {False: [s.key for s in page.sources], True: [e.key for e in page.experiments]}
    for rule in page.rules:
        found += _rule_faults(rule)
        for assumed, key in _keys(rule):
            used[assumed].add(key)
            if key not in known[assumed]:
                found.append(f"{rule.name}: {key} is not in {EXPERIMENTS if assumed else SOURCES}")
    for assumed, keys in known.items():
        table = EXPERIMENTS if assumed else SOURCES
        found += [f"{table}: no rule names {key}" for key in keys if key not in used[assumed]]
        found += [f"{table}: {key} is there twice" for key in sorted({k for k in keys if keys.count(k) > 1})]
    found += _option_faults(page.rules, options)
    for source in page.sources:
        found += _source_faults(source)
    for row in page.experiments:
        if not row.experiment or not row.outcomes:
            found.append(f"{EXPERIMENTS}: {row.key} lacks the experiment or its outcomes")
    return found


def _keys(rule: Rule) -> Iterator[tuple[bool, str]]:
    for claim in rule.claims:
        for mark in claim.marks:
            for key in mark.keys:
                yield mark.kind == "assumed", key


def _option_faults(rules: Iterable[Rule], options: Iterable[Option]) -> Iterator[str]:
    """Options whose rule does not name them, and options that rules name and that do not exist."""
    named = {(rule.name, name) for rule in rules for line in rule.lines for name in _OPTION.findall(line)}
    there = {(option.rule, option.name) for option in options}
    yield from (f"{rule}: does not name the option {name}" for rule, name in sorted(there - named))
    yield from (f"{rule}: there is no option {name} of this rule" for rule, name in sorted(named - there))


def _rule_faults(rule: Rule) -> Iterator[str]:
    for claim in rule.claims:
        for wrong in _MARK_LIKE.findall(claim.text):
            yield f"{rule.name}: {wrong} is not a mark: [KIND: KEY], keys in lower case with hyphens"
        if not claim.marks:
            yield f"{rule.name}: no mark closes: {textwrap.shorten(claim.text, 80)}"
        elif not claim.text:
            yield f"{rule.name}: {claim.marks[0].keys[0]} closes no text"


def _source_faults(source: Source) -> Iterator[str]:
    wrong = {
        "repository": not _REPOSITORY.fullmatch(source.repository),
        "commit": not _COMMIT.fullmatch(source.commit),
        "file": not source.file,
        "what it shows": not source.shows,
    }
    for what, lacks in wrong.items():
        if lacks:
            yield f"{SOURCES}: {source.key} lacks {what}"


def _counts(rules: Iterable[Rule]) -> dict[str, int]:
    """Marks of each kind; several keys in one mark count once."""
    counts = dict.fromkeys(KINDS, 0)
    for rule in rules:
        for claim in rule.claims:
            for mark in claim.marks:
                counts[mark.kind] += 1
    return counts


def _rest(rules: Iterable[Rule], assumed: bool, key: str) -> list[str]:
    """Names of the rules that rest on a key, each once, in their order."""
    return list(dict.fromkeys(rule.name for rule in rules if (assumed, key) in _keys(rule)))


_HEAD = """# Where the hardware rules come from

Made by `python -m tools.pages provenance` from the marks in the hardware
reference ([reference](../reference/index.md)). Each mark closes a piece of a rule's text:

"""


_OPTIONS_HEAD = """## Options

Where two readings fit what is known, `rkcosim --option NAME COMMAND` takes the other one
([commandline.md](../commandline.md)).
"""


_WITNESS_HEAD = """## Witnesses

The golden model and the RTL are compared with each other on every task that is drawn; that they agree
says nothing about silicon, as both were written from one text. A witness is a test whose expected numbers
are those of a board, or of a program whose result mathematics fixes, and none of the project's models
computes them. It is marked `board` with the rules that it holds, its source and the place there. Counted
are the rules of the chapters 1 to 11.
"""


def _witnessed(page: Page, found: Sequence[Witness]) -> list[str]:
    """Counts, the rules that only RTL and golden model hold up, and the others with their witnesses."""
    rules = [rule for rule in page.rules if int(rule.chapter.split(".")[0]) in BEHAVIOUR]
    of = {rule.name: [w for w in found if rule.name in w.rules] for rule in rules}
    alone = [rule for rule in rules if not of[rule.name]]
    sources = len({w.source for w in found})
    lines = [*_WITNESS_HEAD.splitlines(), ""]
    lines.append(
        f"{len(rules) - len(alone)} of {len(rules)} rules have a witness, {len(found)} tests from {sources} "
        f"sources; {len(alone)} are held up by RTL and golden model together and nothing else."
    )
    rows: list[tuple[str, str, str]] = []
    for rule in alone:
        kinds = [mark.kind for claim in rule.claims for mark in claim.marks]
        best = min(kinds, key=list(KINDS).index)
        text = _CITATION.sub("", _MARK.sub("", " ".join(rule.lines)))
        text = textwrap.shorten(text, _SHOWN_RULE, placeholder=" ...")
        rows.append((rule.name, best, text.replace("|", chr(92) + "|")))
    lines += ["", "### Held up by RTL and golden model alone", ""]
    lines += table(("rule", "best mark", "text"), rows)
    rows = []
    for rule in rules:
        if of[rule.name]:
            tests = ", ".join(f"`{w.test.rpartition('::')[2]}`" for w in of[rule.name])
            keys = ", ".join(dict.fromkeys(w.source for w in of[rule.name]))
            rows.append((rule.name, tests, keys))
    return [*lines, "", "### With a witness", "", *table(("rule", "witnesses", "sources"), rows)]


def markdown(page: Page, options: Sequence[Option] = (), found: Sequence[Witness] = ()) -> str:
    """The page docs/results/provenance.md."""
    lines = [f"- **{kind}**: {meaning};" for kind, meaning in KINDS.items()]
    lines[-1] = lines[-1][:-1] + "."
    lines += [
        "",
        "## Counts",
        "",
    ]
    cells: list[tuple[object, ...]] = []
    chapters = list(dict.fromkeys(rule.chapter for rule in page.rules))
    for chapter in [*chapters, None]:
        rules = [rule for rule in page.rules if chapter in (None, rule.chapter)]
        cells.append((chapter or "**all**", len(rules), *_counts(rules).values()))
    lines += table(("chapter", "rules", *KINDS), cells)
    free = sum(all(not assumed for assumed, _ in _keys(rule)) for rule in page.rules)
    lines += ["", f"{free} of {len(page.rules)} rules hold no assumption."]
    lines += ["", *_witnessed(page, found)]
    if options:
        lines += ["", *_OPTIONS_HEAD.splitlines(), ""]
        lines += table(
            ("option", "rule", "default", "with the option"),
            ((f"`{o.name}`", o.rule, o.default, o.otherwise) for o in options),
        )
    lines += ["", "## Assumptions, and the experiment that would settle each"]
    for row in page.experiments:
        lines += [
            "",
            f"### {row.key}",
            "",
            f"Experiment: {row.experiment}.",
            "",
            f"Outcomes: {row.outcomes}.",
            "",
        ]
        for rule in page.rules:
            for claim in rule.claims:
                if any(m.kind == "assumed" and row.key in m.keys for m in claim.marks):
                    lines.append(f"- {rule.name}: {textwrap.shorten(claim.text, _SHOWN, placeholder=' ...')}")
    lines += ["", "## Sources", ""]
    lines += table(
        ("source", "repository", "rules"),
        ((s.key, s.repository, ", ".join(_rest(page.rules, False, s.key))) for s in page.sources),
    )
    return _HEAD + "\n".join(lines) + "\n"


def checked_page(rules: Path = REFERENCE, options: Sequence[Option] = OPTIONS, tests: Path = TESTS) -> str:
    """Return the page.

    Parameters
    ----------
    rules : folder of the reference.
    options : options of the model, which the rules name.
    tests : folder of the tests.

    Raises
    ------
    PageError
        If marks of rules or of tests are wrong; the text has a line for each.
    """
    page = read(rules)
    found, unread = witnesses(tests)
    wrong = faults(page, options) + unread + witness_faults(page, found)
    if wrong:
        raise PageError("\n".join(wrong))
    return markdown(page, options, found)


def main(path: str, rules: Path = REFERENCE, options: Sequence[Option] = OPTIONS, tests: Path = TESTS) -> int:
    """Write the page, or say what is wrong with the rules' marks or with those of tests.

    Parameters
    ----------
    path : the file to write.
    rules : folder of the reference.
    options : options of the model, which the rules name.
    tests : folder of the tests.

    Returns
    -------
    Exit code: 0, or 1 when marks or tables are wrong; the page is not written then.
    """
    try:
        text = checked_page(rules, options, tests)
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    Path(path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tools.provenance", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument("page", help="the file to write: docs/results/provenance.md")
    sys.exit(main(parser.parse_args().page))
