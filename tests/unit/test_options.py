"""Options: names, bits, and the source of their values."""

import pytest

from rkcosim.golden.task import GoldenNpu
from rkcosim.spec.regs import options
from rkcosim.spec.regs.options import OPTION_BITS, Option, chosen_options, option_bit, options_mask

FIRST, SECOND = (Option(name, "0.0", "one", "other") for name in ("t1_first", "t2_second"))


@pytest.fixture
def two(monkeypatch):
    monkeypatch.setattr(options, "OPTIONS", (FIRST, SECOND))


def test_all_options_have_a_bit_of_their_own_and_a_rule():
    assert len({option.name for option in options.OPTIONS}) == len(options.OPTIONS) <= OPTION_BITS
    for option in options.OPTIONS:
        assert option.rule.count(".") == 2 and option.default != option.otherwise


def test_names_become_bits(two):
    assert (option_bit("t1_first"), option_bit("t2_second")) == (0, 1)
    assert options_mask(["t2_second"]) == 2 and options_mask([]) == 0


def test_an_unknown_name_lists_those_that_exist(two):
    with pytest.raises(ValueError, match=r"no option 't3'; the options are t1_first, t2_second"):
        options_mask(["t1_first", "t3"])


def test_the_environment_counts_where_nothing_is_given(two, monkeypatch):
    monkeypatch.setenv(options.VARIABLE, "t2_second, t1_first")
    assert chosen_options() == {"t1_first", "t2_second"}
    assert chosen_options([]) == frozenset()
    assert GoldenNpu(1).options == {"t1_first", "t2_second"}
    assert GoldenNpu(1, options=["t1_first"]).devices[0].options == {"t1_first"}
    monkeypatch.setenv(options.VARIABLE, "t2_secund")
    with pytest.raises(ValueError, match=r"RKCOSIM_OPTIONS: there is no option 't2_secund'"):
        chosen_options()
