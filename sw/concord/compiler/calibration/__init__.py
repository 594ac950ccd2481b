"""Formats and weights that samples choose."""
