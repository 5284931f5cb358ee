"""One shared library per (design, engine, cell, flags), built once and kept in the cache."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import rkcosim.engines.harness
from rkcosim.base import progress as under_way
from rkcosim.engines import cache, prebuilt, timing, toolchain, verilog
from rkcosim.engines.cache import Progress
from rkcosim.engines.compilation import Compilation, Source, together
from rkcosim.engines.protocol import BuildError
from rkcosim.spec.config import RK3588

LIBRARY = "model.so"


VARIANTS = ("traced", "probed", "watched", "assertions")
"""Members of `Variant` that are off by default, as its text names them."""


@dataclass(frozen=True)
class Variant:
    """Selects a library of a design.

    Members
    -------
    engine : "verilator", "cxxrtl", "plain" (the reference of `rkcosim bench`, see PLAIN_FLAGS), "timing"
        (rkcosim.engines.timing; with the cell "cpp" the whole core), or "external" (DRAM and interconnect
        only).
    cell : "cpp" for the cells in C++ (docs/engines.md), "rtl" for the cells as described in Amaranth.
    traced : includes the code that writes a waveform.
    probed : records the values that a lockstep run compares inside the core (Verilator only).
    watched : no clock is gated; instead, a register that changes while its group is asleep is reported on the
        output (Verilator with the C++ cell only; rkcosim.engines.clock_gates).
    assertions : the assertions of the RTL are checked (rtl/assertions.py), and no clock is gated (Verilator
        only).
    """

    engine: str
    cell: str = "rtl"
    traced: bool = False
    probed: bool = False
    watched: bool = False
    assertions: bool = False

    @property
    def external_cell(self) -> bool:
        """Whether the design is made without its array cell."""
        return self.cell == "cpp" or self.engine == "timing"

    def external_dpu_cell(self, design: verilog.Design) -> bool:
        """Return True if the stages of the DPU are the C++ cell.

        Builds that show or check what is inside the RTL have them as RTL.
        """
        inside = any(getattr(self, name) for name in VARIANTS)
        return self.engine == "verilator" and self.cell == "cpp" and design.has_dpu_cell and not inside

    def __str__(self) -> str:
        if self.engine == "external":
            return "memory model"
        if self.engine == "plain":
            return "plain Verilog in Verilator at its usual flags"
        if self.engine == "timing":
            return "RTL that follows changes, C++ cell" if self.cell == "cpp" else "model of the timing"
        cell = "C++ cell" if self.cell == "cpp" else "RTL cell"
        extra = [name for name in VARIANTS if getattr(self, name)]
        return ", ".join([f"{self.engine} model", cell, *extra])


def harness_folder() -> Path:
    """Return the folder of the C++ harness, which is installed with its package."""
    return Path(next(iter(rkcosim.engines.harness.__path__)))


def linked_with(folder: Path) -> list[str]:
    """Build a small library like an engine in a folder; see `rkcosim.engines.toolchain.linked_with`."""
    return toolchain.linked_with(_flags(), folder)


def _flags(optimise: str = "-O3", usual: bool = False) -> list[str]:
    # -fno-gnu-unique and -Bsymbolic keep two libraries in one process apart.
    flags = ["-std=c++17", optimise, "-fPIC", "-pthread", "-w"]
    if not usual:
        flags += os.environ.get("RKCOSIM_CXXFLAGS", _native_flag()).split()
    # Clang calls a function of a library for the assertions of Verilator's runtime about atomic variables.
    flags.append("-DNDEBUG" if "clang" in toolchain.compiler().version else "-fno-gnu-unique")
    return flags


def _native_flag() -> str:
    arm_mac = platform.system() == "Darwin" and platform.machine() == "arm64"
    return "-mcpu=native" if arm_mac else "-march=native"


def _cpu() -> str:
    """Return what `-march=native` depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    lines = {line for line in text.splitlines() if line.startswith(wanted)}
    return "\n".join(sorted(lines))


def _cell_files(suffixes: tuple[str, ...]) -> list[Path]:
    folder = harness_folder() / "cell"
    return [path for path in sorted(folder.glob("npu_*")) if path.suffix in suffixes]


def harness_files() -> list[Path]:
    """Return the sources of the C++ harness, without those of the array cell."""
    return [path for path in sorted(harness_folder().glob("*")) if path.suffix in (".h", ".cpp", ".sv")]


def _add_files(digest: hashlib._Hash, paths: list[Path]) -> None:
    for path in paths:
        digest.update(path.name.encode() + path.read_bytes())


def _traced(variant: Variant) -> bytes:
    """Return a hash of what makes the tables of waveforms, empty without them."""
    if not variant.traced:
        return b""
    from rkcosim.engines.traces.table import fingerprint

    return fingerprint()


def _key(design_hash: str, variant: Variant) -> str:
    written = f"{design_hash} {verilog.SCRIPT_VERSION} {variant!r} {' '.join(_flags())}"
    digest = hashlib.sha256(written.encode())
    digest.update(f"{toolchain.compiler().version}\n{_cpu()}\n{platform.platform()}".encode())
    if variant.engine == "timing":
        digest.update(timing.fingerprint())
    elif variant.engine != "external":
        digest.update(toolchain.yosys().version.encode())
    if variant.engine == "cxxrtl":
        digest.update(f"{verilog.CXXRTL_OPTIONS} {_CXXRTL_OPTIMISE}".encode())
    if variant.engine == "verilator":
        tool = toolchain.verilator()
        digest.update(tool.version.encode() if tool else b"")
        digest.update(" ".join([*_verilator_flags(variant), _VERILATOR_OPTIMISE]).encode())
        digest.update(APART.encode())
        digest.update(_traced(variant))
    if variant.engine == "plain":
        tool = toolchain.verilator()
        digest.update(tool.version.encode() if tool else b"")
        digest.update(verilog.text_fingerprint())
        digest.update(" ".join([*PLAIN_FLAGS, PLAIN_OPTIMISE, PLAIN_OPTIMISE_SLOW]).encode())
    paths = harness_files()
    if variant.cell == "cpp":
        paths += _cell_files((".h", ".cpp", ".sv", ".v", ".il"))
    _add_files(digest, paths)
    return f"{variant.engine}-{variant.cell}-{digest.hexdigest()[:24]}"


def _state_key(design_hash: str, variant: Variant) -> str:
    """Hash of what determines the layout of a model's state, for snapshots (not compiler and processor)."""
    tool = toolchain.verilator()
    flags = _verilator_flags(variant) if variant.engine == "verilator" else []
    digest = hashlib.sha256(f"{design_hash} {verilog.SCRIPT_VERSION} {variant!r} {flags}".encode())
    digest.update(f"{toolchain.yosys().version} {tool.version if tool else ''}".encode())
    _add_files(digest, [*harness_files(), *_cell_files((".h", ".cpp", ".sv"))])
    return digest.hexdigest()[:16]


def _portable_key(design_hash: str, variant: Variant) -> str:
    """Hash of what a prebuilt engine was made from, without the tools and the processor."""
    written = f"{design_hash} {verilog.SCRIPT_VERSION} {variant!r} {_verilator_flags(variant)} {APART}"
    digest = hashlib.sha256(written.encode() + _traced(variant))
    _add_files(digest, [*harness_files(), *_cell_files((".h", ".cpp", ".sv"))])
    return f"{variant.engine}-{variant.cell}-{digest.hexdigest()[:24]}"


def _is_packed(design: verilog.Design | None, variant: Variant) -> bool:
    """Return True if the package of prebuilt engines has this one, in some state of the sources."""
    plain = Variant("verilator", "cpp")
    known = variant in (plain, dataclasses.replace(plain, traced=True))
    return known and design is not None and design.config == RK3588


def pack(design: verilog.Design, variant: Variant, library: Path, package: Path) -> None:
    """Put a built library into the folder of a package (rkcosim.engines.prebuilt), with its stamp."""
    design_hash = _design_hash(design, variant)
    facts = json.loads((library.parent / "meta.json").read_text())
    facts = {name: facts[name] for name in ("variant", "state")}
    key = _portable_key(f"{design_hash} {design.clock_groups}", variant)
    cache.store(package, key, [library], facts)
    quick = _fingerprint(design, variant)
    if quick:
        (package / "stamps").mkdir(exist_ok=True)
        (package / "stamps" / quick).write_text(design_hash)


def state_of(library: Path) -> str:
    """Return the hash shared by builds whose states are compatible."""
    meta = json.loads((library.parent / "meta.json").read_text())
    return str(meta.get("state", ""))


def _fingerprint(design: verilog.Design, variant: Variant) -> str | None:
    return design.fingerprint(variant.external_cell, variant.assertions, variant.external_dpu_cell(design))


def _rtlil(design: verilog.Design, variant: Variant) -> str:
    return design.rtlil(variant.external_cell, variant.assertions, variant.external_dpu_cell(design))


def _design_hash(design: verilog.Design, variant: Variant) -> str:
    """Hash of the RTLIL; the RTLIL is not generated if this state of the sources is already known."""
    quick = _fingerprint(design, variant)
    folders = [*cache.cache_folders(), *prebuilt.stamp_folders()]
    stamps = [folder / "stamps" / quick for folder in folders] if quick else []
    for stamp in stamps:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            known = stamp.read_text()
            if len(known) == 64:
                return known
    found = hashlib.sha256(_rtlil(design, variant).encode()).hexdigest()
    for stamp in stamps[:1]:
        with contextlib.suppress(OSError):  # a failure only costs time
            stamp.parent.mkdir(parents=True, exist_ok=True)
            fresh = stamp.with_suffix(f".{os.getpid()}")
            fresh.write_text(found)
            fresh.replace(stamp)
    return found


built_here: list[Variant] = []
"""Libraries of the RK3588's core that this process has built (`rkcosim.engines.ahead` builds others)."""


def build(design: verilog.Design | None, variant: Variant, progress: Progress = cache.say) -> Path:
    """Return the shared library of a design, from the cache or built now.

    Parameters
    ----------
    design : None for the variant "external".
    progress : called with one line per step that takes long.

    Raises
    ------
    BuildError
        if a tool is missing or fails, or if the library is not in the cache and the cache cannot be written.
    """
    packed = _is_packed(design, variant) and prebuilt.installed() is not None
    if not packed:
        toolchain.compiler()
    design_hash = _design_hash(design, variant) if design is not None else ""
    origin = f"{design_hash} {design.clock_groups if design is not None else None}"
    if packed:
        found = _ready(origin, variant, progress)
        if found is not None:
            return found
    key = _key(origin, variant)
    found = cache.find(key, LIBRARY, progress)
    if found is not None:
        return found
    folder = cache.cache_folder()
    begin = time.monotonic()
    with under_way.step("engine"), cache.locked(folder, key, progress) as tell:
        found = cache.fetch(folder, key, LIBRARY, progress)
        if found is not None:
            return found
        state = "" if design is None else _state_key(origin, variant)
        progress(f"building the {variant} (once; kept in {folder})")
        with cache.working(folder) as work:
            built = _build_now(design, variant, folder, work, key, state, origin, progress, tell)
        if design is not None and design.config == RK3588 and variant.engine != "timing":
            built_here.append(variant)
    progress(f"{variant} ready after {time.monotonic() - begin:.1f} s")
    return built


def _ready(design_hash: str, variant: Variant, progress: Progress) -> Path | None:
    """Return a library that was built on this machine before, else a prebuilt one, else None."""
    with contextlib.suppress(BuildError):  # without a compiler there is no key
        found = cache.find(_key(design_hash, variant), LIBRARY, progress)
        if found is not None:
            return found
    return prebuilt.find(_portable_key(design_hash, variant), LIBRARY, progress)


def _build_now(
    design: verilog.Design | None,
    variant: Variant,
    folder: Path,
    work: Path,
    key: str,
    state: str,
    origin: str,
    progress: Progress,
    tell: Progress,
) -> Path:
    begin = time.monotonic()
    needed = linked_with(work)  # before the minutes that the rest takes
    compilation = Compilation(work, _flags)
    try:
        sources: list[Source]
        tell("preparing C++ files")
        if variant.engine == "external":
            sources = [Source(harness_folder() / "api.cpp", ['-DRKCOSIM_MODEL="external_model.h"'])]
        elif design is None:
            raise ValueError(f"a {variant.engine} library needs a design")
        elif variant.engine == "verilator":
            compilation.begin(_verilator_runtime(variant, folder))
            sources = _verilator_sources(design, variant, work, origin, progress)
        elif variant.engine == "cxxrtl":
            sources = _cxxrtl_sources(design, variant, work, progress)
        elif variant.engine == "timing":
            sources = _timing_sources(design, variant, work, progress)
        elif variant.engine == "plain":
            sources = _plain_sources(design, work, progress)
        else:
            raise ValueError(
                f"engine must be verilator, cxxrtl, plain, timing or external, not {variant.engine!r}"
            )
        library = work / LIBRARY
        added = os.environ.get("RKCOSIM_CXXFLAGS", "").split() + needed
        compilation.finish(sources, library, added, progress, tell)
        toolchain.check_loads(library)
        seconds = round(time.monotonic() - begin, 1)
        entry = cache.store(
            folder, key, [library], {"variant": str(variant), "state": state, "seconds": seconds}
        )
        return entry / LIBRARY
    finally:
        compilation.close()


_VERILATOR_OPTIMISE = "-O2"  # as fast as -O3, whose code is half as large again and takes longer to compile


APART_MODULES = ("float_kernel", "float_octet", "decompressor")
"""Modules of which Verilator makes separate classes, with separate C++ files.

These are the float parts of the RTL cell, and the decompressor, whose state would otherwise lie among the
members that every cycle uses.
"""

APART = "\n".join(["`verilator_config", *(f'no_inline -module "*{name}*"' for name in APART_MODULES), ""])


def _optimise(generated: Path) -> str:
    if generated.stem.endswith("__Slow"):
        return "-O0"  # code that runs once per simulation is not worth the compile time
    apart = any(name in generated.stem for name in APART_MODULES)
    return "-O1" if apart else _VERILATOR_OPTIMISE


def _verilator_flags(variant: Variant) -> list[str]:
    flags = ["--cc", "--top-module", f"{verilog.TOP}_top", "--prefix", "Vcore", "-O3", "--no-timing"]
    flags += ["--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "-Wno-lint", "-Wno-style"]
    flags += ["--output-split", "20000", "--no-assert", "--savable"]
    if variant.traced:
        flags += ["--trace", "--trace-structs"]
    if variant.probed:
        flags.append("-DRKCOSIM_PROBES")
    if variant.watched:
        flags.append("-DRKCOSIM_WATCHED")
    if variant.assertions:
        flags.append("-DRKCOSIM_ASSERTIONS")
    return flags


def flags_in_words(variant: Variant) -> str:
    """Describe the options of generator and compiler that determine a library's speed, for reports."""
    added = os.environ.get("RKCOSIM_CXXFLAGS", _native_flag())
    if variant.engine == "plain":
        own = " ".join(PLAIN_FLAGS)
        return f"verilator {own}; {PLAIN_OPTIMISE}, what runs once {PLAIN_OPTIMISE_SLOW}"
    if variant.engine == "cxxrtl":
        return f"write_cxxrtl {' '.join(verilog.CXXRTL_OPTIONS)}; {_CXXRTL_OPTIMISE} {added}"
    if variant.engine == "timing":
        return f"cosim/engines/timing; {_TIMING_OPTIMISE} {added}"
    if variant.engine != "verilator":
        return f"-O3 {added}"
    own = " ".join(flag for flag in _verilator_flags(variant) if not flag.startswith("-W"))
    return f"verilator {own}; {_VERILATOR_OPTIMISE} {added}"


def _verilator() -> tuple[toolchain.Tool, Path]:
    """Return Verilator and the folder of its headers and sources."""
    tool = toolchain.verilator()
    if tool is None or tool.include is None:
        raise BuildError(f"{toolchain.no_verilator()}; or use the engine cxxrtl")
    return tool, tool.include


def core_verilog(
    design: verilog.Design, variant: Variant, work: Path, origin: str, progress: Progress
) -> Path:
    """Return a copy in `work` of the core's Verilog, which the cache keeps for the other variants.

    Parameters
    ----------
    origin : text that is equal for equal designs.
    """
    cells = f"{variant.external_cell} {variant.external_dpu_cell(design)}"
    groups = _clock_groups(design, variant)
    written = f"{origin} {verilog.SCRIPT_VERSION} {cells} {variant.watched} {toolchain.yosys().version}"
    key = f"verilog-{hashlib.sha256(written.encode()).hexdigest()[:24]}"

    def write(folder: Path) -> None:
        rtlil = _rtlil(design, variant)
        verilog.write_verilog(rtlil, folder, groups, watched=variant.watched)

    kept = cache.built(key, verilog.WRITTEN, f"Verilog, {variant.cell} cell", write, progress)
    return Path(shutil.copy(kept, work))


def _clock_groups(design: verilog.Design, variant: Variant) -> verilog.Groups | None:
    """Return the groups whose clocks are gated; an assertion is checked at every edge."""
    return design.clock_groups if variant.external_cell and not variant.assertions else None


def _verilator_sources(
    design: verilog.Design, variant: Variant, work: Path, origin: str, progress: Progress
) -> list[Source]:
    tool, _ = _verilator()
    begin = time.monotonic()
    groups = _clock_groups(design, variant)
    text = core_verilog(design, variant, work, origin, progress)
    progress(f"Verilog written after {time.monotonic() - begin:.1f} s ({text.stat().st_size >> 10} KiB)")
    begin = time.monotonic()
    shutil.copy(harness_folder() / "core_top.sv", work)
    files = ["core_top.sv", text.name]
    if variant.cell == "cpp":
        for path in _cell_files((".sv",)):
            shutil.copy(path, work)
            files.append(path.name)
    (work / "apart.vlt").write_text(APART)
    files.append("apart.vlt")
    gates = [f"-DRKCOSIM_GATES={len(groups)}"] if groups else []  # a macro of the Verilog and of the C++
    tool.run([*_verilator_flags(variant), *gates, "--Mdir", "obj", *files], work)
    if variant.traced:
        from rkcosim.engines.traces.table import write_table

        write_table(work / "obj", tool.version)
    generated = [p for p in sorted((work / "obj").glob("*.cpp")) if not p.name.startswith("Vcore__Trace")]
    size = sum(path.stat().st_size for path in generated) >> 10
    progress(f"Verilator took {time.monotonic() - begin:.1f} s ({len(generated)} files, {size} KiB)")

    shared = _verilator_options(variant)
    if groups and not variant.watched:
        from rkcosim.engines.clock_gates import sets_triggers

        if sets_triggers(work / "obj"):
            shared.append("-DRKCOSIM_DIRECT")
        else:
            progress(f"{tool.version} writes triggers in an unknown form: clock edges use `eval`")
    shared += gates
    model = [f"-I{work / 'obj'}", f"-I{harness_folder()}", f"-I{harness_folder() / 'cell'}", *shared]
    sources = together([Source(path, model, _optimise(path)) for path in generated], work)
    return [*sources, Source(harness_folder() / "api.cpp", [*model, '-DRKCOSIM_MODEL="verilator_model.h"'])]


def _verilator_options(variant: Variant) -> list[str]:
    """Return the compiler's options for a variant that do not depend on the design."""
    _, runtime = _verilator()
    traced = int(variant.traced)
    options = [f"-I{runtime}", f"-I{runtime / 'vltstd'}", *_RUNTIME_DEFINES]
    options += [f"-DVM_TRACE={traced}", f"-DVM_TRACE_VCD={traced}"]
    if variant.traced:
        options.append("-DRKCOSIM_TRACE")
    if variant.probed:
        options.append("-DRKCOSIM_PROBES")
    if variant.cell == "cpp":
        options.append("-DRKCOSIM_CELL")
    if variant.assertions:
        options.append("-DRKCOSIM_ASSERTIONS")
    return options


_RUNTIME_DEFINES = ("-DVL_TIME_CONTEXT", "-DVL_USER_FATAL")  # cosim/engines/harness/verilator_snapshot.h


def _verilator_runtime(variant: Variant, folder: Path) -> list[Source]:
    """Return the files that do not depend on the design: Verilator's own and the array cell."""
    tool, runtime = _verilator()
    options = _verilator_options(variant)
    names = ["verilated", "verilated_threads", "verilated_dpi", "verilated_save"]
    names += ["verilated_vcd_c"] if variant.traced else []
    written = f"{_RUNTIME_DEFINES} {tool.version} {toolchain.compiler().version} {_flags()} {_cpu()}"
    objects = folder / f"runtime-{hashlib.sha256(written.encode()).hexdigest()[:16]}"
    sources = []
    for name in names:
        kept = objects / f"{name}{'-traced' if variant.traced else ''}.o"
        sources.append(Source(runtime / f"{name}.cpp", options, "-O2", kept))
    if variant.cell == "cpp":
        cell = [f"-I{harness_folder()}", f"-I{harness_folder() / 'cell'}", *options]
        boxes = [path for path in _cell_files((".cpp",)) if "cxxrtl" not in path.stem]
        sources += [Source(path, cell) for path in boxes]
    return sources


PLAIN_TOP = "npu_core"
PLAIN_FLAGS = ("--cc", "--top-module", PLAIN_TOP, "--prefix", "Vcore", "-Wno-fatal")
"""Verilator's options for the engine "plain": only those that name the model.

That engine is the core compiled without any tuning, a reference point for `rkcosim bench`. It has none of
what makes the other engines fast: no clock gates, no registers before the inputs, no C++ cell, no options of
Verilator, no `-march=native`. Harness and memory model are the same and are compiled as always.
"""

PLAIN_OPTIMISE, PLAIN_OPTIMISE_SLOW = "-Os", "-O0"
"""Options of Verilator's makefile (verilated.mk; without any level, the default is -O0)."""


def _plain_sources(design: verilog.Design, work: Path, progress: Progress) -> list[Source]:
    tool, runtime = _verilator()
    begin = time.monotonic()
    text = verilog.verilog_text(design.rtlil(False), PLAIN_TOP, branches=True)
    (work / f"{PLAIN_TOP}.v").write_text(text)
    tool.run([*PLAIN_FLAGS, "--Mdir", "obj", f"{PLAIN_TOP}.v"], work)
    generated = sorted((work / "obj").glob("*.cpp"))
    progress(f"Verilog written and verilated after {time.monotonic() - begin:.1f} s ({len(generated)} files)")
    shared = [f"-I{runtime}", f"-I{runtime / 'vltstd'}", "-DVL_TIME_CONTEXT", "-DVM_TRACE=0"]
    model = [f"-I{work / 'obj'}", f"-I{harness_folder()}", *shared]
    sources = []
    for path in generated:
        level = PLAIN_OPTIMISE_SLOW if path.stem.endswith("__Slow") else PLAIN_OPTIMISE
        sources.append(Source(path, model, level, usual=True))
    for name in ("verilated", "verilated_threads"):
        sources.append(Source(runtime / f"{name}.cpp", shared, PLAIN_OPTIMISE, usual=True))
    harness = [*model, '-DRKCOSIM_MODEL="verilator_model.h"', "-DRKCOSIM_PLAIN"]
    return [*sources, Source(harness_folder() / "api.cpp", harness)]


_TIMING_OPTIMISE = "-O2"


def _timing_sources(design: verilog.Design, variant: Variant, work: Path, progress: Progress) -> list[Source]:
    begin = time.monotonic()
    data = variant.cell == "cpp"
    paths = timing.write(design.make(external_cell=True), work, data=data)
    size = sum(path.stat().st_size for path in paths) >> 10
    progress(f"timing model written after {time.monotonic() - begin:.1f} s ({len(paths)} files, {size} KiB)")
    flags = [f"-I{work}", f"-I{harness_folder()}", f"-I{harness_folder() / 'cell'}"]
    model = [*flags, '-DRKCOSIM_MODEL="timing_model.h"', *([] if data else ["-DRKCOSIM_TIMING"])]
    sources = [Source(path, flags, _TIMING_OPTIMISE) for path in paths]
    if data:
        boxes = [path for path in _cell_files((".cpp",)) if path.stem in ("npu_cell", "npu_cell_float")]
        sources += [Source(path, flags) for path in boxes]
    return [*sources, Source(harness_folder() / "api.cpp", model)]


_CXXRTL_OPTIMISE = "-O1"  # higher levels take minutes for this amount of generated code


def _cxxrtl_sources(design: verilog.Design, variant: Variant, work: Path, progress: Progress) -> list[Source]:
    begin = time.monotonic()
    rtlil = design.rtlil(variant.cell == "cpp")
    boxes = _cell_files((".il", ".v")) if variant.cell == "cpp" else []
    if variant.cell == "cpp" and not boxes:
        raise BuildError(f"the installation lacks npu_array_cell_box.v in {harness_folder() / 'cell'}")
    text = verilog.write_cxxrtl(rtlil, work, traced=variant.traced, black_boxes=boxes)
    progress(f"CXXRTL written after {time.monotonic() - begin:.1f} s ({text.stat().st_size >> 10} KiB)")
    flags = [f"-I{work}", f"-I{harness_folder()}", f"-I{harness_folder() / 'cell'}"]
    flags += [f"-I{toolchain.yosys().include}", "-DRKCOSIM_TRACE" if variant.traced else "-DNDEBUG"]
    if variant.cell == "cpp":
        flags.append("-DRKCOSIM_CELL")
    sources = [Source(text, flags, _CXXRTL_OPTIMISE)]
    sources.append(Source(harness_folder() / "api.cpp", [*flags, '-DRKCOSIM_MODEL="cxxrtl_model.h"']))
    if variant.cell == "cpp":
        sources += [Source(path, flags) for path in _cell_files((".cpp",)) if "dpi" not in path.stem]
    return sources
