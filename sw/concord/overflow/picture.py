"""An analysis as a picture: a panel per storage, layers against widths.

Needs the ``demo`` extra (matplotlib). Draws what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from concord.display.pictures import GRID, INK, MUTED, RED, TEAL, drawing, png
from concord.display.terminal import counted
from concord.overflow.results import Analysis, LayerOverflow

#: Height of a layer and of everything else, in inches.
_ROW, _REST = 0.26, 1.9


def picture(analysis: Analysis) -> bytes:
    """A PNG: how many values leave a storage, by its width, with what was observed and the bound for every input."""
    layers = analysis.layers
    most = max(analysis.bound("intermediate"), analysis.bound("output"), 8) + 1
    name = "products and partial sums" if analysis.view == "integers" else "terms and partial sums"
    storages = (("intermediate", name, analysis.width), ("output", "outputs", analysis.output_width))
    top = max(10, *(analysis.count(0, checked) for checked, _, _ in storages))
    with drawing() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(13, _REST + _ROW * len(layers)), sharey=True, layout="constrained")
        for axes, (checked, name, chosen) in zip(panels, storages, strict=True):
            image = _panel(axes, layers, checked, most, top)
            if chosen <= most:
                axes.axvline(chosen + 0.5, color=RED, lw=1.4, ls="--", label=f"storage of {chosen} bits")
            axes.set(title=f"{name} beyond a storage of so many bits", xlabel="bits")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=3)
        bar = figure.colorbar(image, ax=panels, pad=0.01, fraction=0.03)
        bar.set_label("values (log)")
        bar.outline.set_edgecolor(GRID)
        title = f"{analysis.name}: {analysis.storage}; {counted(analysis.samples, 'samples')}"
        figure.suptitle(title, fontsize=12, x=0.01, ha="left")
        return png(figure, 130)


def _panel(axes: Any, layers: Sequence[LayerOverflow], checked: str, most: int, top: int) -> Any:
    """Layers against the widths of a storage; returns the image, for its colours."""
    from matplotlib.colors import LogNorm

    counts = np.array([[layer.beyond(width, checked) for width in range(1, most + 1)] for layer in layers])
    image = axes.imshow(
        np.ma.masked_equal(counts, 0),
        aspect="auto",
        cmap="YlOrRd",
        norm=LogNorm(1, top),
        interpolation="nearest",
        zorder=1,
        extent=(0.5, most + 0.5, len(layers) - 0.5, -0.5),
    )
    rows = np.arange(len(layers))
    observed, bounds = [layer.needed(checked) for layer in layers], [layer.bound(checked) for layer in layers]
    axes.hlines(rows, observed, bounds, color=MUTED, lw=1.2, zorder=2)
    axes.plot(observed, rows, "o", ms=6, color=INK, label="observed: free on the samples from here on")
    axes.plot(bounds, rows, "|", ms=13, mew=2.5, color=TEAL, label="bound: free for every input")
    axes.set_yticks(rows, [layer.name for layer in layers], fontsize=8)
    axes.set_xticks(np.arange(4, most + 1, 4))
    axes.grid(axis="x", lw=0.6)
    return image
