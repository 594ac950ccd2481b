"""An analysis as a picture: a panel per storage, layers against widths.

Needs the ``demo`` extra (matplotlib). Draws what it is given.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from concord.overflow.results import Analysis

_INK, _MUTED, _GRID = "#1b2733", "#66737f", "#dfe5ea"
_TEAL, _RED = "#2a9d8f", "#c8553d"
#: Height of a layer and of everything else, in inches.
_ROW, _REST = 0.26, 1.9


def picture(analysis: Analysis) -> bytes:
    """A PNG: how many values leave a storage, by its width, with what was observed and the bound for every input."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    layers = analysis.layers
    most = max(analysis.bound("intermediate"), analysis.bound("output"), 8) + 1
    widths = np.arange(1, most + 1)
    tops = [analysis.count(0, kind) for kind in ("intermediate", "output")]
    figure, panels = plt.subplots(
        1, 2, figsize=(13, _REST + _ROW * len(layers)), sharey=True, layout="constrained", dpi=130
    )
    image: Any = None
    for axes, checked in zip(panels, ("intermediate", "output"), strict=True):
        counts = np.array(
            [[sum(s.beyond(int(w)) for s in layer.stages if s.checked == checked) for w in widths] for layer in layers],
            dtype=float,
        )
        shown = np.ma.masked_equal(counts, 0)
        image = axes.imshow(
            shown, aspect="auto", cmap="YlOrRd", norm=LogNorm(1, max(*tops, 10)), interpolation="nearest", zorder=1,
            extent=(0.5, most + 0.5, len(layers) - 0.5, -0.5),
        )  # fmt: skip
        rows = np.arange(len(layers))
        observed, bounds = [x.needed(checked) for x in layers], [x.bound(checked) for x in layers]
        axes.hlines(rows, observed, bounds, color=_MUTED, lw=1.2, zorder=2)
        axes.plot(observed, rows, "o", ms=6, color=_INK, label="observed: free on the samples from here on")
        axes.plot(bounds, rows, "|", ms=13, mew=2.5, color=_TEAL, label="bound: free for every input")
        chosen = analysis.width if checked == "intermediate" else analysis.output_width
        if chosen <= most:
            axes.axvline(chosen + 0.5, color=_RED, lw=1.4, ls="--", label=f"storage of {chosen} bits")
        name = "products and partial sums" if analysis.view == "integers" else "terms and partial sums"
        title = name if checked == "intermediate" else "outputs"
        axes.set_title(f"{title} beyond a storage of so many bits", color=_INK, fontsize=11, loc="left")
        axes.set_xlabel("bits", color=_MUTED)
        axes.set_yticks(rows, [layer.name for layer in layers], fontsize=8)
        axes.set_xticks(np.arange(4, most + 1, 4))
        axes.tick_params(colors=_MUTED, length=0)
        for side in axes.spines.values():
            side.set_color(_GRID)
        axes.grid(axis="x", color=_GRID, lw=0.6)
        axes.set_axisbelow(True)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=3, frameon=False)
    bar = figure.colorbar(image, ax=panels, pad=0.01, fraction=0.03)
    bar.set_label("values (log)", color=_MUTED)
    bar.outline.set_edgecolor(_GRID)
    figure.suptitle(
        f"{analysis.name}: {analysis.storage}; {analysis.samples} samples", color=_INK, fontsize=12, x=0.01, ha="left"
    )
    out = io.BytesIO()
    figure.savefig(out, format="png")
    plt.close(figure)
    return out.getvalue()
