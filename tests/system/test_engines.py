"""All engines give the same cycles, memory and logs for the same design and stimulus; edge cases."""

from __future__ import annotations

import builtins
import errno
import fcntl
import gc
import io
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from rkcosim.engines import (
    BuildError,
    BusError,
    DiagnosticError,
    EngineError,
    open_engine,
    toolchain,
)
from rkcosim.engines import cache as cache_module
from rkcosim.waves.backends import vcd_parser
from tests.extent import extent
from tests.system import toy_core as toy
from tests.system.toy_core import CROWDED, TARGET, open_toy, start
from tests.unit.test_shared_memory import address_space

ENGINES = ["verilator", "cxxrtl", "amaranth"]


def story(name, *, cores=3, sleep=True):
    """Start cores at different times, with idle time, a reset and a fault; return everything visible."""
    with open_toy(name, cores=cores, dram=CROWDED, on_diagnostic="go on") as engine:
        engine.may_sleep(sleep)
        seen = []
        for core in range(cores):
            start(engine, core, 6 + core, 16 - core)
            engine.run(37)
        mask = (1 << cores) - 1
        while mask:
            high = engine.run_until_irq(mask, 20000)
            seen.append((engine.cycle, high))
            assert high, engine.block_state(0)
            mask &= ~high
        seen += [engine.read32(core, toy.SUM) for core in range(cores)]
        engine.run(100_000 if sleep else 500)
        engine.run(0 if sleep else 99_500)
        start(engine, 0, 20)
        engine.run(90)
        engine.reset(1)
        start(engine, 0, 1, 1, source=0x7000_0000, target=TARGET + 0xF000)
        seen.append(engine.run_until_irq(1, 5000))
        seen.append(engine.read32(0, toy.STATUS))
        engine.write32(0, 0xE100, 77)
        seen.append(engine.cycle)
        memory = engine.memory.read(TARGET, 0x10000)
        logs = [engine.task_log(), engine.diagnostics(), engine.faults()]
        counters = [engine.counters(core) for core in range(cores)]
        facts = [(c.events, c.bytes_read, c.bytes_written, c.read_requests) for c in counters]
        return seen, memory, logs, facts


def test_same_story_in_every_engine():
    expected = story("verilator")
    seen, memory, logs, _ = expected
    assert [len(log) for log in logs] == [5, 1, 1]
    source = np.random.default_rng(5).integers(0, 256, 0x10000, dtype=np.uint8).tobytes()
    assert memory[: 512 * 6] == source[: 512 * 6]
    assert seen[-2] == 2  # the error bit
    assert story("cxxrtl") == expected


def test_same_story_in_amaranth():
    # One core and less waiting: Amaranth's simulator is slow.
    def short(name):
        with open_toy(name, cores=2, dram=CROWDED) as engine:
            for core in range(2):
                start(engine, core, 5 + core)
            first = engine.run_until_irq(3, 5000)
            second = engine.run_until_irq(3 & ~first, 5000)
            sums = [engine.read32(core, toy.SUM) for core in range(2)]
            target = engine.memory.read(TARGET, 0x10000)
            return engine.cycle, first, second, sums, target, engine.task_log(), engine.counters(1)

    assert short("amaranth") == short("verilator")


@pytest.mark.parametrize("name", ["verilator", "cxxrtl"])
def test_sleeping_changes_nothing(name):
    awake = story(name, cores=2, sleep=False)
    assert story(name, cores=2) == awake


def test_idle_core_is_not_evaluated_and_the_clock_jumps():
    with open_toy("verilator") as engine:
        assert engine.run_until_irq(7, 6_000_000_000) == 0
        assert engine.cycle > 6_000_000_000
        assert engine.counters(0).evaluated < 100
        start(engine, 0, 8)
        assert engine.run_until_irq(1, 10000) == 1
        assert engine.counters(0).evaluated > 500
        assert engine.counters(2).evaluated < 100


def test_run_until_irq_returns_at_once_and_keeps_the_bound():
    with open_toy("verilator", cores=1) as engine:
        start(engine, 0, 4)
        before = engine.cycle
        assert engine.run_until_irq(1, 50) == 0
        assert engine.cycle == before + 50
        assert engine.run_until_irq(1, 10000) == 1
        now = engine.cycle
        assert engine.run_until_irq(1, 10000) == 1
        assert engine.cycle == now


def test_bad_access_names_the_register():
    with open_toy("verilator", cores=2) as engine:
        with pytest.raises(BusError, match=r"read of offset 0xe01c .*core 1 .*SLVERR"):
            engine.read32(1, toy.SLOW)
        with pytest.raises(ValueError, match="core must be"):
            engine.read32(2, 0)
        with pytest.raises(ValueError, match="multiple of 4"):
            engine.write32(0, 0x10000, 0)
    with pytest.raises(EngineError, match="closed"):
        engine.read32(0, toy.STATUS)


def test_diagnostics_stop_or_go_on():
    with open_toy("verilator", cores=1) as engine:
        with pytest.raises(DiagnosticError, match="without a register") as caught:
            engine.write32(0, 0xE100, 0x55)
            engine.run(20)
        assert caught.value.diagnostics[0].value == 0x55
        engine.run(10)  # reported once
        engine.on_diagnostic = "go on"
        engine.write32(0, 0xE104, 1)
        engine.run(10)
        assert [d.code for d in engine.diagnostics()] == ["UNKNOWN_WRITE", "UNKNOWN_WRITE"]
        assert [d.offset for d in engine.diagnostics()] == [0xE100, 0xE104]


def test_task_log_has_what_happened_in_between():
    with open_toy("verilator", cores=1) as engine:
        start(engine, 0, 4)
        engine.run_until_irq(1, 10000)
        start(engine, 0, 2)
        engine.run(100)
        first, second = engine.task_log()
        assert first.task == 1 and second.task == 2
        assert sum(first.counters.bytes_read.values()) == 4 * 512
        assert sum(first.counters.bytes_written.values()) == 4 * 512
        assert first.cycles > 4 * 16 and second.end is None


@pytest.mark.parametrize("name", ENGINES)
def test_waveform(name, tmp_path):
    path = tmp_path / "w.vcd"
    with open_toy(name, cores=1) as engine:
        if name == "amaranth":
            engine.trace(path)
        else:
            engine.trace(path, 100, 200)
        start(engine, 0, 2)
        engine.run_until_irq(1, 2000)
        cycles = engine.cycle
        engine.close()
    with open_toy(name, cores=1) as engine:  # tracing changes nothing
        start(engine, 0, 2)
        engine.run_until_irq(1, 2000)
        assert engine.cycle == cycles
    vcd = vcd_parser()(str(path))
    rready = ("m_axi_rready", "axi.rready")
    arvalid = [s for s in vcd.signals if s.split("[")[0].endswith(rready)]
    assert arvalid, vcd.signals
    changes = vcd[arvalid[0]].tv
    assert changes
    if name != "amaranth":
        assert float(vcd.timescale["timescale"]) == pytest.approx(100e-12)
        assert 100 * 10 <= vcd.begintime and vcd.endtime <= 200 * 10


def test_trace_after_the_first_access_is_refused(tmp_path):
    with open_toy("verilator", cores=1) as engine:
        engine.read32(0, toy.STATUS)
        with pytest.raises(EngineError, match="before the first access"):
            engine.trace(tmp_path / "w.vcd")


def test_unknown_names():
    with pytest.raises(ValueError, match="verilator, cxxrtl, amaranth"):
        open_engine("icarus", design=toy.ToyCore)
    with pytest.raises(ValueError, match=r"cores must be 1\.\.3"):
        open_toy("verilator", cores=4)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status")
def test_close_frees_the_address_space_at_once():
    open_toy("amaranth").close()
    gc.collect()
    gc.disable()
    try:
        before, kept = address_space(), []
        for number in range(extent(5, 12)):
            with open_toy("amaranth") as engine:
                engine.memory.map(0x1000, 0x1000)
                engine.memory.write(0x1000, bytes([number]))
                engine.run(3)
                if number < 2:
                    kept.append(engine.memory.view(0x1000, 1))
            assert address_space() < before + (len(kept) << 32) + (1 << 30)
        assert [int(view[0]) for view in kept] == [0, 1], "memory returned before stays valid"
        kept.clear()
        assert address_space() < before + (1 << 30)
    finally:
        gc.enable()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RKCOSIM_CXXFLAGS", "-O0")  # what is built here is hardly used
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def collect(name="amaranth"):  # whose library is the quickest to build
    lines = []
    open_engine(name, cores=1, design=toy.ToyCore, progress=lines.append).close()
    return lines


def test_cache_is_used_and_a_damaged_entry_is_built_again(own_cache):
    assert any("ready after" in line for line in collect())
    assert collect() == []
    (library,) = own_cache.glob("external-*/model.so")
    part = library.read_bytes()[:1000]
    library.unlink()  # this process still has the old one mapped
    library.write_bytes(part)
    lines = collect()
    assert "damaged" in lines[0] and any("ready after" in line for line in lines)
    (meta,) = own_cache.glob("external-*/meta.json")
    meta.write_text("{")
    assert "damaged" in collect()[0]
    assert collect() == []


def test_cache_keeps_what_is_in_use(own_cache, monkeypatch):
    folder = cache_module.cache_folder()
    file = folder / "model.so"
    file.write_bytes(b"x")
    monkeypatch.setattr(cache_module, "KEEP_ENTRIES", 2)
    (folder / ".build-old").mkdir()
    os.utime(folder / ".build-old", (1, 1))
    (folder / ".build-new").mkdir()
    for number in range(2):
        cache_module.store(folder, f"k{number}", [file], {})
        os.utime(folder / f"k{number}", (100 + number,) * 2)
    assert cache_module.fetch(folder, "k0", "model.so", print) is not None
    cache_module.store(folder, "k2", [file], {})
    left = {path.name for path in folder.iterdir() if path.is_dir()}
    assert left == {"k0", "k2", ".build-new"}


def test_a_clock_that_jumps_does_not_remove_what_is_in_use(own_cache, monkeypatch):
    """Neither the folder of a build, nor one that is being made, nor the entry that was just stored."""
    folder = cache_module.cache_folder()
    file = folder / "model.so"
    file.write_bytes(b"x")
    monkeypatch.setattr(cache_module, "KEEP_ENTRIES", 1)
    with cache_module.working(folder) as work:
        (work / "part").write_text("x")
        for path in (work, work / cache_module.IN_USE):
            os.utime(path, (1, 1))
        for path in (folder / ".build-killed", folder / ".new-killed", folder / ".making-killed"):
            path.mkdir()
            (path / cache_module.IN_USE).touch()  # whoever had the lock has ended
        cache_module.store(folder, "future", [file], {})
        os.utime(folder / "future", (1 << 33,) * 2)
        with cache_module.locked(folder, "future", print):  # somebody builds it again
            assert cache_module.store(folder, "k", [file], {}) == folder / "k"
            assert (folder / "future.lock").exists()
        assert (work / "part").exists()
        left = {path.name for path in folder.iterdir() if path.is_dir()}
        assert left == {"k", work.name} and os.listdir(folder / "k") != []
    assert not work.exists()
    assert sorted(os.listdir(folder / "k")) == ["meta.json", "model.so"]


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(own_cache, monkeypatch):
    """Another process may look at it before it has its lock."""
    folder, lock, removed = cache_module.cache_folder(), fcntl.flock, []

    def flock(file, how):
        made = Path(file.name).parent
        if how == fcntl.LOCK_EX and not removed:
            removed.append(made)
            shutil.rmtree(made)
        lock(file, how)

    monkeypatch.setattr(cache_module.fcntl, "flock", flock)
    with cache_module.working(folder) as work:
        assert work.is_dir() and removed[0].name[8:] != work.name[7:]
        assert not cache_module._is_leftover(work)
    assert not list(folder.glob(".*-*"))


def test_a_lock_that_was_removed_is_taken_again(own_cache, monkeypatch):
    """Who waits for the lock of an entry, which is removed with it, locks the file that is there then."""
    folder, real, tried = cache_module.cache_folder(), cache_module._try_lock, []

    def try_lock(file):
        if not tried:
            (folder / "k.lock").unlink()
        tried.append(file)
        return real(file)

    monkeypatch.setattr(cache_module, "_try_lock", try_lock)
    with cache_module.locked(folder, "k", print), open(folder / "k.lock", "a", encoding="utf-8") as other:
        assert not real(other) and len(tried) == 2


def test_two_builders_build_once(own_cache):
    results = {}

    def work(number):
        results[number] = collect()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    ready = [n for n, lines in results.items() if any("ready after" in line for line in lines)]
    assert len(results) == 2 and len(ready) == 1, results


def forbid_writing(monkeypatch, folder):
    """Make writes in the folder fail, as in a folder of another user."""
    real_open, real_mkstemp = builtins.open, os.open
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def inside(path):
        return isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder)

    def opened(path, mode="r", *args, **more):
        if inside(path) and set(mode) & set("wax+"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_open(path, mode, *args, **more)

    def low(path, flags, *args, **more):
        if inside(path) and flags & writes:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_mkstemp(path, flags, *args, **more)

    def refused(path, *args, **more):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(os, "open", low)
    for name in ("mkdir", "utime", "rename", "replace", "unlink", "rmdir"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda path, *a, real=real, **k: (refused if inside(path) else real)(path, *a, **k)
        )


def test_a_complete_cache_need_not_be_writable(own_cache, monkeypatch):
    assert any("ready after" in line for line in collect())
    before = sorted(own_cache.rglob("*"))
    with monkeypatch.context() as patch:
        forbid_writing(patch, own_cache)
        assert collect() == []
        with pytest.raises(BuildError, match=f"{own_cache} cannot be written .Permission denied"):
            cache_module.cache_folder()
    assert sorted(own_cache.rglob("*")) == before


def test_further_folders_are_only_read(own_cache, tmp_path, monkeypatch):
    assert any("ready after" in line for line in collect())
    first = tmp_path / "first"
    monkeypatch.setenv("RKCOSIM_CACHE", os.pathsep.join([str(first), "", "/nowhere", str(own_cache)]))
    assert cache_module.cache_folders() == [first, Path("/nowhere"), own_cache]
    assert collect() == [] and not first.exists()
    (library,) = own_cache.glob("external-*/model.so")
    part = library.read_bytes()[:1000]
    library.unlink()
    library.write_bytes(part)
    lines = collect()
    assert "damaged" in lines[0] and "not using it" in lines[0]
    assert any("ready after" in line for line in lines) and library.read_bytes() == part
    assert len(list(first.glob("external-*/model.so"))) == 1
    assert collect() == []


def test_unwritable_cache_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(BuildError, match="RKCOSIM_CACHE"):
        collect()


def test_missing_compiler_says_what_to_install(own_cache, tmp_path):
    script = (
        "from tests.system import toy_core; from rkcosim.engines import open_engine;"
        "open_engine('cxxrtl', design=toy_core.ToyCore)"
    )
    env = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    env.pop("CXX", None)
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "install a C++17 compiler" in done.stderr


def test_without_verilator_the_engine_is_cxxrtl(monkeypatch):
    monkeypatch.setattr(toolchain, "verilator", lambda: None)
    lines = []
    with open_engine(cores=1, design=toy.ToyCore, progress=lines.append) as engine:
        assert engine.name == "cxxrtl"
    assert "no Verilator was found" in lines[0]


def test_generated_verilog_has_no_line_per_memory_row(tmp_path):
    from rkcosim.engines import verilog

    text = verilog.write_verilog(verilog.as_design(toy.ToyCore).rtlil(False), tmp_path).read_text()
    assert "initial" not in "".join(line for line in text.splitlines() if "buffer[" in line)


def test_lock_is_bounded(own_cache, monkeypatch):
    monkeypatch.setattr(cache_module, "LOCK_SECONDS", 0)
    folder = cache_module.cache_folder()
    with (
        cache_module.locked(folder, "k", lambda text: None),
        pytest.raises(BuildError, match="another process"),
        cache_module.locked(folder, "k", lambda text: None),
    ):
        pass
