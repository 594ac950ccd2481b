"""Decisions of the data-type pass, as a table of the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from concord.display.tables import text_table
from concord.graph.passes.dtype_report import TensorTypes, total

_BEFORE, _AFTER = "before", "after"
#: Meaning of the columns.
_CAPTION = (
    "factors: an entry for each way down to a reader, 0 if it reads wide; written: form of the product that writes it; "
    "before, after: bytes written and read if all is wide, and with the types"
)


def type_table(rows: Sequence[TensorTypes], what: str = "") -> Table:
    """Every tensor with its list of factors, type, conversions, form of what writes it, and bytes; below it the sum.

    Parameters
    ----------
    rows : sequence of TensorTypes
        The tensors.
    what : str
        What the bytes are counted for, in the title.
    """
    table = text_table(
        f"Data types{what}",
        ("tensor", "factors", "type", "converted", "written", _BEFORE, _AFTER),
        right=(_BEFORE, _AFTER),
        whole=("type", _BEFORE, _AFTER),
        caption=_CAPTION,
    )
    for row in rows:
        converted = "\n".join(conversion.text for conversion in row.conversions)
        numbers = (f"{row.bytes_before:,}", f"{row.bytes_after:,}")
        table.add_row(row.name, row.factors, row.type, converted, ", ".join(row.forms), *numbers)
    whole = total("total", rows)
    table.add_section()
    conversions = f"{whole.conversions_before:,} before, {whole.conversions_after:,} after"
    table.add_row(whole.name, "", "", conversions, "", f"{whole.bytes_before:,}", f"{whole.bytes_after:,}")
    return table
