"""`rkcosim` as a user runs it: results, exit codes, and one clear message for bad input."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from rkcosim import waves
from rkcosim.cli.main import app
from rkcosim.driver.core_port import Kick
from rkcosim.measure.models.summary import KEPT
from rkcosim.regcmd import decode_word, register_word
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.streams.stream import Stream
from tests.programs import needs_program

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
MODEL = DIGITS / "digits_int8.onnx"
IMAGES = DIGITS / "held_back.npz"

needs_compiler = needs_program("g++")


def rkcosim(*arguments: object) -> tuple[int, str]:
    """Return exit code and all printed text."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def drawn_stream(seed: int = 3, group: str = "pool int8") -> Stream:
    """Return a drawn task as a stream with its memory image."""
    return draw_case(group, seed, 0).stream()


def patch(stream: Stream, block: str, register: str, **fields: int) -> int:
    """Change fields of every write of a register in the stream's lists; return how many were found."""
    described = registers()[block][register]
    found = 0
    lists = stream.regions[-1].data.view("<u8")
    for place, word in enumerate(lists.tolist()):
        command = decode_word(int(word))
        if command.register == described:
            values = described.decode(command.value) | fields
            lists[place] = register_word(described, described.encode(**values))
            found += 1
    return found


# Results.


@needs_compiler
def test_digits_match_on_the_default_engine(tmp_path: Path):
    out = tmp_path / "run.json"
    code, text = rkcosim("run", MODEL, "--input", IMAGES, "--limit", 2, "--check", "--json", out)
    assert code == 0, text
    assert "MATCH" in text and "published boards took" in text
    data = json.loads(out.read_text())
    assert data["verdict"]["match"] is True and data["board"]
    assert data["images"] == 2 and data["geometry"] == "rk3588" and data["cycles"] > 0
    assert {"name", "op", "tasks", "cycles", "macs", "utilisation", "formula_cycles"} <= set(
        data["layers"][0]
    )
    assert data["outputs"][0]["top1"] == data["predictions"][-1]
    assert data["tensors_kept"] is True and KEPT in " ".join(text.split())
    code, text = rkcosim("run", MODEL, "--input", IMAGES, "--limit", 1, "--json", out)
    assert code == 0 and KEPT not in " ".join(text.split())
    assert json.loads(out.read_text())["tensors_kept"] is False


def test_random_input_on_the_golden_engine():
    code, text = rkcosim("run", MODEL, "--engine", "golden", "--check", "--seed", 4)
    assert code == 0, text


@pytest.mark.parametrize("engine", ["golden", pytest.param("verilator", marks=needs_compiler)])
def test_example_stream(tmp_path: Path, engine: str):
    out = tmp_path / "out.json"
    example = ROOT / "examples" / "streams" / "pool.json"
    code, text = rkcosim("regcmd", "run", example, "--check", "--engine", engine, "--json", out)
    assert code == 0, text
    assert "match: " in text
    assert json.loads(out.read_text())["verdict"]["match"] is True


@needs_compiler
def test_trace_shows_the_interrupt(tmp_path: Path):
    example = ROOT / "examples" / "streams" / "pool.json"
    out, wave = tmp_path / "out.json", tmp_path / "build" / "pool.vcd"
    code, text = rkcosim("regcmd", "run", example, "--trace", wave, "--json", out)
    assert code == 0, text
    names = [line.split()[4] for line in wave.read_text().splitlines() if line.lstrip().startswith("$var")]
    assert len(names) > 1000
    assert not [name for name in names if set(name) & set("$:[]")], "viewers cannot read such names"
    trace = waves.open(wave)
    (risen,) = trace.rises("core0.irq")
    (start,) = trace.rises("core0.PPU.registers.control.start")
    (done,) = trace.rises("core0.PPU.registers.control.done")
    writes = trace.rises("core0.axi.awvalid")
    assert start < writes[0] <= writes[-1] < done < risen
    # The kick's cycles count from the op-enable access, which ends a few cycles before its own start.
    assert risen - start < json.loads(out.read_text())["cycles"] <= risen


def test_golden_engine_writes_no_waveform(tmp_path: Path):
    example = ROOT / "examples" / "streams" / "pool.json"
    wave = tmp_path / "pool.vcd"
    code, text = rkcosim("regcmd", "run", example, "--engine", "golden", "--trace", wave)
    assert code == 2 and "waveform" in text and not wave.exists()


def test_example_stream_is_what_its_script_makes():
    # By its path: packages of others bring a module `examples` too.
    pool_words = runpy.run_path(str(ROOT / "examples" / "streams" / "make_pool.py"))["pool_words"]
    stream = Stream.load(ROOT / "examples" / "streams" / "pool.json")
    assert stream.regions[0].data.view("<u8").tolist() == pool_words()


def test_dump_and_asm_are_inverse(tmp_path: Path):
    words = tmp_path / "words.bin"
    words.write_bytes(drawn_stream(5, "conv int8").regions[-1].data.tobytes())
    listing = tmp_path / "words.json"
    assert rkcosim("regcmd", "dump", words, "-o", tmp_path / "words.txt", "--json", listing)[0] == 0
    assert any(item["register"] == "CONV_CON1" for item in json.loads(listing.read_text())["words"])
    assert "CNA.CONV_CON1" in (tmp_path / "words.txt").read_text()
    assert rkcosim("regcmd", "asm", tmp_path / "words.txt", "-o", tmp_path / "again.bin")[0] == 0
    assert (tmp_path / "again.bin").read_bytes() == words.read_bytes()


# Bad models and inputs: exit code 2.


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_truncated_model(tmp_path: Path, share: float):
    data = MODEL.read_bytes()
    file = tmp_path / "cut.onnx"
    file.write_bytes(data[: int(len(data) * share)])
    code, text = rkcosim("run", file, "--engine", "golden")
    assert code == 2, text
    assert text.startswith("rkcosim: ") and len(text.strip().splitlines()) == 1


def test_unsupported_operators_are_all_named(tmp_path: Path):
    model = onnx.load(MODEL)
    output = model.graph.output[0].name
    model.graph.node.append(helper.make_node("Sin", [output], ["sine"], name="the_sine"))
    model.graph.node.append(helper.make_node("Cosh", ["sine"], ["cosine"], name="the_cosine"))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("cosine", TensorProto.FLOAT, [1, 10]))
    file = tmp_path / "odd.onnx"
    onnx.save(model, file)
    code, text = rkcosim("run", file, "--engine", "golden", "--no-fallback")
    assert code == 2, text
    assert "the_sine" in text and "the_cosine" in text and "Sin" in text


def test_wrong_input_shape(tmp_path: Path):
    file = tmp_path / "x.npy"
    np.save(file, np.zeros((1, 1, 15, 16), np.float32))
    code, text = rkcosim("run", MODEL, "--input", file, "--engine", "golden")
    assert code == 2, text
    assert "[1, 1, 15, 16]" in text and "[1, 1, 16, 16]" in text


def test_wrong_input_type(tmp_path: Path):
    file = tmp_path / "x.npy"
    np.save(file, np.full((1, 1, 16, 16), "a"))
    code, text = rkcosim("run", MODEL, "--input", file, "--engine", "golden")
    assert code == 2, text
    assert "not numbers" in text


def test_missing_files_and_unknown_engine(tmp_path: Path):
    assert rkcosim("run", tmp_path / "none.onnx")[0] == 2
    assert rkcosim("run", MODEL, "--input", tmp_path / "none.npz", "--engine", "golden")[0] == 2
    code, text = rkcosim("run", MODEL, "--engine", "abacus")
    assert code == 2 and "abacus" in text


def test_damaged_stream_file(tmp_path: Path):
    file = tmp_path / "stream.json"
    drawn_stream().save(file)
    file.write_text(file.read_text()[:200])
    code, text = rkcosim("regcmd", "run", file)
    assert code == 2 and "stream" in text


def test_bad_text_names_the_line(tmp_path: Path):
    file = tmp_path / "words.txt"
    file.write_text("CNA.CONV_CON1 CONV_MODE=0\nCNA.CONV_CON9 X=1\n")
    code, text = rkcosim("regcmd", "asm", file, "-o", tmp_path / "o.bin")
    assert code == 2 and "CONV_CON9" in text and "2" in text
    assert not (tmp_path / "o.bin").exists()


# Bad streams: exit code 3, and the message has the error and its place.


@needs_compiler
def test_command_list_that_ends_early(tmp_path: Path):
    stream = drawn_stream(7)
    kick = stream.kick.__dict__ | {"amount": 2, "tasks": 1}
    Stream(Kick(**kick), stream.regions).save(tmp_path / "s.json")
    code, text = rkcosim("regcmd", "run", tmp_path / "s.json", "--max-cycles", 20000)
    assert code == 3, text
    assert "BAD_COMMAND" in text or "op-enable" in text


@needs_compiler
def test_bank_sum_over_twelve(tmp_path: Path):
    stream = drawn_stream(8, "conv int8")
    assert patch(stream, "CNA", "CBUF_CON0", DATA_BANK=9, WEIGHT_BANK=9)
    stream.save(tmp_path / "s.json")
    code, text = rkcosim("regcmd", "run", tmp_path / "s.json", "--max-cycles", 200000)
    assert code == 3, text
    assert "CBUF_CON0" in text


@needs_compiler
def test_feature_address_outside_every_buffer(tmp_path: Path):
    stream = drawn_stream(9, "conv int8")
    assert patch(stream, "CNA", "FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=0x7000_0000)
    stream.save(tmp_path / "s.json")
    code, text = rkcosim("regcmd", "run", tmp_path / "s.json", "--max-cycles", 200000)
    assert code == 3, text
    assert "0x7000" in text or "FEATURE" in text
