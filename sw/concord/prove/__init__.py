"""Comparing every implementation of a program with the emulator: derived software of all kinds, golden model, RTL."""

from .derived import Subject
from .facts import Comparison, Difference, Proof
from .run import DERIVED, IMPLEMENTATIONS, prove

__all__ = ["DERIVED", "IMPLEMENTATIONS", "Comparison", "Difference", "Proof", "Subject", "prove"]
