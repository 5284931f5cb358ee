"""Random small ONNX graphs through C library, rknnlite, `run` and `compare`; onnxruntime is the judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from tests.extent import extent
from tests.seeds import seed
from tools.graph_fuzz import search as searches
from tools.graph_fuzz.doors import DoorFault, Doors, Form
from tools.graph_fuzz.draw import Array, Graph, drawn
from tools.graph_fuzz.judge import Judge
from tools.graph_fuzz.search import Search, Verdicts, made
from tools.graph_fuzz.shrink import shrunk

SEED = seed(__name__, 28)
GRAPHS = extent(12, 300)


def test_every_door_has_the_values_of_onnxruntime() -> None:
    report = Search(cut=False, tell=False).run(range(SEED, SEED + GRAPHS))
    assert not report.faults, "\n".join(report.faults)
    runs = {door: GRAPHS // searches.EVERY.get(door, 1) for door in Doors.NAMES}
    assert report.graphs == GRAPHS and report.runs == runs


def test_graphs_vary_and_a_seed_repeats_its_graph() -> None:
    graphs = [made(number) for number in range(SEED, SEED + 120)]
    operators = {node.op_type for graph in graphs for node in graph.model.graph.node}
    ranks = {array.ndim for graph in graphs for array in graph.feeds.values()}
    inputs, ends = ({len(part(graph)) for graph in graphs} for part in (_inputs, _outputs))
    assert len(operators) > 50 and ranks == {1, 2, 3, 4, 5, 6}
    assert inputs == {1, 2, 3} and ends >= {1, 2, 3}
    assert graphs[7].model == made(SEED + 7).model


def _inputs(graph: Graph) -> dict[str, Array]:
    return graph.feeds


def _outputs(graph: Graph) -> list[object]:
    return list(graph.model.graph.output)


@pytest.mark.parametrize("number", range(8))
def test_the_judge_finds_samples_in_a_wrong_order(number: int) -> None:
    """The judge, of fp16 and of bytes, sees an output turned around, and one output too many."""
    found = 0
    for step in range(6):
        judge = Judge(made(SEED + 100 * number + step))
        assert judge.fault(judge.wanted) is None
        turned = [
            np.ascontiguousarray(array.reshape(-1)[::-1]).reshape(array.shape) for array in judge.wanted
        ]
        found += judge.fault(turned) is not None
        flat = [array.reshape(-1) for array in judge.wanted]
        assert judge.fault(flat, shapes=False) is None
        assert "outputs" in (judge.fault([*judge.wanted, judge.wanted[0]]) or "")
    assert found >= 3


def test_a_graph_that_fails_is_cut_down() -> None:
    graph = next(
        g for g in map(drawn, range(SEED, SEED + 500)) if _kinds(g).count("Conv") and len(_kinds(g)) > 6
    )
    small = shrunk(graph, lambda part: "Conv" in _kinds(part))
    assert _kinds(small) == ["Conv"]
    assert Judge(small).wanted


def _kinds(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.model.graph.node]


def test_faults_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong numbers, a wrong shape and an error of a door are faults, each with its seed and door."""

    def outputs(self: Doors, door: str, graph: Graph, form: Form) -> list[Array] | None:
        right = Judge(graph).wanted
        if door == "c":
            return [array + 7 for array in right]
        if door == "lite":
            raise DoorFault("error inference: KeyError")
        return [array[None] for array in right] if door == "run" else None

    monkeypatch.setattr(searches.Doors, "outputs", outputs)
    report = Search(cut=False, tell=False).run([SEED])
    said = dict(zip(("c", "lite", "run"), report.faults, strict=True))
    assert "elements are wrong" in said["c"] and "KeyError" in said["lite"] and "has shape" in said["run"]
    assert all(text.startswith(f"seed {SEED}, {door}") for door, text in said.items())


def test_a_stopped_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are read back; a line that was cut off is not, nor a fault that is to be run again."""
    asked: list[tuple[int, str]] = []
    wrong = {SEED + 1}

    def outputs(self: Doors, door: str, graph: Graph, form: Form) -> list[Array] | None:
        asked.append((graph.seed, door))
        return [array + 7 * (graph.seed in wrong) for array in Judge(graph).wanted]

    monkeypatch.setattr(searches.Doors, "outputs", outputs)
    path, three = tmp_path / "verdicts.jsonl", range(SEED, SEED + 3)

    def run(again: bool = False) -> searches.Report:
        asked.clear()
        return Search(names=("c", "run"), cut=False, tell=False, verdicts=Verdicts(path), again=again).run(
            three
        )

    first = run()
    assert len(first.faults) == 2 and len(asked) == 6
    second = run()
    assert not asked and (second.faults, second.runs, second.operators) == (
        first.faults,
        first.runs,
        first.operators,
    )
    path.write_bytes(path.read_bytes()[:-20])
    assert run().graphs == 3 and {number for number, _ in asked} == {SEED + 2}
    wrong.clear()
    assert not run(again=True).faults and {number for number, _ in asked} == {SEED + 1}
    assert not run().faults and not asked
