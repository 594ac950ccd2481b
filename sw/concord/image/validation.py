"""Valid memory words: codes of the number format, and tables inside the table memory.

The hardware stores any bits; what it computes from others than these is not defined. So images and the driver refuse
them, whatever is behind the driver.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from concord.image.words import unpack_words
from concord.spec.config import NpuConfig
from concord.spec.fields import Field, Layout
from concord.spec.integers import SUM_BITS
from concord.spec.memmap import Region, RegionId
from concord.spec.widths import largest
from concord.utils.arrays import Array, Bools, Bytes, Ints

_Fault = tuple[Bools, str, Array]


class WordError(ValueError):
    """A word of a memory is no code of its format."""


def check_words(region: Region, start: int, data: Bytes, config: NpuConfig) -> None:
    """Refuse words that a memory must not hold.

    Parameters
    ----------
    region : Region
        Where they are for.
    start : int
        Address of the first one.
    data : uint8 ``[count, nbytes]``
        The words, as on the link.
    config : NpuConfig
        Gives the formats.

    Raises
    ------
    ContentError
        If unused bits are set, a mantissa is ``-2**(m-1)``, an exponent is out of the range of its format, a table
        descriptor has no codes or codes without an entry, or a greatest magnitude has 48 bits. The message names the
        region, the address of the first such word, and what must hold. Binary16 words may hold any pattern, and every
        memory zeros, as it does at first.
    """
    if not len(data):
        return
    for wrong, rule, values in _faults(region, data, config):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise WordError(f"word {start + at} of {region.id.name} must have {rule}, not {_text(values[at])}")


def _text(values: Array) -> str:
    """A number, or a range."""
    return "..".join(map(str, np.atleast_1d(values)))


def _faults(region: Region, data: Bytes, config: NpuConfig) -> Iterator[_Fault]:
    """Words that break a rule, the rule in words, and what the words have instead, for every rule."""
    unused = 8 * region.nbytes - region.word.width
    if unused:
        high = data[:, -1] >> 8 - unused
        yield high != 0, f"zeros in its upper {unused} bits", high
    if region.id is RegionId.MATRIX:
        exps = 0, config.wgt_exp_max - config.wgt_exp_min
        yield from _blocks(region.word, data, config.wgt.q_max, exps, config.wgt_exp_min)
    elif region.id is RegionId.NARROW:
        yield from _blocks(region.word, data, config.act.q_max, (config.act.exp_min, config.act.exp_max), 0)
    elif region.id is RegionId.SLOTS:
        yield from _slots(region.word, data, config)
    elif region.id is RegionId.TENSORS:
        most = largest(SUM_BITS)
        top = unpack_words(region.word, data)["top"]
        yield top > most, f"a greatest magnitude of at most {most}", top


def _blocks(layout: Layout, data: Bytes, q_max: int, exps: tuple[int, int], bias: int) -> Iterator[_Fault]:
    """Blocks of mantissas with a shared exponent, which is stored less ``bias``."""
    bits = np.unpackbits(data, axis=1, bitorder="little")
    fields = {field.name: (at, field) for at, field in layout.placed()}
    at, field = fields["mant"]
    mant = bits[:, at : at + field.span].reshape(len(data), -1, field.width)
    least = (mant[:, :, -1] > mant[:, :, :-1].max(axis=2)).any(axis=1)
    yield least, f"mantissas in {-q_max}..{q_max}", np.full(len(data), -q_max - 1)
    exp = _number(bits, *fields["exp"])
    low, high = exps
    yield (exp < low) | (exp > high), f"an exponent in {low + bias}..{high + bias}", exp + bias


def _number(bits: Bytes, at: int, field: Field) -> Ints:
    """One field of every word."""
    number = bits[:, at : at + field.width].astype(np.int64) @ (1 << np.arange(field.width))
    return np.asarray(number - (number >> field.width - 1 << field.width) if field.signed else number)


def _slots(layout: Layout, data: Bytes, config: NpuConfig) -> Iterator[_Fault]:
    fields = unpack_words(layout, data)
    low, high, offset = (fields[name] for name in ("low", "high", "offset"))
    yield low > high, "low not above high", np.stack([low, high], axis=1)
    entries = np.stack([low, high], axis=1) + offset[:, None]
    last = config.table_depth - 1
    yield (entries[:, 0] < 0) | (entries[:, 1] > last), f"its entries in 0..{last}", entries
