"""Options that mean something for a network alone."""

from __future__ import annotations

from collections.abc import Sequence

from concord.compiler.calibration.calibration import classifies
from concord.compiler.calibration.mantissas import Budget
from concord.graph.ir import Graph
from concord.utils.numbers import number_of


def budget_of(text: str | None, graph: Graph, labelled: bool) -> Budget:
    """Budget of a text, ``0.5`` or ``5%``, or the default; ``ValueError`` if it does not suit the network."""
    classes = labelled or classifies(graph)
    text = text or ("0.5" if classes else "5%")
    try:
        points = number_of(text.removesuffix("%"), "budget")
    except ValueError:
        points = -1.0
    if not points >= 0:
        raise ValueError(f"budget must be points such as 0.5, or a relative error such as 5%, not {text!r}")
    if text.endswith("%"):
        return Budget("error", points)
    if not classes:
        raise ValueError(f"budget must be a relative error such as 5%, as the result is no class, not {text!r}")
    return Budget("accuracy" if labelled else "agreement", points)


def input_ranges(ranges: Sequence[str], graph: Graph) -> dict[str, tuple[float, float]]:
    """Ranges of inputs by name, from texts: ``LOW,HIGH`` for the only input, or ``NAME=LOW,HIGH``.

    Raises
    ------
    ValueError
        For anything else.
    """
    pairs: dict[str, tuple[float, float]] = {}
    for text in ranges:
        name, equals, ends = text.rpartition("=")
        if not equals and len(graph.inputs) == 1:
            name = graph.inputs[0]
        try:
            low, high = (number_of(end, "input-range") for end in ends.split(","))
        except ValueError:
            low = high = float("nan")
        if not low < high or name not in graph.inputs or name in pairs:
            names = ", ".join(graph.inputs)
            raise ValueError(
                f"input-range must be LOW,HIGH of the only input or NAME=LOW,HIGH, once each, of {names}, not {text!r}"
            )
        pairs[name] = low, high
    return pairs


def narrow_outputs(texts: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
    """Outputs that are to leave narrow; ``ValueError`` if a text says something else."""
    kinds: dict[str, str] = {}
    for text in texts:
        name, _, kind = text.rpartition("=")
        if kind not in ("binary16", "narrow") or (name and name not in outputs):
            names = ", ".join(outputs)
            raise ValueError(f"output-format must be binary16, narrow, or one of them for one of {names}, not {text!r}")
        kinds |= dict.fromkeys([name] if name else outputs, kind)
    return tuple(name for name, kind in kinds.items() if kind == "narrow")
