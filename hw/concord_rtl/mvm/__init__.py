"""Tile engines: from matrix words and vectors to accumulators in order."""
