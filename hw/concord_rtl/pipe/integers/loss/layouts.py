"""Layouts of the fields that go along with the elements of samples."""

from amaranth.lib import data
from amaranth.lib.enum import Enum

from concord.spec.config import NpuConfig
from concord.spec.integers import judged_per_word


class Pass(Enum, shape=2):
    """Pass over a sample, named after its result."""

    MAXIMUM = 0  #: the greatest logit
    TOTAL = 1  #: powers, and their sum
    SHARES = 2  #: the share of each power in that sum


def slot_layout(config: NpuConfig) -> data.StructLayout:
    """A slot for an element, or of a word that has none.

    ``place``: of the element in its word. ``keep``: it is a class. ``first``, ``last``: it is that slot of the pass.
    ``ends``: it is the last one of its word. ``second``: the word is the second one of its vector.
    """
    return data.StructLayout(
        {
            "place": range(judged_per_word(config.native)),
            "keep": 1,
            "first": 1,
            "last": 1,
            "ends": 1,
            "second": 1,
        }
    )
