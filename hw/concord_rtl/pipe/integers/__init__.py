"""Integer chains in hardware, bit for bit as :mod:`concord.spec.integers` says."""
