"""The chain pipe: walkers, hazard tracking, operand fetch, launch and writeback."""
