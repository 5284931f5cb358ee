"""A debugging session in Neovim with nvim-dap, without a screen, that carries out a list of steps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.editor import PLUGIN

MOST_SECONDS = 600
"""Seconds after which a session has failed; builds of the RTL need most of them."""

SCRIPT = """
local order = vim.json.decode(table.concat(vim.fn.readfile(vim.env.ORDER), "\\n"))
vim.o.swapfile = false
vim.opt.rtp:prepend(order.plugin)
vim.cmd("runtime plugin/dap.lua")
local dap = require("dap")
local limit = order.seconds * 1000
dap.adapters.rkcosim = {
  type = "executable", command = order.command[1], args = vim.list_slice(order.command, 2),
  options = { initialize_timeout_sec = order.seconds },
}
local stopped
dap.listeners.after.event_stopped["steps"] = function(_, body) stopped = body end

local function wait(what, done)
  assert(vim.wait(limit, done, 5), "nothing came after " .. what)
end

local function ask(command, arguments)
  local failed, answer, done
  dap.session():request(command, arguments, function(problem, body)
    failed, answer, done = problem, body, true
  end)
  wait(command, function() return done end)
  assert(not failed, vim.inspect(failed))
  return answer
end

local function stop(what, work)
  local before = dap.session() and dap.session().current_frame
  local function frame_now() return dap.session() and dap.session().current_frame end
  stopped = nil
  work()
  wait(what, function() return stopped and frame_now() and frame_now() ~= before end)
  local frame = frame_now()
  wait("the listing", function() return vim.api.nvim_win_get_cursor(0)[1] == frame.line end)
  local names = {}
  for _, one in ipairs(dap.session().threads[dap.session().stopped_thread_id].frames) do
    table.insert(names, one.name)
  end
  return {
    reason = stopped.reason, text = stopped.text, line = frame.line, frames = names,
    shown = vim.api.nvim_get_current_line(),
  }
end

local function children(reference)
  local found = {}
  for _, one in ipairs(ask("variables", { variablesReference = reference }).variables) do
    found[one.name] = one
  end
  return found
end

-- Both register groups of each block, and the bytes of each region of the memory.
local function everything()
  local registers, memory = {}, {}
  for _, scope in ipairs(ask("scopes", { frameId = dap.session().current_frame.id }).scopes) do
    if scope.name:match(" registers$") then
      for group, held in pairs(children(scope.variablesReference)) do
        for name, one in pairs(children(held.variablesReference)) do
          registers[scope.name .. " " .. group .. " " .. name] = one.value
        end
      end
    elseif scope.name == "Memory" then
      for name, region in pairs(children(scope.variablesReference)) do
        local count = tonumber(region.value:match("^%d+"))
        memory[name] = ask("readMemory", { memoryReference = name, count = count })
      end
    end
  end
  return { registers = registers, memory = memory }
end

local answers = {}
local well, problem = pcall(function()
  for _, step in ipairs(order.steps) do
    local answer
    if step == "launch" then
      answer = stop(step, function() dap.run(order.launch) end)
    elseif step == "everything" then
      answer = everything()
    elseif dap[step] then
      answer = stop(step, dap[step])
    else
      answer = ask("evaluate", { expression = step, context = "repl" }).result
    end
    table.insert(answers, answer)
  end
  dap.terminate()
  vim.wait(5000, function() return dap.session() == nil end, 5)
end)
local result = { answers = answers, problem = well and "" or tostring(problem) }
vim.fn.writefile({ vim.json.encode(result) }, order.result)
vim.cmd("qa!")
"""


def missing() -> str:
    """Return what a session needs and is not here, or ""."""
    if shutil.which("nvim") is None:
        return "nvim"
    return "" if os.environ.get(PLUGIN) else f"a folder with nvim-dap, named by {PLUGIN}"


def session(
    folder: Path, launch: dict[str, Any], steps: Sequence[str], command: Sequence[str] = ()
) -> list[Any]:
    """Launch a session in Neovim and carry out steps; return what each gave, that of the launch first.

    Parameters
    ----------
    folder : takes the files of the session.
    launch : members of the request `launch`.
    steps : a function of nvim-dap that runs on or back, such as "continue" or "reverse_continue", which gives
        the reason and the text of the stop, the line, the frames and the line that the editor shows;
        "everything", which gives the registers of both groups and the bytes of all regions; or a command of
        the debugger's console, which gives what it prints.
    command : starts the adapter; empty: `rkcosim debug`.

    Raises
    ------
    AssertionError
        if a step fails or does not end.
    """
    files = {name: folder / name for name in ("order.json", "init.lua", "result.json")}
    order = {
        "plugin": str(Path(os.environ[PLUGIN]).resolve()),
        "command": list(command) or [sys.executable, "-m", "rkcosim", "debug"],
        "launch": {"type": "rkcosim", "request": "launch", "name": "test", **launch},
        "steps": ["launch", *steps],
        "seconds": MOST_SECONDS,
        "result": str(files["result.json"]),
    }
    files["order.json"].write_text(json.dumps(order))
    files["init.lua"].write_text(SCRIPT)
    run = subprocess.run(
        ["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-S", str(files["init.lua"])],
        env=os.environ | {"ORDER": str(files["order.json"])},
        cwd=Path(__file__).resolve().parents[1],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS + 60,
    )
    assert files["result.json"].exists(), run.stderr
    result = json.loads(files["result.json"].read_text())
    assert not result["problem"], (result, run.stderr)
    return list(result["answers"])
