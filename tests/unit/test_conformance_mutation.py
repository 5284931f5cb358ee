"""Mutation check: operators, excluded code, golden mutants, RTL sites, the page."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rkcosim.verify.conformance.groups import GROUPS
from tools.mutation import golden as mutation_golden
from tools.mutation import rtl as mutation_rtl
from tools.mutation import rules as mutation_rules
from tools.mutation.__main__ import Record, main
from tools.mutation.corpus import Entry, entries, ordered, rounds
from tools.mutation.operators import Mutant, guarded, mutants, sites, target
from tools.mutation.verdict import Verdict, counted, good, markdown

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''
"""A text with 1 + 2."""
def work(x, low: int = 3):
    """Not 4."""
    if x < 0:
        raise ValueError(f"{x + 1} is below {low - 1}")
    y = saturate(shift_even(-x[2], low), 8)
    return max(y, 1) << 5 if x >= 6 else f"{y + 7}"
'''


def test_operators_of_every_kind_and_nothing_in_texts_and_checks() -> None:
    found = mutants("some.py", SOURCE)
    assert {m.kind for m in found} == {
        *("rounding", "comparison", "constant", "sign", "saturation", "bound", "operator"),
    }
    changed = {(m.before, m.after) for m in found}
    assert ("x >= 6", "x > 6") in changed and ("-x[2]", "x[2]") in changed
    assert not any("ValueError" in m.before or "+ 1" in m.before or "7" in m.before for m in found)
    assert {m.line for m in found} == {3, 7, 8}
    for mutant in found:
        ast.parse(mutant.source)
        assert mutant.source != SOURCE and mutant.source.count("\n") == SOURCE.count("\n")
    inside = next(m for m in found if m.line == 8)
    assert inside.scope == 3


def test_what_is_left_alone_exists() -> None:
    """A rule for a name that has changed would exclude nothing."""
    for path in (*mutation_rules.FILES, *mutation_rules.FUNCTIONS, *mutation_rules.NAMES):
        assert (ROOT / path).is_file(), path
    for path, functions in mutation_rules.FUNCTIONS.items():
        tree = ast.parse((ROOT / path).read_text())
        there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert set(functions) <= there, path
    for path, names in mutation_rules.NAMES.items():
        set_ = set()
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                set_.add(target(node))
            elif isinstance(node, ast.Attribute) and node.attr == "eq":
                set_.add(ast.unparse(node.value).rpartition(".")[2])
        assert set(names) <= set_, path


def test_every_module_of_both_sides_has_mutants_and_its_sites_can_be_guarded() -> None:
    for _, source in mutation_rules.modules(ROOT, mutation_golden.FOLDERS):
        ast.parse(source)
    few = 0
    for path, source in mutation_rules.modules(ROOT, mutation_rtl.FOLDERS):
        found = sites(path, source)
        few += not found
        if found:
            text = guarded(source, [(1, found[0])])
            ast.parse(text)
            assert "choose(1," in text
    assert few <= 3


def test_rtl_sites_do_not_overlap() -> None:
    chosen = mutation_rtl.choose_sites(ROOT, 150, np.random.default_rng(1))
    assert len(chosen) == 150
    for site in chosen:
        for other in chosen:
            if site is not other and site.path == other.path:
                assert site.end <= other.start or other.end <= site.start


def test_groups_that_concern_a_module_come_first() -> None:
    groups = list(GROUPS)
    first = mutation_rtl.order("rtl/npu/ppu_lanes.py", groups, True)
    assert sorted(first) == sorted(groups) and first[0].startswith("pool")
    later = mutation_rtl.order("rtl/npu/ppu_lanes.py", groups, False)
    assert "conv int8" not in later and {"pool int8", "waits", "reserved codes"} <= set(later)
    for prefix, words in mutation_rtl.CLOSE:
        assert all(any(word in group for group in groups) for word in words), prefix


@pytest.fixture(scope="module")
def corpus() -> list[Entry]:
    wanted = {"conv int8", "pool int8", "flying integers"}
    return [entry for entry in entries(3, 1, ROOT) if entry.group in wanted]


def test_cases_know_which_functions_they_call(corpus: list[Entry]) -> None:
    tree = ast.parse((ROOT / "cosim/golden/task/ppu.py").read_text())
    pool = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "pool")
    scope = ("cosim/golden/task/ppu.py", pool.lineno)
    assert [entry.group for entry in ordered(corpus, [1], scope)] == ["pool int8"]
    assert list(ordered(corpus, rounds(9), None)) == corpus


def test_golden_mutants_are_found_and_the_unchanged_model_is_not(corpus: list[Entry]) -> None:
    path = "cosim/golden/task/arith.py"
    source = (ROOT / path).read_text()
    wrong = source.replace("-(1 << (bits - 1))", "-(1 << (bits - 2))")
    assert wrong != source
    tried = [
        Mutant(path, 1, "saturation", "a", "b", wrong),
        Mutant(path, 1, "constant", "c", "d", "raise RuntimeError"),
        Mutant(path, 1, "order", "e", "f", source),
    ]
    same = mutation_golden.unchanged(ROOT)
    verdicts = mutation_golden.check(iter(tried), same, 3, corpus, [1], 2, lambda verdict: None)
    assert sorted((v.kind, v.result) for v in verdicts) == [
        ("constant", "void"),
        ("order", "survived"),
        ("saturation", "found"),
    ]
    assert counted(verdicts, "golden") == (1, 2, 1) and not good(verdicts)


def test_findings_that_only_lint_prints_are_compared(corpus: list[Entry]) -> None:
    """A warning without a diagnostic of the hardware changes no byte and no register."""
    path = "cosim/golden/task/rules_conv.py"
    source = (ROOT / path).read_text()
    wrong = source.replace("size >= needed + ATOM", "size >= needed - ATOM")
    assert wrong != source
    tried = iter([Mutant(path, 1, "operator", "needed + ATOM", "needed - ATOM", wrong)])
    same = mutation_golden.unchanged(ROOT)
    (verdict,) = mutation_golden.check(tried, same, 1, corpus, [1], 1, lambda verdict: None)
    assert verdict.result == "found", verdict


def test_a_corpus_that_does_not_repeat_is_told(corpus: list[Entry]) -> None:
    false = [replace(e, digest="another digest") for e in corpus]
    with pytest.raises(RuntimeError, match="do not reproduce"):
        mutation_golden.check(
            iter(()), mutation_golden.unchanged(ROOT), 1, false, [1], 1, lambda verdict: None
        )


def test_the_page_has_figures_and_survivors() -> None:
    verdicts = [
        Verdict(
            "rtl", "sign", f"rtl/npu/x.py:{n}: sign: -a -> a", "found" if n else "survived", "9 cases", 1.0
        )
        for n in range(20)
    ]
    page = markdown(verdicts, ["python -m something --seed 5"])
    assert "| RTL | 20 | 19 | 95.0% |" in page and "--seed 5" in page
    assert "rtl/npu/x.py:0: sign: -a -> a" in page and good(verdicts)


def test_a_run_goes_on_from_its_record(tmp_path: Path, corpus: list[Entry]) -> None:
    path, settings = tmp_path / "sub" / "record.jsonl", {"seed": 5, "sources": "abc"}
    first = Verdict("golden", "sign", "cosim/golden/x.py:3: sign", "found", "case 1", 0.5)
    cut = Verdict("rtl", "sign", "rtl/npu/x.py:3: sign", "found", "case 1", 0.5)
    record = Record(path, settings)
    for verdict in (first, first, cut):
        record(verdict)
    assert path.read_text().count("\n") == 3
    path.write_text(path.read_text()[:-9])  # the process was killed while it wrote

    again = Record(path, settings)
    assert again.known == {"golden": {first.mutant: first}, "rtl": {}}
    again(cut)
    assert Record(path, settings).known["rtl"] == {cut.mutant: cut}

    mutant = Mutant("cosim/golden/task/arith.py", 1, "order", "e", "f", "raise RuntimeError")
    known = {str(mutant): Verdict("golden", "order", str(mutant), "survived", "2 cases", 1.0)}
    same = mutation_golden.unchanged(ROOT)
    verdicts = mutation_golden.check(iter([mutant]), same, 1, corpus, [1], 1, again, known)
    assert verdicts == list(known.values())


def test_a_record_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    Record(path, {"seed": 5, "sources": "abc"})
    with pytest.raises(ValueError, match=r"record\.jsonl: recorded with sources abc, this run has abd"):
        Record(path, {"seed": 5, "sources": "abd"})
    path.write_text("nonsense\n")
    with pytest.raises(ValueError, match="not a record of mutants"):
        Record(path, {"seed": 5})
    with pytest.raises(SystemExit):
        main(["--resume", str(path), "--golden", "1", "--rtl", "0"])
