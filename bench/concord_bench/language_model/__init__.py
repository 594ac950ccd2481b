"""A language model of characters: trained here in minutes, and written by an NPU that keeps its keys and values.

``python -m concord_bench.language_model train`` trains it with PyTorch. ``write`` compiles it, and lets the emulator,
derived software and the RTL write the same text.
"""
