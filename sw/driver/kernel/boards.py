"""Boards with an RK3588 or RK3588S, by which programs recognise the machine.

Names and texts are those of the root nodes of the device trees in torvalds/linux,
arch/arm64/boot/dts/rockchip/rk3588-*.dts and rk3588s-*.dts (properties `compatible` and `model`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Board:
    """The identity of a board.

    Members
    -------
    name : first entry of `compatible`.
    soc : last entry, the chip.
    model : text for people.
    """

    name: str
    soc: str
    model: str

    @property
    def compatible(self) -> str:
        """The property as the file has it: entries that end with a null character."""
        return f"{self.name}\0{self.soc}\0"


_ALL = (
    Board("radxa,rock-5b", "rockchip,rk3588", "Radxa ROCK 5B"),
    Board("xunlong,orangepi-5-plus", "rockchip,rk3588", "Xunlong Orange Pi 5 Plus"),
    Board("friendlyarm,nanopc-t6", "rockchip,rk3588", "FriendlyElec NanoPC-T6"),
    Board("turing,rk1", "rockchip,rk3588", "Turing Machines RK1"),
    Board("xunlong,orangepi-5", "rockchip,rk3588s", "Xunlong Orange Pi 5"),
    Board("khadas,edge2", "rockchip,rk3588s", "Khadas Edge2"),
    Board("rkcosim,rk3588-simulated", "rockchip,rk3588", "Simulated RK3588"),
)
BOARDS = {board.name: board for board in _ALL}
"""The boards by name; the last one is no board that exists."""

DEFAULT_BOARD = "radxa,rock-5b"


def board_named(name: str | None) -> Board:
    """Return a board, the default one for None.

    Raises
    ------
    ValueError
        If there is no board of this name; the message lists the names.
    """
    found = BOARDS.get(name or DEFAULT_BOARD)
    if found is None:
        raise ValueError(f"there is no board '{name}', only {', '.join(BOARDS)}")
    return found
