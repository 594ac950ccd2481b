"""Pictures that matplotlib draws: their colours, their style, and their files.

matplotlib belongs to the ``demo`` extra, so it is imported when a picture is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Those of a page on white (``style.css``), and one more.
INK, MUTED, GRID = "#1b2733", "#5c6873", "#dfe5ea"
BLUE, TEAL, AMBER, RED, VIOLET = "#1f6fb2", "#2a9d8f", "#d98a1f", "#c8442d", "#7a4fa3"

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "figure.facecolor": "white",
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "legend.frameon": False,
}


@contextmanager
def drawing() -> Iterator[Any]:
    """``matplotlib.pyplot`` in the style of all pictures; it needs no screen, and figures are closed in the end.

    Raises
    ------
    ModuleNotFoundError
        Without matplotlib.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(_STYLE):
        try:
            yield plt
        finally:
            plt.close("all")


def png(figure: Any, dpi: int = 110) -> bytes:
    """A figure as a file, which is the same in every run."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()
