"""Conversion of data sets between the shapes of a network and the native form of the NPU."""
