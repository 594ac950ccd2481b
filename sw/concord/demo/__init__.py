"""The demonstration: train a small network, compile it, and compare the emulator with the RTL to the last bit."""
