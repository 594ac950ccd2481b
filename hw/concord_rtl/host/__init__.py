"""Host side of the NPU: the bus, its regions, registers and counters."""
