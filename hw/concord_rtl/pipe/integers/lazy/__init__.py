"""Lazy update of weights in hardware, bit for bit as :mod:`concord.golden.lazy_update` defines it."""
