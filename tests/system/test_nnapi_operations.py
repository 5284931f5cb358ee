"""NNAPI's operations on the RTL, and the command that runs specifications."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.prepared import prepare
from rkcosim.cli.main import app
from rkcosim.running.settings import Settings
from tests.makers.nnapi_models import F16, F32, S8, U8, codes, conv_model, naive_conv
from tests.makers.nnapi_specs import make_checkout


def rkcosim(*arguments: object) -> tuple[int, str, str]:
    """Return exit code, printed text, and the error stream."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_convolutions_on_the_rtl() -> None:
    """Every tensor equals the golden models (`checked`); the results equal plain loops."""
    machine = open_machine(Settings(check=True))
    try:
        for kind, nchw in ((U8, False), (S8, True)):
            model, x, facts = conv_model(kind, size=(2, 6, 5, 3), nchw=nchw)
            with prepare(model, machine=machine) as prepared:
                (found,) = prepared.execute([x])
                record = prepared.account.operations[0]
            expected = codes(naive_conv(facts), facts["scales"][2], facts["zeros"][2], kind)
            assert np.abs(found.astype(np.int64) - expected).max() <= 1
            assert record.place == "npu"
            assert record.cycles > 0 and record.bytes_read > 0 and record.bytes_written > 0
        for kind, relaxed in ((F16, False), (F32, True)):
            model, x, facts = conv_model(kind, relaxed=relaxed)
            with prepare(model, machine=machine) as prepared:
                (found,) = prepared.execute([x])
                assert prepared.account.operations[0].place == "npu"
            np.testing.assert_allclose(found, naive_conv(facts), atol=0.05)
    finally:
        machine.close()


def test_native_tensors_on_the_rtl() -> None:
    """The second model takes the first one's result as it is; every tensor is checked."""
    from tests.unit.test_nnapi_npu import relu

    x = np.random.default_rng(2).integers(-128, 128, (1, 3, 3, 20)).astype(np.int8)
    machine = open_machine(Settings(check=True))
    try:
        with prepare(relu(20), machine=machine) as first, prepare(relu(20), machine=machine) as second:
            (native,) = first.execute([x], native=[0])
            assert isinstance(native, NativeTensor)
            (made,) = second.execute([native])
            native.free()
            assert second.account.bytes_unconverted == native.nbytes
        np.testing.assert_array_equal(made, np.maximum(x, 1))
    finally:
        machine.close()


def test_command(tmp_path: Path) -> None:
    folder = make_checkout(tmp_path / "checkout")
    kept, document = tmp_path / "kept.jsonl", tmp_path / "specs.json"
    words = ["nnapi-specs", folder, "--seed", 1, "--resume", kept, "--json", document]
    code, text, _ = rkcosim(*words)
    assert code == 0, text
    assert "6 examples: 3 on the NPU, 2 on the host, 1 refused, 0 wrong; 3 on the RTL" in text
    found = json.loads(document.read_text())
    assert (found["examples"], found["npu"], found["wrong"], found["match"]) == (6, 3, 0, True)
    assert found["cycles"] > 0
    lines = kept.read_text().splitlines()
    assert len(lines) == 7
    kept.write_text("\n".join(lines[:4]) + "\n")  # as if it had been interrupted
    code, text, _ = rkcosim(*words)
    assert code == 0 and len(kept.read_text().splitlines()) == 7
    assert json.loads(document.read_text())["cycles"] == found["cycles"]
    code, _, error = rkcosim(*words[:3], 2, *words[4:])
    assert code == 2 and "is of another run" in error


def test_command_with_a_wrong_example(tmp_path: Path) -> None:
    folder = make_checkout(tmp_path, wrong=True)
    code, text, _ = rkcosim("nnapi-specs", folder, "--rtl-share", 0, "--seed", 1, "--only", "relu")
    assert code == 1
    assert "wrong: V1_0/relu:wrong: NPU: output 0" in text and "3 examples" in text
    code, text, _ = rkcosim("nnapi-specs", folder, "--rtl-share", 0, "--seed", 1, "--limit", 2)
    assert "2 examples" in text


@pytest.mark.parametrize("name", ["nothing", "there"])
def test_command_without_a_checkout(tmp_path: Path, name: str) -> None:
    if name == "there":
        (tmp_path / name).mkdir()
    code, _, error = rkcosim("nnapi-specs", tmp_path / name)
    assert code == 2 and "tools/test_generator/test_generator.py" in error
