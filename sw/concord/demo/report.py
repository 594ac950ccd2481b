"""The picture of a demonstration run: confusion matrix, error per layer, use of the mantissa bits.

Needs the ``demo`` extra (matplotlib). Draws what it is given and computes nothing about the network itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from concord.display.pictures import AMBER, BLUE, INK, MUTED, RED, TEAL, drawing, png
from concord.utils.arrays import FloatArray, Ints
from concord.utils.files import write_bytes


@dataclass(frozen=True)
class LayerFigures:
    """One layer as seen by the report.

    Parameters
    ----------
    name : str
        Name of the layer.
    reference, computed : array
        Its output in double precision and on the NPU, samples by elements.
    """

    name: str
    reference: FloatArray
    computed: FloatArray

    @property
    def errors(self) -> FloatArray:
        """Relative error of every sample: |computed - reference| / |reference|, Euclidean."""
        scale = np.linalg.norm(self.reference, axis=1)
        scale = np.maximum(scale, 1e-9)
        return np.asarray(np.linalg.norm(self.computed - self.reference, axis=1) / scale)


@dataclass(frozen=True)
class TensorFigures:
    """One tensor that was stored narrow.

    Parameters
    ----------
    name : str
        Name of the tensor.
    format : str
        Short text of the format that was chosen.
    codes : array
        ``|x| / 2**e`` of its non-zero elements before rounding: where they lie in the window of the mantissa.
    mant : int
        Mantissa width in bits.
    """

    name: str
    format: str
    codes: FloatArray
    mant: int


@dataclass(frozen=True)
class Report:
    """Everything in the picture. ``headline`` holds (label, value) pairs."""

    title: str
    headline: tuple[tuple[str, str], ...]
    labels: Ints
    predictions: Ints
    layers: tuple[LayerFigures, ...]
    tensors: tuple[TensorFigures, ...]


def draw(report: Report, path: Path) -> None:
    """Write the picture to ``path``."""
    with drawing() as plt:
        count = len(report.tensors)
        figure = plt.figure(figsize=(13.5, 8.8))
        _headline(figure, report)
        top = figure.add_gridspec(1, 2, left=0.055, right=0.975, top=0.79, bottom=0.42, width_ratios=[1, 1.75])
        top.update(wspace=0.20)
        _confusion(figure.add_subplot(top[0, 0]), report)
        _errors(figure.add_subplot(top[0, 1]), report.layers)
        bottom = figure.add_gridspec(1, count, left=0.055, right=0.975, top=0.255, bottom=0.07, wspace=0.1)
        shared = None
        for k, tensor in enumerate(report.tensors):
            shared = _window(figure.add_subplot(bottom[0, k], sharey=shared), tensor, first=k == 0)
        figure.text(0.055, 0.325, "Where the values lie in the window of the mantissa", weight="bold", size=11)
        explanation = (
            "shaded: the codes of the mantissa; left of it values round to 0 or 1 unit, right of it they saturate"
        )
        figure.text(0.055, 0.303, explanation, size=9.5, color=MUTED)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, png(figure))


def _headline(figure: Any, report: Report) -> None:
    figure.text(0.055, 0.957, report.title, size=17, weight="bold", va="center")
    width = 0.93 / max(1, len(report.headline))
    for k, (label, value) in enumerate(report.headline):
        x = 0.055 + k * width
        figure.text(x, 0.903, value, size=15, weight="bold", color=BLUE, va="center")
        figure.text(x, 0.872, label, size=9.5, color=MUTED, va="center")


def _confusion(axes: Any, report: Report) -> None:
    classes = int(max(report.labels.max(), report.predictions.max())) + 1
    matrix = np.zeros((classes, classes), dtype=int)
    np.add.at(matrix, (report.labels, report.predictions), 1)
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    right = np.where(np.eye(classes, dtype=bool), share, np.nan)
    wrong = np.where(~np.eye(classes, dtype=bool) & (matrix > 0), share, np.nan)
    axes.set_anchor("W")
    axes.imshow(right, cmap="Blues", vmin=0, vmax=1.15)
    axes.imshow(wrong, cmap="Oranges", vmin=-0.15, vmax=0.2)
    for (row, column), number in np.ndenumerate(matrix):
        if number:
            colour = "white" if row == column and share[row, column] > 0.5 else INK
            axes.text(column, row, number, ha="center", va="center", size=8.5, color=colour)
    axes.set_xticks(range(classes))
    axes.set_yticks(range(classes))
    axes.set(xlabel="NPU says", ylabel="true digit", title="Confusion matrix")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _errors(axes: Any, layers: tuple[LayerFigures, ...]) -> None:
    data = [100 * layer.errors for layer in layers]
    boxes = axes.boxplot(data, orientation="horizontal", widths=0.5, whis=(1, 99), showfliers=False, patch_artist=True)
    for box in boxes["boxes"]:
        box.set(facecolor="#cfe3f3", edgecolor=BLUE)
    for part in ("whiskers", "caps", "medians"):
        for line in boxes[part]:
            line.set(color=BLUE, linewidth=2 if part == "medians" else 1.2)
    right = max(float(np.percentile(values, 99)) for values in data)
    for k, values in enumerate(data, 1):
        axes.text(right * 1.04, k, f"median {np.median(values):.2f} %", va="center", size=9.5)
    axes.set_xlim(0, right * 1.28)
    axes.set_yticks(range(1, len(layers) + 1), [layer.name for layer in layers])
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.set(
        title="Error of each layer's output against double precision",
        xlabel="relative error per sample in % (box: middle half, whiskers: 1 to 99 %)",
    )


def _window(axes: Any, tensor: TensorFigures, *, first: bool) -> Any:
    low, high = -5, tensor.mant - 1
    position = np.log2(tensor.codes)
    bins = np.arange(low, high + 1.01, 0.5)
    weights = np.full(len(position), 100 / max(1, len(position)))
    axes.axvspan(0, high, color="#e8f4ef", zorder=0)
    _, edges, bars = axes.hist(np.clip(position, low, high + 0.99), bins, weights=weights, zorder=2)
    for left, bar in zip(edges[:-1], bars, strict=True):
        bar.set(color=TEAL if 0 <= left < high else RED if left >= high else AMBER, edgecolor="white", linewidth=0.5)
    lost = 100 * np.mean(tensor.codes < 0.5)
    over = 100 * np.mean(tensor.codes >= (1 << tensor.mant - 1) - 0.5)
    axes.set_title(f"{tensor.name}: {tensor.format}", size=10, pad=6)
    axes.text(0.012, 0.95, f"{lost:.1f} % round to 0", transform=axes.transAxes, size=8.5, color=MUTED, va="top")
    if over:
        axes.text(
            0.99, 0.95, f"{over:.2f} % saturate", transform=axes.transAxes, size=8.5, color=RED, va="top", ha="right"
        )
    axes.set_xlim(low, high + 1)
    axes.set_xticks(range(low + 1, high + 1, 2))
    axes.grid(axis="y")
    axes.set_xlabel("log2 of |x| in units of the last mantissa bit")
    if first:
        axes.set_ylabel("% of values ≠ 0")
    else:
        axes.tick_params(labelleft=False)
    return axes
