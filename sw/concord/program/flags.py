"""Sticky flags explained to users: the layer that raised them, their meaning, and what helps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ldexp
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from concord.display.tables import text_table
from concord.image import Image
from concord.program.assembler import describe
from concord.spec import isa
from concord.spec.formats import BINARY16_MAX, Flag
from concord.spec.isa import Op
from concord.spec.memmap import RegionId

#: Effects of a flag on the numbers, and advice.
_TEXTS = {
    Flag.ACC_OVERFLOW: (
        "a sum, or a part of one in a narrow register, is beyond the accumulator and was cut off at its limit",
        "smaller inputs or weights, or an NPU with a wider accumulator (compile --accumulator; acc_width)",
    ),
    Flag.HALF_OVERFLOW: (
        f"a result is beyond {BINARY16_MAX:g}, the greatest binary16 number, and became an infinity",
        f"smaller inputs or weights: values between layers must stay below {BINARY16_MAX:g}",
    ),
    Flag.NONFINITE: (
        f"an infinity or NaN came in and was taken for ±{BINARY16_MAX:g} or 0",
        f"finite inputs below {BINARY16_MAX:g}; look at the layers before that have HALF_OVERFLOW",
    ),
    Flag.SATURATED: (
        "values are beyond the static exponent of the result and were cut off",
        "calibrate with samples that cover such values",
    ),
    Flag.TABLE_CLAMPED: (
        "values are beyond a table and were cut off",
        "calibrate with samples that cover such values, or give their --input-range",
    ),
}


#: End of the name of a table that normalisations look up.
OF_NORMALISATION = " of a normalisation"
#: Name of the flag of the host for numbers that a function which it computes is not defined for.
DOMAIN = "DOMAIN"
#: Name of the flag of the host for inputs that are unlike what the network was compiled for.
INPUT_RANGE = "INPUT_RANGE"


@dataclass(frozen=True)
class FlagDiagnostic:
    """A flag that a chain raised.

    Parameters
    ----------
    layer : str
        Name of the layer, or the input or the result; empty in an image that has none.
    address : int or None
        Of the ``v_rd`` of the chain; ``None`` if it is about an input or a result.
    instruction : str
        That instruction as text.
    flag : str
        Name of the flag; of the host ``"NOT_FINITE"`` for results, ``"DOMAIN"`` for what it
        computes itself, and ``"INPUT_RANGE"`` for inputs.
    meaning, advice : str
        For people.
    """

    layer: str
    address: int | None
    instruction: str
    flag: str
    meaning: str
    advice: str

    @property
    def where(self) -> str:
        """The layer, or the instruction."""
        return _where(self.layer, self.address, self.instruction)

    @property
    def text(self) -> str:
        """Diagnostic in one line."""
        return f"{self.where}: {self.flag}, {self.meaning}"

    @property
    def hint(self) -> str:
        """The line about it, with what helps."""
        return f"{self.text}; what helps: {self.advice}"


def diagnose_flags(image: Image, flags: Mapping[int, Iterable[Flag]]) -> list[FlagDiagnostic]:
    """Diagnostics of the flags of a device, in the order of the program.

    Parameters
    ----------
    image : Image
        What ran.
    flags : mapping of int to flags
        By address of the ``v_rd``, as :meth:`concord.host.device.Device.flags` gives them.
    """
    diagnostics = []
    for address, names in sorted(flags.items()):
        layer, instruction = layer_of(image, address), describe(image.program[address])
        for flag in names:
            meaning, advice = _TEXTS[flag]
            if flag is Flag.SATURATED and any(op is Op.M_WR for op, _ in _chain(image.program, address)):
                most = image.config.wgt.limit
                meaning = (
                    f"rows of a matrix have values of {most:g} or more, which weights cannot hold, and were cut off"
                )
                advice = f"a tensor that stays below {most:g}, or an NPU with a greater wgt_exp_max"
            if flag is Flag.TABLE_CLAMPED:
                meaning = "values were cut off: " + "; ".join(_tables_of(image, address))
            diagnostics.append(FlagDiagnostic(layer, address, instruction, flag.name, meaning, advice))
    return diagnostics


def not_finite(outputs: Mapping[str, ArrayLike]) -> list[FlagDiagnostic]:
    """Results with infinities or NaNs, ``[samples, ...]`` by name: constants can make them without any flag."""
    diagnostics = []
    for name, values in outputs.items():
        array = np.asarray(values, dtype=np.float64)
        bad = int((~np.isfinite(array)).reshape(len(array), -1).any(axis=1).sum()) if array.ndim else 0
        if bad:
            meaning = f"{bad} of {len(array)} samples have an infinity or NaN in the result"
            advice = f"inputs and constants below {BINARY16_MAX:g}"
            diagnostics.append(FlagDiagnostic(f"result {name}", None, "", "NOT_FINITE", meaning, advice))
    return diagnostics


def where_of(image: Image, address: int) -> str:
    """Layer or instruction to which flags of the chain at an address belong, as :attr:`FlagDiagnostic.where`."""
    return _where(layer_of(image, address), address, describe(image.program[address]))


def _where(layer: str, address: int | None, instruction: str) -> str:
    return layer or f"{address}: {instruction}"


def layer_of(image: Image, address: int) -> str:
    """Name of the layer that an instruction belongs to; empty if the image has no layers."""
    starts: list[Any] = image.metadata.get("program", [])
    index = bisect_right([pc for pc, _ in starts], address) - 1
    return str(image.metadata["layers"][starts[index][1]]["name"]) if index >= 0 else ""


def _tables_of(image: Image, address: int) -> list[str]:
    """Texts about the tables of a chain: what they cover, and the ends beyond which their functions go on."""
    layout = image.config.table_slot
    words = image.memory(RegionId.SLOTS)
    names = {entry["address"]: entry["name"] for entry in image.metadata.get("map", ()) if entry["memory"] == "slots"}
    texts = []
    for slot in _tables(image.program, address):
        fields = layout.unpack(words[slot])
        name = str(names.get(slot, f"table {slot}")).rpartition(".")[2]
        if name.endswith(OF_NORMALISATION):
            texts.append("a normalisation met vectors far quieter, or far louder, than those that it was made for")
            continue
        low, high = (ldexp(fields[end], -fields["scale"]) for end in ("low", "high"))
        ends = {(0, 0): "goes on on both sides", (0, 1): "goes on below", (1, 0): "goes on above"}
        open_end = ends.get((fields["settled_low"], fields["settled_high"]))
        if open_end is not None:
            texts.append(f"the table of {name} covers {low:g} to {high:g}, the function {open_end}")
    return texts


def _chain(program: Sequence[int], address: int) -> Iterator[tuple[Op, dict[str, int]]]:
    """Instructions of the chain at an address, with their fields."""
    for word in program[address:]:
        form, values = isa.decode(word)
        yield form.op, values
        if values.get("last"):
            return


def _tables(program: Sequence[int], address: int) -> list[int]:
    """Slots of the tables in the chain at an address, in order, each once."""
    chain = _chain(program, address)
    return list(dict.fromkeys(values["table"] for op, values in chain if op is Op.V_TBL))


def flag_table(records: Sequence[FlagDiagnostic], title: str = "Flags that were raised") -> Table:
    """Records for a terminal: a row for each layer and meaning."""
    rows = dict.fromkeys((record.where, record.flag, record.meaning, record.advice) for record in records)
    columns = ("layer", "flag", "what happened", "what helps")
    return text_table(title, columns, rows=rows, title_style="bold red")
