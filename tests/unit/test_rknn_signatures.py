"""The table of signatures agrees with the functions, and what is generated from it with a C compiler."""

from __future__ import annotations

import ctypes as ct
import inspect
import json
import subprocess
from pathlib import Path

import pytest

import rkcosim.rknn_api as rk
from rkcosim.devices import rknn_library
from rkcosim.devices.native_library import FLAGS, c_compiler
from rkcosim.engines import BuildError
from rkcosim.rknn_api import declarations, signatures
from rkcosim.rknn_api.query import COMMANDS
from rkcosim.rknn_api.signatures import QUERIES, SIGNATURES, type_named


@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_have_the_arguments_of_the_table(name: str):
    signature = SIGNATURES[name]
    parameters = inspect.signature(getattr(rk, name)).parameters
    assert list(parameters) == [argument.name for argument in signature.arguments]
    for argument in signature.arguments:
        assert ct.sizeof(argument.ctype) > 0
        assert argument.way in signatures.WAYS


def test_every_function_of_the_interface_is_in_the_table():
    functions = {
        name for name in rk.__all__ if name.startswith("rknn_") and inspect.isfunction(getattr(rk, name))
    }
    assert functions == set(SIGNATURES) | {"rknn_matmul_create_dyn_shape"}
    assert set(COMMANDS) == set(QUERIES)


def test_failures_are_of_the_result():
    assert SIGNATURES["rknn_run"].failure(-5) == -5
    assert not SIGNATURES["rknn_create_mem"].failure(-5)
    assert SIGNATURES["rknn_custom_op_get_op_attr"].failure(-5) is None


@pytest.mark.parametrize(
    "line", ["code f(u32 *n)", "code f(u32 n in)", "code f(u32 *n sideways)", "f()", "code f(n)"]
)
def test_wrong_lines_are_refused(line: str):
    with pytest.raises(ValueError, match="is no"):
        signatures._signature(line)
    with pytest.raises(LookupError):
        type_named("rknn_none")


@pytest.mark.parametrize("language", ["c", "c++"])
def test_header_has_the_layouts_of_ctypes(language: str, tmp_path: Path):
    try:
        compiler = c_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    lines = [declarations.header(), declarations.header(), "int main(void) { return 0; }"]
    file = tmp_path / ("header.c" if language == "c" else "header.cc")
    file.write_text("\n".join(lines))
    command = [*compiler, "-x", language, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    file.write_text(
        declarations.header().replace("offsetof(rknn_input, buf) == 8", "offsetof(rknn_input, buf) == 9")
    )
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_library_compiles_without_warnings_and_exports_nothing_else(tmp_path: Path):
    try:
        compiler = c_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    made = rknn_library.library()
    made.compile(tmp_path, [*compiler, *FLAGS, "-Werror"])  # a warning is a BuildError
    library = ct.CDLL(str(tmp_path / made.name))
    for name in [*SIGNATURES, *signatures.ALIASES]:
        assert getattr(library, name)
    assert not hasattr(library, "rk_call")


def test_json_declares_the_same_structs():
    data = json.loads(declarations.as_json())
    assert list(data["structs"]) == list(declarations.structs())
    assert data["numbers"]["RKNN_NPU_CORE_ALL"] == 0xFFFF
    assert data["numbers"]["RKNN_ERR_CTX_INVALID"] == rk.RKNN_ERR_CTX_INVALID


def test_digest_changes_with_a_signature(monkeypatch: pytest.MonkeyPatch):
    before = declarations.digest()
    changed = signatures._signature("code rknn_run(rknn_context context)")
    monkeypatch.setitem(declarations.SIGNATURES, "rknn_run", changed)
    assert declarations.digest() != before
