"""Backends: a model of :mod:`concord.derive.ir` as a file for other processors."""
