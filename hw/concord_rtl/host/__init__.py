"""What the host sees of the NPU: the bus, its regions, registers and counters."""
