"""Picture of Neovim with nvim-dap in a debugging session, drawn from a terminal without a screen.

The plug-in is not part of this project: `RKCOSIM_NVIM_DAP` names a folder with
github.com/mfussenegger/nvim-dap (0.7.0 was used).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

PLUGIN = "RKCOSIM_NVIM_DAP"
COLUMNS, ROWS = 150, 40
SECONDS = 60
"""Seconds after which the session has failed."""

SCRIPT = """
vim.o.swapfile = false
vim.o.number = true
vim.o.wrap = false
vim.o.laststatus = 2
vim.opt.rtp:prepend({plugin!r})
vim.cmd("runtime plugin/dap.lua")
local dap = require("dap")
dap.adapters.rkcosim = {{ type = "executable", command = {python!r}, args = {{ "-m", "rkcosim", "debug" }} }}
local seen = 0
dap.listeners.after.event_stopped["picture"] = function(session, body)
  seen = seen + 1
  if seen == 1 then
    vim.defer_fn(function() dap.continue() end, 300)
  elseif seen == 2 then
    vim.defer_fn(function()
      dap.repl.open({{ height = 18 }})
      dap.repl.append("dap> why")
      session:request("evaluate", {{ expression = "why", context = "repl" }}, function(_, answer)
        dap.repl.append(answer.result)
        vim.fn.writefile({{ "done" }}, {ready!r})
      end)
    end, 500)
  end
end
dap.run({{
  type = "rkcosim", request = "launch", name = "Debug a stream", program = {stream!r}, against = {against!r},
}})
"""


def missing() -> str:
    """Return what the picture needs and is not here, or ""."""
    for program in ("nvim", "tmux"):
        if shutil.which(program) is None:
            return program
    return "" if os.environ.get(PLUGIN) else f"a folder with nvim-dap, named by {PLUGIN}"


def draw(stream: Path, against: Path, picture: Path) -> None:
    """Debug a stream against a reference up to the first wrong task, ask `why`, and draw the screen.

    Raises
    ------
    RuntimeError
        if the session has not come so far within `SECONDS`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ready, init = folder / "ready", folder / "init.lua"
        plugin = str(Path(os.environ[PLUGIN]).resolve())
        init.write_text(
            SCRIPT.format(
                plugin=plugin,
                python=sys.executable,
                ready=str(ready),
                stream=str(stream.resolve()),
                against=str(against.resolve()),
            )
        )
        tmux = ["tmux", "-L", f"rkcosim-{os.getpid()}", "-f", "/dev/null"]
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        command = f"TERM=xterm-256color nvim -u {init}"
        subprocess.run([*tmux, "new-session", "-d", *size, command], check=True, cwd=folder)
        try:
            end = time.monotonic() + SECONDS
            while not ready.exists():
                if time.monotonic() > end:
                    raise RuntimeError("the session in Neovim did not come to its end")
                time.sleep(0.1)
            time.sleep(1)
            shown = subprocess.run([*tmux, "capture-pane", "-e", "-p"], capture_output=True, check=True)
        finally:
            subprocess.run([*tmux, "kill-server"], check=False)
    write_picture(shown.stdout.decode(), picture, "Neovim with nvim-dap")


def write_picture(screen: str, picture: Path, title: str) -> None:
    """Write a terminal's screen, text with escape sequences, as SVG without external fonts."""
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        console = Console(record=True, width=COLUMNS, file=nothing, force_terminal=True)
        console.print(Text.from_ansi(screen.rstrip("\n")), soft_wrap=True)
        text = console.export_svg(title=title, unique_id="terminal")
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    picture.write_text(text.replace("Fira Code", "DejaVu Sans Mono"), encoding="utf-8")
