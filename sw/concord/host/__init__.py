"""Driver of the NPU: one API for the emulator, the compiled RTL and a serial port."""
