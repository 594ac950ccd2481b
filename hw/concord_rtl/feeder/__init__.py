"""The feeder: raw inputs from the link are laid out as native vectors, and results are collected for it."""
