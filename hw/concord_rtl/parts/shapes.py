"""The bridge from :mod:`concord.spec` layouts to Amaranth shapes."""

from __future__ import annotations

from typing import Any

from amaranth import Shape, Value
from amaranth.lib import data, stream

from concord.spec.fields import Layout
from concord.spec.isa import FORMS, Op


def shape_of(layout: Layout) -> data.StructLayout:
    """Return the Amaranth layout with the same fields at the same positions."""
    members = {}
    for field in layout.fields:
        item = Shape(field.width, field.signed)
        members[field.name] = item if field.count is None else data.ArrayLayout(item, field.count)
    return data.StructLayout(members)


def view(op: Op, word: Value) -> Any:
    """The fields of an instruction in a word."""
    return data.View(shape_of(FORMS[op].layout), word)


def stream_of(shape: Any) -> stream.Signature:
    """A stream whose payloads have a shape, which is anything that Amaranth takes for one."""
    return stream.Signature(shape)
