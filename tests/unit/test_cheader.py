"""The C header agrees with the register description for every register and field."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from rkcosim.devices.native_library import c_compiler
from rkcosim.engines import BuildError
from rkcosim.regcmd import pack_word
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.cheader import header, main


def test_every_macro_agrees_with_the_description(tmp_path: Path):
    try:
        compiler = c_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    rng = random.Random(5)
    lines = [header()]
    for block in registers():
        if block.target:
            lines.append(f'_Static_assert(RK_{block.name}_TARGET == {block.target}, "");')
        for register in block:
            name = f"RK_{block.name}_{register.name}"
            lines.append(f'_Static_assert({name} == {register.offset}, "{name}");')
            for field in register.fields.values():
                value = rng.randrange(1 << field.width)
                want = register.encode(**{field.name: value})
                macro = f"{name}__{field.name}"
                lines.append(f'_Static_assert({macro}({value}u) == {want}u, "{macro}");')
                lines.append(f'_Static_assert({macro}(-1) == {field.mask}u, "{macro}");')
                for label, code in (field.enum or {}).items():
                    lines.append(f'_Static_assert({macro}__{label} == {code}u, "{macro} {label}");')
    words = [(rng.randrange(1 << 16), rng.randrange(1 << 16), rng.randrange(1 << 32)) for _ in range(8)]
    checks = [
        f"if (rk_word({target}u, {offset}u, {value}u) != {pack_word(target, value, offset)}ull) return 1;"
        for target, offset, value in words
    ]
    lines.append(f"int main(void) {{ {' '.join(checks)} return 0; }}")
    (tmp_path / "check.c").write_text("\n".join(lines))
    command = [*compiler, "-Wall", "-Werror", "-o", tmp_path / "check", tmp_path / "check.c"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:2000]
    assert subprocess.run([tmp_path / "check"], check=False).returncode == 0


def test_command_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path / "new" / "registers.h")]) == 0
    assert (tmp_path / "new" / "registers.h").read_text() == header()
    assert main(["--wrong"]) == 2 and "usage" in capsys.readouterr().err
    assert main([]) == 0 and capsys.readouterr().out == header()
