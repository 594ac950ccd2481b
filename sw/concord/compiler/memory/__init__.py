"""Memories of tensors, with their places and times."""
