"""Limits of the size of a model."""

#: Nodes of a model, far beyond what a program memory can have.
MOST_NODES = 1 << 13
#: Elements of a tensor, far beyond what an NPU can have.
LARGEST_TENSOR = 1 << 24
