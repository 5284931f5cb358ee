"""Text files that programs read: debugfs, proc, devfreq, runtime PM, device tree."""

from __future__ import annotations

from collections.abc import Callable
from errno import EACCES, EFAULT, EINVAL
from typing import TYPE_CHECKING

from rkcosim.driver.kernel.clock import STEPS_HZ
from rkcosim.driver.kernel.interface import KernelError

if TYPE_CHECKING:
    from rkcosim.driver.kernel.boards import Board
    from rkcosim.driver.kernel.rknpu_jobs import RknpuCore

PLATFORM = "fdab0000.npu"
DEVFREQ = f"/sys/class/devfreq/{PLATFORM}"
DEVICE = f"/sys/devices/platform/{PLATFORM}"
CORE_DEVICES = ("fdab0000.npu", "fdac0000.npu", "fdad0000.npu")
TREES = ("/proc/device-tree", "/sys/firmware/devicetree/base")
"""Folders of the device tree; in Linux the first is a link to the second."""

AT_FULL_SPEED = ("rknpu_ondemand", "performance", "userspace", "simple_ondemand")
"""Governors that leave the clock where it is; a further one, powersave, would lower it."""

SRAM_CHUNK, SRAM_ROW = 4096, 32
"""Bytes of a character in the map of the file `mm`, and characters in a row."""


class TextFile:
    """A file of the simulated machine.

    Parameters
    ----------
    text
        Its contents, or a function that returns them.
    store
        Function that receives written text; None: read-only.
    """

    def __init__(self, text: str | Callable[[], str], store: Callable[[str], None] | None = None) -> None:
        self._text, self._store = text, store

    @property
    def writable(self) -> bool:
        """Whether `write` works."""
        return self._store is not None

    def read(self) -> bytes:
        """The current text."""
        return (self._text if isinstance(self._text, str) else self._text()).encode()

    def write(self, data: bytes) -> int:
        """Write once; returns the number of bytes accepted.

        Raises
        ------
        KernelError
            EACCES for a read-only file, EINVAL or EFAULT as the driver.
        """
        if self._store is None:
            raise KernelError(EACCES, "read-only")
        self._store(data.decode("latin-1"))
        return len(data)

    def close(self) -> None:
        """A program's descriptor has been closed; there is nothing to do."""


def _word(text: str, room: int) -> str:
    """The text that a driver's write handler with a buffer of `room` bytes sees."""
    if not text or len(text) > room - 1:
        raise KernelError(EINVAL, f"{len(text)} bytes written, 1..{room - 1} expected")
    return text.split("\n")[0].strip()


def _number(text: str, room: int) -> int:
    word = _word(text, room)
    try:
        value = int(word, 0)
    except ValueError:
        raise KernelError(EFAULT, f"{word!r} is not a number") from None
    if not 0 <= value < 1 << 64:
        raise KernelError(EFAULT, f"{word!r} is out of range")
    return value


def sram_map(total: int, free: int) -> str:
    """Return the text of `mm`: a map of the on-chip memory, as the vendor's guide on the NPU's SRAM shows it.

    Buffers have no places here, so that what is used is shown at the beginning.
    """
    chunks, used = total // SRAM_CHUNK, -(-(total - free) // SRAM_CHUNK)
    text = ("*" * used).ljust(chunks, ".")
    rows = [text[first : first + SRAM_ROW] for first in range(0, chunks, SRAM_ROW)]
    lines = [f'SRAM bitmap: "*" - used, "." - free (1bit = {SRAM_CHUNK // 1024}KB)']
    lines += [f"[{number:03}] [{row}]" for number, row in enumerate(rows)]
    lines += [f"SRAM total size: {total}, used: {total - free}, free: {free}"]
    return "\n".join(lines) + "\n"


def rknpu_files(driver: RknpuCore, *, fixed_clock: bool = False) -> dict[str, TextFile]:
    """Files of the vendor's driver.

    Parameters
    ----------
    driver
        The driver.
    fixed_clock
        Whether programs cannot change the frequency, because somebody else measures time by it.

    Returns
    -------
    Files by absolute path.
    """
    scheduler = driver.scheduler
    clock = scheduler.clock

    def load() -> str:
        with driver.lock:
            parts = []
            for core in range(scheduler.device.cores):
                job = scheduler.busy.get(core)
                since = None if job is None else clock.time(job.started_at)
                parts.append(f"Core{core}: {scheduler.load.percent(core, scheduler.time, since):2d}%")
        return f"NPU load:  {', '.join(parts)},\n"

    def total() -> str:
        with driver.lock:
            busy = scheduler.load.percent(0, scheduler.time, None)
        return f"{busy}@{clock.hz}Hz\n"

    def power(text: str) -> None:
        word = _word(text, 8)
        if word not in ("on", "off"):
            raise KernelError(EINVAL, f"power: {word!r}")
        driver.powered = word == "on"

    def frequency(text: str) -> None:
        hz = _number(text, 16)
        steps = (clock.hz,) if fixed_clock else STEPS_HZ
        if hz not in steps:
            raise KernelError(EINVAL, f"{hz} Hz is none of {', '.join(map(str, steps))}")

        def change() -> None:
            clock.set(hz, scheduler.cycle)

        scheduler.call(change)

    def delay(text: str) -> None:
        driver.delay_ms = _number(text, 16)

    def reset(text: str) -> None:
        word = _word(text, 8)
        if word == "1":
            scheduler.call(driver.soft_reset)
        elif word in ("on", "off"):
            driver.bypass_reset = word == "off"
        else:
            raise KernelError(EINVAL, f"reset: {word!r}")

    governor = ["rknpu_ondemand"]

    def govern(text: str) -> None:
        word = _word(text, 16)
        if word not in AT_FULL_SPEED and (fixed_clock or word != "powersave"):
            raise KernelError(EINVAL, f"governor: {word!r}")
        governor[0] = word
        if word == "powersave":
            frequency(str(STEPS_HZ[0]))
        elif word == "performance":
            frequency(str(STEPS_HZ[-1]))

    def set_frequency(text: str) -> None:
        if governor[0] != "userspace":
            raise KernelError(EINVAL, f"set_freq with the governor {governor[0]}")
        frequency(text)

    major, minor, patch = driver.version
    debug = {
        "version": TextFile(f"{driver.description}: v{major}.{minor}.{patch}\n"),
        "load": TextFile(load),
        "power": TextFile(lambda: f"{'on' if driver.powered else 'off'}\n", power),
        "freq": TextFile(lambda: f"{clock.hz}\n", frequency),
        "volt": TextFile(lambda: f"{clock.microvolts}\n"),
        "delayms": TextFile(lambda: f"{driver.delay_ms}\n", delay),
        "reset": TextFile(lambda: f"{'off' if driver.bypass_reset else 'on'}\n", reset),
    }
    if driver.sram:
        debug["mm"] = TextFile(lambda: sram_map(driver.sram, driver.sram_free))
    files = {
        f"{folder}/{name}": text
        for folder in ("/sys/kernel/debug/rknpu", "/proc/rknpu")
        for name, text in debug.items()
    }
    files |= {
        f"{DEVFREQ}/cur_freq": TextFile(lambda: f"{clock.hz}\n"),
        f"{DEVFREQ}/target_freq": TextFile(lambda: f"{clock.hz}\n"),
        f"{DEVFREQ}/name": TextFile(f"{PLATFORM}\n"),
        f"{DEVFREQ}/governor": TextFile(lambda: f"{governor[0]}\n", govern),
        f"{DEVFREQ}/userspace/set_freq": TextFile(lambda: f"{clock.hz}\n", set_frequency),
        f"{DEVFREQ}/load": TextFile(total),
        f"{DEVFREQ}/available_frequencies": TextFile(" ".join(map(str, STEPS_HZ)) + "\n"),
        f"{DEVFREQ}/min_freq": TextFile(f"{STEPS_HZ[0]}\n"),
        f"{DEVFREQ}/max_freq": TextFile(f"{STEPS_HZ[-1]}\n"),
        f"{DEVFREQ}/trans_stat": TextFile("Not Supported.\n"),
        f"{DEVICE}/power/runtime_status": TextFile("active\n"),
        f"{DEVICE}/power/runtime_usage": TextFile(lambda: f"{len(scheduler.busy)}\n"),
        f"{DEVICE}/power/control": TextFile("auto\n"),
        f"{DEVICE}/uevent": TextFile(
            "DRIVER=RKNPU\nOF_NAME=npu\nOF_FULLNAME=/npu@fdab0000\nOF_COMPATIBLE_0=rockchip,rk3588-rknpu\nOF_COMPATIBLE_N=1\n"
        ),
        "/sys/module/rknpu/parameters/bypass_soft_reset": TextFile(lambda: f"{int(driver.bypass_reset)}\n"),
        "/sys/module/rknpu/parameters/bypass_irq_handler": TextFile("0\n"),
    }
    return files


def board_files(board: Board) -> dict[str, TextFile]:
    """Files that identify the board."""
    texts = {"compatible": board.compatible, "model": f"{board.model}\0"}
    return {f"{tree}/{name}": TextFile(text) for tree in TREES for name, text in texts.items()}


def node_files(minors: dict[str, tuple[int, int]], parents: dict[str, str]) -> dict[str, TextFile]:
    """`dev` and `uevent` of every node: name below /dev -> (major, minor), and its platform device."""
    files = {}
    for name, (major, minor) in minors.items():
        kind, _, short = name.rpartition("/")
        subsystem = "accel" if kind == "accel" else "drm"
        text = f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDEVTYPE={subsystem}_minor\n"
        for folder in (f"/sys/dev/char/{major}:{minor}", f"/sys/class/{subsystem}/{short}"):
            files[f"{folder}/dev"] = TextFile(f"{major}:{minor}\n")
            files[f"{folder}/uevent"] = TextFile(text)
            files[f"{folder}/device/uevent"] = TextFile(parents[name])
    return files


def node_links(minors: dict[str, tuple[int, int]], drivers: dict[str, str]) -> dict[str, str]:
    """Symbolic links: path -> target; `drivers`: node -> folder of the platform driver."""
    links = {}
    for name, (major, minor) in minors.items():
        kind, _, short = name.rpartition("/")
        platform = PLATFORM if kind == "dri" else "rknn"
        subsystem = "accel" if kind == "accel" else "drm"
        for folder in (f"/sys/dev/char/{major}:{minor}", f"/sys/class/{subsystem}/{short}"):
            links[f"{folder}/subsystem"] = f"/sys/class/{subsystem}"
            links[f"{folder}/device/subsystem"] = "/sys/bus/platform"
            links[f"{folder}/device/driver"] = f"/sys/bus/platform/drivers/{drivers[name]}"
        if kind == "dri":
            suffix = "render" if short.startswith("render") else "card"
            links[f"/dev/dri/by-path/platform-{platform}-{suffix}"] = f"../{short}"
        for device in CORE_DEVICES if kind == "accel" else (PLATFORM,):
            links[f"/sys/bus/platform/drivers/{drivers[name]}/{device}"] = f"/sys/devices/platform/{device}"
    return links
