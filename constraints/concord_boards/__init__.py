"""Boards the bitstreams are built for: data-only platform classes."""
