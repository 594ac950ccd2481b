// A circuit has no external memory at its pins.
