"""Exported designs with the tools of others, by the lists and the Makefile that are written with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rkcosim.export.folder import export_folder
from tests.programs import needs_program
from tests.system.pages import blocks_of
from tests.verilog_tools import verilator

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pyuvm" / "registers_bench.py"


def environment() -> dict[str, str]:
    """An environment in which the programs of this installation are on the path, but no Verilator."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def run(*command: str, folder: Path, seconds: float = 1000) -> subprocess.CompletedProcess[str]:
    env = environment()
    env.pop("PYTEST_CURRENT_TEST", None)  # cocotb's runner behaves in another way under pytest
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )


def rkcosim(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "rkcosim.cli.main", *words, folder=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    export_folder(folder, ["interrupt"], geometry_name="small")
    return folder


@needs_program("iverilog", "vvp")
def test_icarus(folder):
    done = run("make", "icarus", folder=folder)
    assert done.returncode == 0 and "PASS npu_interrupt" in done.stdout, done.stdout + done.stderr


@needs_program("iverilog", "vvp")
def test_cocotb_with_icarus(folder):
    done = run("make", "cocotb", "SIM=icarus", folder=folder)
    assert done.returncode == 0 and "PASS=1 FAIL=0" in done.stdout + done.stderr, done.stdout + done.stderr


@needs_program("iverilog", "vvp")
def test_a_fault_makes_each_bench_fail(folder, tmp_path):
    """An output that is never driven is unknown."""
    for path in folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "npu_interrupt.v").read_text()
    broken = text.replace("assign irq =", "wire gone; assign gone =").replace("irq <=", "gone <=", 1)
    broken = text.replace("  output irq;", "  output irq_gone; wire irq_gone;") if broken == text else broken
    assert broken != text
    (tmp_path / "npu_interrupt.v").write_text(broken)
    for words in (("icarus",), ("cocotb", "SIM=icarus")):
        done = run("make", *words, folder=tmp_path)
        assert done.returncode != 0, (words, done.stdout)


@needs_program("yosys")
def test_yosys(folder):
    done = run("make", "yosys", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_program("iverilog", "vvp")
def test_fusesoc(folder):
    done = run("make", "fusesoc", folder=folder)
    assert done.returncode == 0 and "PASS npu_interrupt" in done.stdout + done.stderr, done.stderr


def test_verilator_lint_by_the_command(folder):
    """The page's command, with nothing but this package on the path."""
    verilator()
    words = ("--lint-only", "-Wall", "npu.vlt", "npu_interrupt.v", "--top-module", "npu_interrupt")
    done = rkcosim("verilator", *words, folder=folder)
    assert done.returncode == 0 and "%" not in done.stdout + done.stderr, done.stdout + done.stderr
    done = rkcosim("verilator", "--lint-only", "nothing.v", folder=folder)
    assert done.returncode == 1 and "Cannot find file containing module" in done.stderr
    words = ("--cores-root", ".", "run", "--target", "lint", "rkcosim:npu:npu_interrupt")
    done = rkcosim("verilator", "--exec", "fusesoc", *words, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_find_verilator(folder):
    found = verilator()
    done = rkcosim("verilator", "--exec", "verilator", "--getenv", "VERILATOR_ROOT", folder=folder)
    assert done.returncode == 0
    assert found.include is None or done.stdout.strip() == str(found.include.parent)
    assert rkcosim("verilator", "--exec", "sh", "-c", "exit 7", folder=folder).returncode == 7
    done = rkcosim("verilator", "--exec", "--", "sh", "-c", "kill -9 $$", folder=folder)
    assert done.returncode == 137
    done = rkcosim("verilator", "--exec", folder=folder)
    assert done.returncode == 2 and "--exec needs a program" in done.stderr
    done = rkcosim("verilator", "--exec", "no-such-program", folder=folder)
    assert done.returncode == 2 and "no program 'no-such-program' on the path" in done.stderr
    assert "Usage: rkcosim verilator" in rkcosim("verilator", "--help", folder=folder).stdout


def test_verilator_and_cocotb_build_and_run(folder):
    """A program from precompiled headers and with delays, which the wheel's makefiles alone cannot build."""
    verilator()
    done = run("make", "verilator", folder=folder)
    assert done.returncode == 0 and "PASS npu_interrupt" in done.stdout, done.stdout + done.stderr
    done = run("make", "fusesoc", "TARGET=sim_verilator", folder=folder)
    assert done.returncode == 0 and "PASS npu_interrupt" in done.stdout, done.stdout + done.stderr
    done = run("make", "cocotb", folder=folder)
    assert done.returncode == 0 and "PASS=1 FAIL=0" in done.stdout + done.stderr, done.stdout + done.stderr


def _blocks(page: str, language: str) -> list[str]:
    """The blocks of a page that this file runs."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    mine = f"run by {Path(__file__).relative_to(ROOT).as_posix()}"
    return [b.text for b in blocks_of(text) if b.language == language and b.remark == mine]


def _commands(page: str, folder: Path, number: int = 0) -> str:
    """Run each command of a block; return what all of them print. The core is written once."""
    said = ""
    for line in _blocks(page, "sh")[number].splitlines():
        command = line.partition("  #")[0].strip()
        if command == "cd DIR":
            folder = folder / "DIR"
        elif not (command.startswith("rkcosim verilog -o DIR") and (folder / "DIR").exists()):
            done = run("bash", "-c", command, folder=folder, seconds=1500)
            said += done.stdout + done.stderr
            assert done.returncode == 0, f"{command}\n{(done.stdout + done.stderr)[-3000:]}"
    return said


@needs_program("iverilog", "vvp", "yosys")
@pytest.mark.timeout(6000)
def test_the_commands_of_the_pages_on_the_core(tmp_path):
    """Each command of verilog.md, cocotb.md and register_tools.md, and benches with a fault."""
    verilator()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = _commands("verilog.md", tmp_path)
    assert said.count("PASS npu_core") == 3 and "PASS=2 FAIL=0" in said
    said = _commands("verilog.md", tmp_path / "DIR", 1)
    assert said.count("PASS npu_core") == 1 and "PASS=2 FAIL=0" in said

    (bench,) = _blocks("cocotb.md", "python")
    (tmp_path / "own_bench.py").write_text(bench)
    assert _commands("cocotb.md", tmp_path).count("PASS=1 FAIL=0") == 2
    assert bench.count("4001000000116024") == 1
    (tmp_path / "own_bench.py").write_text(bench.replace("4001000000116024", "4001000000126024"))
    done = run(sys.executable, "own_bench.py", "DIR", "icarus", folder=tmp_path)
    assert done.returncode == 1, "the minimum instead of the maximum"

    said = _commands("register_tools.md", tmp_path)
    assert "PASS=2 FAIL=0" in said and "BitBash: 3782 checked" in said and "HwReset: 175 checked" in said
    model = tmp_path / "DIR" / "npu_registers.py"
    text = model.read_text()
    wrong = text.replace('32, 0, "RO", False, 0x46495245', '32, 0, "RO", False, 0x46495246')
    assert wrong != text
    model.write_text(wrong)
    words = ("--exec", sys.executable, str(EXAMPLE), "DIR", "verilator")
    done = rkcosim("verilator", *words, folder=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "npu.PC.VERSION is 0x46495245, the model has 0x46495246" in said
