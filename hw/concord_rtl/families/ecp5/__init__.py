"""Lattice ECP5."""
