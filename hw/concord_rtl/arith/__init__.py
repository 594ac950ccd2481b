"""Arithmetic of the vector pipe: free-running pipelines without handshake, one result per cycle."""
