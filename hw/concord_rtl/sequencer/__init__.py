"""Instruction fetch, decoding and the building of chain descriptors."""
