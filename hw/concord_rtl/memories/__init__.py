"""Memories with registered outputs: data is valid two cycles after the address."""
