"""What must hold of units of the RTL for all inputs: benches with assertions, and definitions for the solver."""
