"""Programs in C that use NNAPI: the rules of the interface under sanitizers, and two networks on the RTL."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from rkcosim.apis.nnapi.ndk.library import (
    FEATURE_LEVEL,
    environment,
    lay_out,
    neural_networks_library,
    numbers_header,
)
from rkcosim.devices.native_library import c_compiler, sanitizer_runtime
from tests.programs import needs_program, require_program

pytestmark = needs_program("cc")

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "tests" / "system" / "programs" / "nnapi_rules.c"
HOSTILE = RULES.with_name("nnapi_hostile.c")
EXAMPLE = ROOT / "examples" / "nnapi" / "chain.c"

KILLED = """
#include "NeuralNetworks.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    ANeuralNetworksModel *m, *other;
    int made = ANeuralNetworksModel_create(&m);
    system("pkill -9 -P $PPID -f rkcosim.apis.nnapi.ndk.worker");
    printf("%d %d %d\\n", made, ANeuralNetworksModel_finish(m), ANeuralNetworksModel_create(&other));
    ANeuralNetworksModel_free(m);
    return 0;
}
"""


def compiled(folder: Path, source: Path) -> Path:
    """Compile a program against the headers and the library in a folder."""
    program = folder / source.stem
    command = [*c_compiler(), "-Wall", "-Wextra", f"-I{folder / 'include'}", "-o", program, source]
    subprocess.run([*command, f"-L{folder / 'lib'}", "-lneuralnetworks", "-lpthread", "-lm"], check=True)
    return program


def test_rules(tmp_path: Path) -> None:
    """Order of calls, null pointers, wrong sizes, memory and its roles, events, threads; with sanitizers.

    The part on memory restates SinglePartition, DynamicShape and MemoryCopyTest of AOSP's TestMemoryDomain.
    """
    lay_out(tmp_path, neural_networks_library(sanitize=True))
    variables = environment(tmp_path, {"engine": "golden"}) | {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [compiled(tmp_path, RULES)],
        env=variables | {"LD_PRELOAD": sanitizer_runtime()},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "0 failures\n"), done.stdout + done.stderr
    assert "AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr
    line = "rkcosim: ANeuralNetworksModel_addOperation: BAD_DATA: there is no operand 9, only 2"
    assert line in done.stderr.splitlines()


def test_two_hostile_programs_beside_a_good_one(tmp_path: Path) -> None:
    """Every call with handles of objects that are gone or never were, wrong counts and sizes, files that
    become shorter, eight threads, forks: an error each, no access beyond what was given."""
    lay_out(tmp_path, neural_networks_library(sanitize=True))
    variables = environment(tmp_path, {"engine": "golden"}) | {"ASAN_OPTIONS": "detect_leaks=0"}
    variables["LD_PRELOAD"] = sanitizer_runtime()
    hostile, rules = compiled(tmp_path, HOSTILE), compiled(tmp_path, RULES)
    begun = [
        subprocess.Popen([one], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for one in (hostile, rules, hostile)
    ]
    for one in begun:
        out, errors = one.communicate(timeout=120)
        assert (one.returncode, out) == (0, "0 failures\n"), out + errors[-3000:]
        for word in ("AddressSanitizer", "runtime error", "internal error", "Traceback"):
            assert word not in errors, errors[-3000:]


def test_a_killed_process_is_a_dead_object(tmp_path: Path) -> None:
    require_program("pkill")
    lay_out(tmp_path, neural_networks_library())
    source = tmp_path / "killed.c"
    source.write_text(KILLED)
    done = subprocess.run(
        [compiled(tmp_path, source)],
        env=environment(tmp_path, {"engine": "golden"}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "0 14 14\n" and "signal 9" in done.stderr, done.stderr


def test_example_on_the_rtl(tmp_path: Path) -> None:
    """Both ways of the tensor between two networks, with the golden models and with the bytes moved."""

    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "rkcosim", "nnapi", *map(str, arguments)]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = command("--prefix", tmp_path)
    assert done.returncode == 0, done.stderr
    program = compiled(tmp_path, EXAMPLE)
    done = command("--check", "--json", "run.json", "--", program)
    assert done.returncode == 0 and done.stdout.endswith("equal\n"), done.stdout + done.stderr
    counts = re.findall(r"(\d+) and (\d+) cycles", done.stdout)
    assert len(counts) == 2 and all(int(one) > 1000 for pair in counts for one in pair)
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["match"] is True and document["exit_code"] == 0
    first, second = document["nnapi"]
    assert [one["place"] for one in first["operations"] + second["operations"]] == ["npu"] * 5
    assert first["cycles"] + second["cycles"] == sum(int(one) for pair in counts for one in pair)
    (traffic,) = document["traffic"]
    size = 12 * 12 * 32
    assert traffic == {"copied_in": 3 * size, "copied_out": size + 20, "kept": size}


def test_numbers_of_the_header() -> None:
    """Some numbers of NeuralNetworksTypes.h (AOSP), which programs are compiled with."""
    text = numbers_header()
    for name, number in (
        ("TENSOR_QUANT8_ASYMM_SIGNED", 14),
        ("MODEL", 15),
        ("CONV_2D", 3),
        ("BATCH_MATMUL", 102),
        ("REVERSE", 105),
        ("DEAD_OBJECT", 14),
    ):
        assert f"ANEURALNETWORKS_{name} = {number}," in text
    assert f"#define ANEURALNETWORKS_FEATURE_LEVEL_8 {FEATURE_LEVEL}" in text
