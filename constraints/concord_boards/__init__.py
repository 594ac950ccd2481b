"""Boards the bitstreams are built for: data only."""

from concord.spec.names import unknown_name
from concord_boards.board import Board
from concord_boards.colorlight import COLORLIGHT
from concord_boards.icebreaker import ICEBREAKER
from concord_boards.icepi_zero import ICEPI_ZERO
from concord_boards.icesugar_pro import ICESUGAR_PRO
from concord_boards.orangecrab import ORANGECRAB
from concord_boards.ulx3s import ULX3S

__all__ = ["BOARDS", "Board", "board_named"]

#: The boards by name.
BOARDS: dict[str, Board] = {
    board.name: board for board in (*ULX3S, ICEBREAKER, *ORANGECRAB, ICEPI_ZERO, *COLORLIGHT, ICESUGAR_PRO)
}


def board_named(name: str) -> Board:
    """Return a board; ``ValueError`` lists the names, and guesses which one was meant."""
    if name not in BOARDS:
        raise unknown_name("board", BOARDS, name)
    return BOARDS[name]
