"""Tables of a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich import box
from rich.console import RenderableType
from rich.table import Table


def text_table(
    title: str,
    columns: Iterable[str] = (),
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    rows: Iterable[Iterable[RenderableType]] = (),
    caption: str = "",
    header: bool = True,
    title_style: str | None = None,
) -> Table:
    """A table: a line below the names of the columns; title and caption begin at the left.

    Parameters
    ----------
    title : str
        Above the table.
    columns : iterable of str
        Their names. Without any, each cell of the first row begins a column.
    right : collection of str
        Columns whose cells end at the right, such as numbers.
    whole : collection of str
        Columns whose cells are never broken into lines; the others are, where the terminal has no room.
    rows : iterable of iterables
        Cells by row; more can be added.
    caption : str
        Below the table.
    header : bool
        Whether the names of the columns are shown.
    title_style : str, optional
        A style of rich.
    """
    table = Table(
        title=title,
        caption=caption or None,
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_header=header,
        title_justify="left",
        caption_justify="left",
        title_style=title_style,
    )
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name in whole, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
