"""Comparing every implementation of a program with the emulator: derived software of all kinds, golden model, RTL."""

from concord.prove.derived import Subject
from concord.prove.facts import Comparison, Difference, Proof
from concord.prove.run import DERIVED, IMPLEMENTATIONS, prove

__all__ = ["DERIVED", "IMPLEMENTATIONS", "Comparison", "Difference", "Proof", "Subject", "prove"]
