"""Amaranth RTL of the Concord NPU; imports `concord.spec` only."""
