"""Netlists as Yosys and nextpnr write them, and the circuits they are turned into for simulation."""
