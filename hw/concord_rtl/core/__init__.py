"""The NPU: sequencer, pipe and memories together, its flags, and the top that a board or a simulator has."""
