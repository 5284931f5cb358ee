"""Pages, and parts of pages, that are made from the sources or from kept records: `python -m tools.pages`.

    python -m tools.pages              # write all
    python -m tools.pages lint zoo     # write some
    python -m tools.pages --check      # write nothing; exit code 1 if a page is not that of the sources

A part stands between the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a page
(`rkcosim.measure.perf.page`).  Figures that take long to measure have commands of their own
(`rkcosim bench --page`, `make proofs`, ...); docs/results/index.md is made from their pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from rkcosim.base import PACKAGE
from rkcosim.measure.perf.page import PageError, read_section, write_section
from rkcosim.waves.whole_file import whole_file
from tools.pages.api import API
from tools.pages.commands import PAGES as COMMAND_PAGES

ROOT = Path(PACKAGE)


@dataclass(frozen=True)
class Made:
    """A page, or a part of one, that a function makes.

    Members
    -------
    path : file, relative to the root of the checkout.
    text : makes the Markdown.
    section : name of the part, "" if the function makes the whole page.
    kept : whether the file is checked in.
    """

    path: str
    text: Callable[[], str]
    section: str = ""
    kept: bool = True

    def current(self, root: Path = ROOT) -> bool:
        """Whether the file has the text that the function makes now.

        Raises
        ------
        PageError
            If the page has no such part.
        """
        page = root / self.path
        if self.section:
            return read_section(self.section, page) == self.text().strip()
        return page.exists() and page.read_text(encoding="utf-8") == self.text()

    def write(self, root: Path = ROOT) -> None:
        """Replace the page or the part; the file is replaced atomically."""
        page = root / self.path
        if self.section:
            write_section(self.section, self.text(), page)
            return
        text = self.text()
        with whole_file(page) as part:
            part.write_text(text, encoding="utf-8")


def _lint() -> str:
    from tools.pages.lint import page

    return page()


def _constraints() -> str:
    from tools.pages.constraints import page

    return page()


def _registers() -> str:
    from tools.pages.registers import markdown

    return markdown()


def _counters() -> str:
    from tools.pages.registers import counters_markdown

    return counters_markdown()


def _causes() -> str:
    from tools.pages.registers import causes_markdown

    return causes_markdown()


def _ports() -> str:
    from tools.pages.ports import markdown

    return markdown()


def _hexagon() -> str:
    from tools.pages.hexagon import table

    return table()


def _nnapi() -> str:
    from tools.pages.nnapi import table

    return table()


def _products() -> str:
    from tools.pages.products import markdown

    return markdown()


def _provenance() -> str:
    from tools.provenance import checked_page

    return checked_page()


def _outside() -> str:
    from tools.outside.__main__ import RECORD
    from tools.outside.page import page
    from tools.outside.record import read
    from tools.outside.suites import SUITES

    return page(SUITES, read(RECORD))


def _handshakes() -> str:
    from tools.mutation.handshake_record import Record, page, reasons

    return page(Record.read(), reasons())


def _zoo() -> str:
    from benchmarks.zoo.page import page
    from benchmarks.zoo.record import RECORD, read_record

    return page(read_record(RECORD))


def _quantisation() -> str:
    from benchmarks.quantisers.page import page
    from benchmarks.quantisers.record import read_record

    return page(read_record())


def _results() -> str:
    from tools.pages.figures import table

    return table()


def _api(name: str) -> str:
    _needs_griffe()
    from tools.pages.api.writer import page

    return page(name)


def _names() -> str:
    _needs_griffe()
    from tools.pages.api.names import text

    return text()


def _needs_griffe() -> None:
    if find_spec("griffe") is None:
        raise PageError("docs/api is made with griffelib, of the extra `dev`: pip install griffelib")


def _commands_table() -> str:
    from tools.pages.commands import commands_table

    return commands_table()


def _python_table() -> str:
    from tools.pages.commands import python_table

    return python_table()


def _page_lines(page: str, names: tuple[str, ...]) -> str:
    from tools.pages.commands import page_lines

    return page_lines(page, names)


def _python(page: str, names: tuple[str, ...]) -> Made:
    return Made(page, partial(_page_lines, page, names), "python")


PAGES: dict[str, Made] = {
    "lint": Made("docs/lint.md", _lint),
    "constraints": Made("docs/constraints.md", _constraints),
    "registers": Made("build/registers.md", _registers, kept=False),
    "counters": Made("docs/counters.md", _counters, "registers"),
    "causes": Made("docs/counters.md", _causes, "causes"),
    "ports": Made("docs/ports.md", _ports, "ports"),
    "hexagon": Made("docs/hexagon.md", _hexagon, "operations"),
    "nnapi": Made("docs/nnapi_operations.md", _nnapi, "operations"),
    "products": Made("docs/rknn_api.md", _products, "matmul"),
    "provenance": Made("docs/results/provenance.md", _provenance),
    "outside": Made("docs/results/outside.md", _outside),
    "handshakes": Made("docs/results/handshakes.md", _handshakes),
    "zoo": Made("docs/results/zoo.md", _zoo),
    "quantisation": Made("docs/results/quantisation.md", _quantisation),
    **{f"api-{name}": Made(f"docs/api/{name}.md", partial(_api, name)) for name in API},
    "python": Made("docs/commandline.md", _commands_table, "python"),
    "python-index": Made("docs/api/index.md", _python_table, "python"),
    **{f"python-{Path(page).stem}": _python(page, names) for page, names in COMMAND_PAGES.items()},
    "api-names": Made("docs/api/names.txt", _names),
    "results": Made("docs/results/index.md", _results, "figures"),
}
"""What can be made, by name; `results` comes last, because it is made from other pages."""


def main(names: Iterable[str], check: bool, root: Path = ROOT) -> int:
    """Write pages, or check them.

    Parameters
    ----------
    names : keys of `PAGES`; none means all that are checked in.
    check : write nothing, and name what is not current.
    root : folder of the checkout.

    Returns
    -------
    Exit code: 0, or 1 if `check` found a page that is not current.

    Raises
    ------
    PageError
        If a name is unknown, or a page has no place for its part.
    """
    asked = list(names) or [name for name, made in PAGES.items() if made.kept]
    for name in asked:
        if name not in PAGES:
            raise PageError(f"no page {name!r}; there are {', '.join(PAGES)}")
    stale = []
    for name in asked:
        if check:
            if not PAGES[name].current(root):
                stale.append(name)
        else:
            PAGES[name].write(root)
            print(PAGES[name].path)
    if stale:
        print(f"not current: {', '.join(stale)}; run python -m tools.pages {' '.join(stale)}")
    return 1 if stale else 0
