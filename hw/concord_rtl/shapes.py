"""The bridge from :mod:`concord.spec` layouts to Amaranth shapes."""

from amaranth import Shape
from amaranth.lib import data

from concord.spec.fields import Layout


def shape_of(layout: Layout) -> data.StructLayout:
    """Return the Amaranth layout with the same fields at the same positions."""
    members = {}
    for field in layout.fields:
        item = Shape(field.width, field.signed)
        members[field.name] = item if field.count is None else data.ArrayLayout(item, field.count)
    return data.StructLayout(members)
