"""Exported Verilog in other tools: it has the meaning of its source, and no tool reports a problem."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil

from rkcosim.export import export_verilog
from rkcosim.export.designs import EXPORTABLE
from rkcosim.export.folder import WAIVERS, export_folder
from rkcosim.spec.config import RK3588, SMALL, NpuConfig
from tests import seeds, verilog_tools
from tests.extent import extent
from tests.programs import require_program
from tests.verilog_tools import icarus, lint, needs_icarus, twin_bench, yosys

ROOT = Path(__file__).parents[2]
QUICK = tuple(
    key for key, item in EXPORTABLE.items() if key not in ("core", "soc", "array_cell", "core_block")
)
"""Designs that are written in seconds; the others contain the array cell."""

EXPORTED = extent(tuple(key for key in QUICK if key not in ("dpu", "ppu")), QUICK)
"""Designs in the folder of most tests; all tests of the other two are heavy."""

TWINS = ("axil_slave", "cbuf", "csc", "ddma", "dpu_rdma", "interrupt", "pc", "ppu_rdma", "cna_registers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The designs `EXPORTED`, in the small geometry."""
    folder = tmp_path_factory.mktemp("verilog")
    export_folder(folder, EXPORTED, geometry_name="small")
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Core and SoC in the small geometry."""
    folder = tmp_path_factory.mktemp("whole")
    export_folder(folder, ["soc"], geometry_name="small")
    return folder


def _by_yosys(key: str, folder: Path, config: NpuConfig = SMALL) -> None:
    """Write `folder/gold.v`: the same design after Yosys, named `gold`."""
    item = EXPORTABLE[key]
    flat = item.flattened(config, False)
    text = rtlil.convert(flat, name="gold", ports=flat.directed(), emit_src=False)
    # Read ports start at 0 in Amaranth; the RTLIL leaves that open for other tools.
    text = re.sub(r"(INIT_VALUE \d+')(x+)", lambda found: found[1] + "0" * len(found[2]), text)
    (folder / "gold.il").write_text(text)
    script = ["read_rtlil gold.il", "proc", "memory_collect", "write_verilog -noattr gold.v"]
    (folder / "gold.ys").write_text("\n".join([*script, ""]))
    yosys().run(["gold.ys"], folder)


def _compare_twins(key: str, folder: Path, file: Path, cycles: int) -> None:
    seed = seeds.seed(f"{__name__} {key}", 31)
    print(f"seed {seed}")
    _by_yosys(key, folder)
    bench = twin_bench("gold", EXPORTABLE[key].module, EXPORTABLE[key].ports(SMALL), cycles, seed)
    (folder / "twins.v").write_text(bench)
    assert "compared, 0 errors" in icarus_of_both(folder, file), "see above"


def icarus_of_both(folder: Path, file: Path) -> str:
    """Run the twins, without the warnings that Yosys's Verilog would cause."""
    command = ["iverilog", "-g2012", "-o", "twins.vvp", "twins.v", "gold.v", str(file)]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["vvp", "-n", "twins.vvp"], cwd=folder, capture_output=True, text=True, check=True)
    print(done.stdout)
    return done.stdout


@needs_icarus
@pytest.mark.parametrize("key", TWINS)
def test_same_outputs_as_through_yosys(key, folder, tmp_path):
    _compare_twins(key, tmp_path, folder / f"{EXPORTABLE[key].module}.v", 400)


@needs_icarus
@pytest.mark.heavy
@pytest.mark.parametrize(
    "key", [key for key in EXPORTABLE if key not in (*TWINS, "soc", "core", "core_block")]
)
def test_same_outputs_as_through_yosys_of_all(key, tmp_path):
    _compare_twins(key, tmp_path, export_verilog(key, tmp_path, config=SMALL), 1000)


@needs_icarus
def test_a_changed_operator_is_noticed(folder, tmp_path):
    """A check of the comparison: an inserted error must be detected."""
    text = (folder / "npu_cbuf.v").read_text()
    broken = text.replace(" & ", " | ", 1)
    assert broken != text
    (tmp_path / "npu_cbuf.v").write_text(broken)
    _by_yosys("cbuf", tmp_path)
    (tmp_path / "twins.v").write_text(twin_bench("gold", "npu_cbuf", EXPORTABLE["cbuf"].ports(SMALL), 400, 1))
    assert re.search("compared, [1-9]", icarus_of_both(tmp_path, tmp_path / "npu_cbuf.v"))


@pytest.mark.parametrize("key", QUICK)
def test_lint_is_clean(key, folder):
    item = EXPORTABLE[key]
    assert lint(folder, item.module, [WAIVERS, f"{item.module}.v"]) == ""


def test_lint_finds_something_without_the_waivers(folder):
    assert "DECLFILENAME" in lint(folder, "npu_cna", ["npu_cna.v"])
    text = (folder / WAIVERS).read_text()
    waived = re.findall(r"^lint_off .*$", text, re.M)
    assert len(waived) == 10, "each with its reason in the line before"
    for line in waived:
        assert text.split(line)[0].rstrip().rsplit("\n", 1)[-1].startswith("// ")


def test_lint_of_core_and_soc_is_clean(whole):
    assert lint(whole, "npu_soc", [WAIVERS, "npu_core.v", "npu_soc.v"]) == ""


@pytest.mark.heavy
def test_lint_of_everything_at_full_geometry_is_clean(tmp_path):
    written = export_folder(tmp_path)
    assert [one.key for one in written] == list(EXPORTABLE)
    assert next(one for one in written if one.key == "core").seconds < 60
    for one in written:
        files = [WAIVERS, *(f"{EXPORTABLE[key].module}.v" for key in EXPORTABLE[one.key].needs), one.file]
        assert lint(tmp_path, one.module, files) == ""


@pytest.mark.heavy  # the lint of a whole core, in a second form
def test_cell_in_cpp_fits_the_core_without(tmp_path):
    """The RTL cell and the C++ cell are both modules for the instance that --external-cell leaves open."""
    export_folder(tmp_path, ["core_block"], geometry_name="small", external_cell=True)
    cell = ROOT / "cosim" / "engines" / "harness" / "cell" / "npu_array_cell_cpp.sv"
    found = lint(tmp_path, "npu_core_block", [WAIVERS, "npu_core_block.v", str(cell)])
    assert not [line for line in found.splitlines() if line.startswith("%") and "npu_core_block" in line], (
        found
    )


@pytest.mark.parametrize("key", ["pc", "cna", "ppu_rdma_registers"])
def test_yosys_reads_it(key, folder, tmp_path):
    name = EXPORTABLE[key].module
    script = [f"read_verilog {folder / name}.v", f"hierarchy -check -top {name}", "proc", "check -assert"]
    (tmp_path / "read.ys").write_text("\n".join([*script, ""]))
    yosys().run(["read.ys"], tmp_path)


@pytest.mark.heavy  # minutes, most of them for the array cell
def test_yosys_reads_core_and_soc(whole, tmp_path):
    script = [f"read_verilog {whole}/npu_core.v {whole}/npu_soc.v", "hierarchy -check -top npu_soc"]
    (tmp_path / "read.ys").write_text("\n".join([*script, ""]))
    yosys().run(["read.ys"], tmp_path)


@needs_icarus
@pytest.mark.parametrize("key", QUICK)
def test_out_of_reset_nothing_is_unknown(key, folder):
    name = EXPORTABLE[key].module
    said = icarus(folder, [f"tb_{name}.v", f"{name}.v"], f"tb_{name}")
    assert f"PASS {name}" in said, said


@needs_icarus
@pytest.mark.parametrize("name", ["npu_core", pytest.param("npu_soc", marks=pytest.mark.heavy)])
def test_registers_answer(name, whole):
    files = ["npu_core.v"] if name == "npu_soc" else []
    said = icarus(whole, [f"tb_{name}.v", f"{name}.v", *files], f"tb_{name}")
    assert f"PASS {name}" in said, said


@needs_icarus
def test_a_bench_can_fail(folder, tmp_path):
    text = (folder / "npu_interrupt.v").read_text()
    shutil.copy(folder / "tb_npu_interrupt.v", tmp_path)
    (tmp_path / "npu_interrupt.v").write_text(
        text.replace("assign port_ready = ", "assign port_ready = 1'bx & ")
    )
    said = icarus(tmp_path, ["tb_npu_interrupt.v", "npu_interrupt.v"], "tb_npu_interrupt")
    assert "port_ready is unknown" in said and "PASS" not in said


class TestFusesoc:
    """The .core files, read by FuseSoC."""

    @pytest.fixture
    def fusesoc(self, tmp_path, monkeypatch):
        if shutil.which("fusesoc") is None and not (Path(sys.executable).parent / "fusesoc").is_file():
            pytest.skip("FuseSoC is not installed (pip install fusesoc)")
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            monkeypatch.setenv(name, str(tmp_path / name))
        program = shutil.which("fusesoc") or str(Path(sys.executable).parent / "fusesoc")

        def call(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
            command = [program, "--cores-root", str(root), *words]
            return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

        return call

    def test_all_are_listed(self, fusesoc, folder):
        listed = fusesoc(folder, "core", "list").stdout
        for key in EXPORTED:
            assert f"rkcosim:npu:{EXPORTABLE[key].module}:" in listed

    def test_shown_with_their_targets(self, fusesoc, folder):
        done = fusesoc(folder, "core", "show", "rkcosim:npu:npu_dpu_rdma")
        assert done.returncode == 0, done.stderr
        assert re.search(r"^lint +:", done.stdout, re.M) and re.search(r"^sim +:", done.stdout, re.M)

    def test_lint_by_edalize(self, fusesoc, folder, tmp_path, monkeypatch):
        require_program("make")
        verilog_tools.verilator_on_path(tmp_path, monkeypatch)
        done = fusesoc(folder, "run", "--target", "lint", "rkcosim:npu:npu_ppu_rdma")
        assert done.returncode == 0, done.stderr + done.stdout
        broken = tmp_path / "broken"
        shutil.copytree(folder, broken)
        text = (broken / "npu_ppu_rdma.v").read_text()
        (broken / "npu_ppu_rdma.v").write_text(
            text.replace("endmodule", "  wire [3:0] open_one;\n  wire two = ^open_one;\nendmodule", 1)
        )
        done = fusesoc(broken, "run", "--target", "lint", "rkcosim:npu:npu_ppu_rdma")
        assert done.returncode != 0, "a wire without a driver passed the lint"

    @needs_icarus
    def test_simulation_with_icarus(self, fusesoc, folder):
        done = fusesoc(folder, "run", "--target", "sim", "rkcosim:npu:npu_cbuf")
        assert done.returncode == 0, done.stderr + done.stdout
        assert "PASS npu_cbuf" in done.stdout + done.stderr


def test_both_geometries_differ_only_inside(tmp_path):
    for config in (SMALL, RK3588):
        export_verilog("cbuf", tmp_path / config.name, config=config)
    small, full = ((tmp_path / name / "npu_cbuf.v").read_text() for name in ("small", "rk3588"))
    assert small != full
    heads = [text[text.index("module npu_cbuf(") : text.index(");")] for text in (small, full)]
    assert heads[0] == heads[1]
