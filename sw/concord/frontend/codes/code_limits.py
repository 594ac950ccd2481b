"""Clip of codes: after QuantizeLinear it leaves codes of fewer bits than their type has, as Brevitas exports them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.frontend.codes.reading import Reading
from concord.frontend.context import OnnxNode
from concord.frontend.quantization import ends_of_clip
from concord.transfer import CodeRange, Codes


def is_clip_of_codes(ctx: Reading, node: OnnxNode) -> bool:
    """True if a node is a Clip of codes themselves, or of constant integers."""
    x = node.input(0)
    constant = x in ctx.constants and ctx.constants[x].dtype.name.removeprefix("u").startswith("int")
    return node.op == "Clip" and (constant or ctx.is_integer(x) or ctx.is_integer(node.outputs[0]))


def limited_by_reader(ctx: Reading, name: str, scheme: Codes) -> tuple[str, Codes]:
    """Name and scheme of the codes that QuantizeLinear makes.

    They are those of the Clip after it, if that alone reads them and its ends are those of codes of fewer bits.
    """
    reader = ctx.uses.only_reader(name)
    if reader is not None and reader.op == "Clip" and reader.input(0) == name:
        narrowed = _narrowed(scheme, *ends_of_clip(ctx.constant, reader, scheme.low, scheme.high))
        return (name, scheme) if narrowed is None else (reader.outputs[0], narrowed)
    return name, scheme


def clip_codes(ctx: Reading, node: OnnxNode) -> None:
    """Limit constant integers, or codes, whose scale and zero point stay; nothing to do if QuantizeLinear does it."""
    x, output = node.input(0), node.outputs[0]
    if ctx.is_integer(output):
        return
    if x in ctx.constants:
        codes = ctx.constants[x]
        types = np.iinfo(np.int64)
        low, high = ends_of_clip(ctx.constant, node, types.min, types.max)
        ctx.constants[output] = codes.astype(np.int64).clip(low, high).astype(codes.dtype)
        return
    source = ctx.codes(x)
    scheme = ctx.scheme_of(source)
    low, high = ends_of_clip(ctx.constant, node, scheme.low, scheme.high)
    if (narrowed := _narrowed(scheme, low, high)) is not None:
        ctx.convert(node, source, narrowed, output)
        return
    least, most = (float(np.float32(scheme.scale) * np.float32(end - scheme.zero)) for end in (low, high))
    ctx.emit(ctx.table(node.name, source, (("clip", {"min": least, "max": most}),), scheme, output), scheme)


def _narrowed(scheme: Codes, low: int, high: int) -> Codes | None:
    """The scheme with codes of as many bits as have these ends; ``None`` if no number of bits has them."""
    if not low <= scheme.zero <= high:
        return None
    for bits in range(1, scheme.bits + 1):
        for codes in CodeRange:
            if codes.ends(bits) == (low, high):
                return replace(scheme, bits=bits, range=codes)
    return None
