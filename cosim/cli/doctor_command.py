"""`rkcosim doctor`: the checks of this machine, printed."""

from __future__ import annotations

from pathlib import Path

from cosim.cli.exits import DEVICE_ERROR, OK, write_json


def doctor_command(json: Path | None) -> None:
    """Print every check with its remedy; exit code 3 when something needed is missing."""
    from cosim.cli.doctor import checks

    found = checks()
    for check in found:
        word = "ok" if check.ok else "MISSING" if check.required else "without"
        print(f"{word:8}{check.name}: {check.detail}")
        if not check.ok and check.fix:
            print(f"        {check.fix}")
    if json:
        write_json(json, {"schema_version": 1, "checks": [check.__dict__ for check in found]})
    raise SystemExit(OK if all(check.ok for check in found if check.required) else DEVICE_ERROR)
