"""Measure and write the figures; ``concord bench`` is the same."""

from concord.cli import bench

bench()
