"""Whether weights that are trained for an accumulator of few bits stay within its bound."""

from concord.sums.reach import radius
from concord.train.bound import row_norms


def within_bound(trainer):
    """For ``fit``, after every step: assert that no sum of any input can leave the accumulator; training goes on."""
    for scale in trainer.monitor.scales:
        limit = radius(trainer.monitor.bits, trainer.monitor._limits(scale)[1])
        assert all(row_norms(site.weight, site.positive).max() <= limit for site in scale.sites)
        assert len({int(site.weight.exp[0]) for site in scale.sites}) == 1, "sites of a scale share an exponent"
    return False
