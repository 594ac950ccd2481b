"""The device side of :mod:`concord.spec.link`: byte streams to framed requests to accesses on the host bus."""
