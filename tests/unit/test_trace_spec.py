"""Trace settings, read from text."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.spec.regs import registers
from rkcosim.waves.spec import BEFORE, SpecError, TraceSpec, When, parse_size


def test_moments():
    assert When.parse("1200") == When.parse(1200) and When.parse("1_200").cycle == 1200
    assert (When.parse("task:7").task, When.parse("task:7").job) == (7, None)
    assert (When.parse("task:7@2").task, When.parse("task:7@2").job) == (7, 2)
    assert When.parse("layer:conv:1").layer == "conv:1"
    assert When.parse("error").keeps_before and not When.parse("task:1").keeps_before


def test_moments_of_register_writes():
    register = registers()["CNA"]["CONV_CON1"]
    plain = When.parse("write:CNA.CONV_CON1")
    assert (plain.offset, plain.mask) == (register.offset, 0)
    whole = When.parse("write:CNA.CONV_CON1=0x120")
    assert (whole.mask, whole.value) == (0xFFFFFFFF, 0x120)
    field = register.fields["PROC_PRECISION"]
    one = When.parse("write:CNA.CONV_CON1.PROC_PRECISION=FP16")
    assert one.mask == field.mask and field.get(one.value) == field.enum["FP16"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "use a cycle, task:N"),
        ("task:x", "task:N or task:N@JOB"),
        ("layer:", "needs the name of a layer"),
        ("write:CNA", "BLOCK.REGISTER"),
        ("write:CNE.CONV_CON1", "no 'CNE'; it has PC, CNA"),
        ("write:CNA.CONV_CON9", "CNA has no 'CONV_CON9'"),
        ("write:CNA.CONV_CON1.PRECISION=1", "no 'PRECISION'; it has"),
        ("write:CNA.CONV_CON1.PROC_PRECISION", "a field needs a value"),
        ("write:CNA.CONV_CON1.PROC_PRECISION=99", "99 is outside"),
        ("write:CNA.CONV_CON1.PROC_PRECISION=INT9", "known: INT8"),
        ("write:CNA.CONV_CON1=INT8", "not a 32-bit number"),
    ],
)
def test_errors_name_what_is_wrong(text: str, said: str):
    with pytest.raises(SpecError) as caught:
        When.parse(text)
    assert said in str(caught.value) and text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scope", "core0.CNA"], "--scope needs --trace FILE"),
        (["--trace", "w.vcd", "--from", "soon"], "'soon' is not a moment of a run"),
        (["--trace", "w.vcd", "--format", "lxt"], "vcd or fst, not 'lxt'"),
        (["--trace", "w.vcd", "--trace-limit", "much"], "'much' is not a size"),
        (["--trace", "w.vcd", "--from", "mismatch"], "--from mismatch needs --check"),
        (["--trace", "w.vcd", "--engine", "golden"], "writes no waveforms; a waveform needs one of"),
    ],
)
def test_options_that_make_no_sense(options: list[str], said: str, tmp_path: Path, monkeypatch):
    stream = Path(__file__).resolve().parents[2] / "examples" / "streams" / "pool.json"
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["regcmd", "run", str(stream), *options])
    assert result.exit_code == 2 and said in result.output
    assert not list(tmp_path.iterdir())


def test_sizes():
    assert [parse_size(t) for t in ("5000", "64k", "1.5M", "2GB")] == [5000, 64000, 1_500_000, 2 * 10**9]
    assert (parse_size("8Ki"), parse_size("8KiB"), parse_size("2Mi")) == (8192, 8192, 2 << 20)
    for text in ("", "M", "-5M", "12X", "100"):
        with pytest.raises(SpecError):
            parse_size(text)


def test_what_follows_from_what():
    spec = TraceSpec(Path("a.fst"), scopes=["core0.CNA"], start=When.parse("error"))
    assert (spec.format, spec.before, spec.scopes) == ("fst", BEFORE, ("core0.CNA",))
    assert TraceSpec.of("x.vcd") == TraceSpec(Path("x.vcd")) and TraceSpec.of(spec) is spec
    assert TraceSpec(Path("x.vcd"), "fst").format == "fst"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "lxt"}, "vcd or fst"),
        ({"before": 50}, "give --from"),
        ({"start": When.parse(200), "stop": When.parse(200)}, "must be after"),
        ({"stop": When.parse("mismatch")}, "not end there"),
        ({"limit": 10}, "at least 4096"),
        ({"start": When.parse("error"), "before": -1}, "not -1"),
    ],
)
def test_what_does_not_fit_together(options: dict, said: str):
    with pytest.raises(SpecError, match=said):
        TraceSpec(Path("x.vcd"), **options)
