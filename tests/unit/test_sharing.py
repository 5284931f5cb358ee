"""Which layers several cores share, so that an inference with its submits takes the shortest time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from rkcosim.compiler import ModelError, compile_model
from rkcosim.compiler.sharing import DIVIDE_VARIABLE, steps_to_share, submit_cycles
from tests import seeds
from tests.unit.test_shared_weights import two_convolutions


def time_of(savings: Sequence[int | None], divided: Sequence[int], submit: int) -> int:
    """Return the time of steps beside that of one core: a submit for each divided step and each chain."""
    kinds = ["host" if saving is None else "chain" for saving in savings]
    for number in divided:
        kinds[number] = f"divided {number}"
    submits = sum(kind != "host" for kind, _ in itertools.groupby(kinds))
    return submits * submit - sum(savings[number] or 0 for number in divided)


def test_no_other_choice_of_layers_takes_less_time() -> None:
    rng = random.Random(seeds.number())
    for _ in range(60):
        savings = [rng.choice((None, 0, -5, *range(1, 60, 7))) for _ in range(rng.randrange(9))]
        submit = rng.choice((0, 10, 22))
        able = [number for number, saving in enumerate(savings) if (saving or 0) > 0]
        choices = [c for count in range(len(able) + 1) for c in itertools.combinations(able, count)]
        found = steps_to_share(savings, submit)
        assert found in choices
        assert time_of(savings, found, submit) == min(time_of(savings, c, submit) for c in choices)


@pytest.mark.parametrize(
    ("savings", "divided"),
    [
        ([25], (0,)),  # a layer of its own is one submit in any case
        ([25, 0], (0,)),
        ([15, 0], ()),
        ([0, 35, 0], ()),  # it divides a chain into two
        ([0, 45, 0], (1,)),
        ([0, 32, 32, 0], (1, 2)),  # both together add three submits
        ([None, 5, None], (1,)),
    ],
)
def test_what_a_division_has_to_save(savings: list[int | None], divided: tuple[int, ...]) -> None:
    assert steps_to_share(savings, 20) == divided


def test_the_variable_leaves_the_time_of_submits_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = two_convolutions((14, 12))
    plan = compile_model(model, cores=3).plan
    assert submit_cycles() == 22_500 and plan.jobs == 1 and "22.5 us of a further submit" in plan.on_one_core
    assert compile_model(model).plan.on_one_core == ""
    monkeypatch.setenv(DIVIDE_VARIABLE, "cycles")
    plan = compile_model(model, cores=3).plan
    assert submit_cycles() == 0 and any(len(job.parts) == 3 for job in plan.segments())
    assert plan.on_one_core == ""
    monkeypatch.setenv(DIVIDE_VARIABLE, "always")
    with pytest.raises(ModelError, match='RKCOSIM_DIVIDE is "time" or "cycles", not "always"'):
        compile_model(model, cores=3)
