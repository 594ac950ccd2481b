"""Lattice iCE40, of which UP devices have cells that are instantiated."""
