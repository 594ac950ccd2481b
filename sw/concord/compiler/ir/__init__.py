"""Layers, and the places of tensors in memory."""
