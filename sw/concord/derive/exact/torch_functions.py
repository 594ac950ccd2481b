"""Arithmetic of a quantised network in PyTorch: what derived files hold beside the text for both libraries.

That is in :mod:`.numpy_functions`. The text below the mark is copied into every file, for people to read.
"""

# mypy: ignore-errors

import torch

# --- arithmetic ---


def windows(x, kernel, strides, dilations, pads, fill=0):
    """Windows [samples, channels, *places, *kernel] of an image [samples, channels, *sizes]."""
    rank = len(kernel)
    around = [pads[k] for axis in reversed(range(rank)) for k in (axis, axis + rank)]
    x = torch.nn.functional.pad(x, around, value=fill)
    for axis, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        x = x.unfold(2 + axis, dilation * (size - 1) + 1, stride)
    return x[(..., *(slice(None, None, dilation) for dilation in dilations))]
