"""The page ``docs/training-evidence.md``, made from the file of results."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from concord_bench.evidence.finetune import FineTuning
from concord_bench.evidence.pictures import CURVES_PICTURE, SEEDS_PICTURE, TUNING_PICTURE
from concord_bench.evidence.plan import Study
from concord_bench.evidence.scratch import Scratch
from concord_bench.evidence.store import CHOICE, Run, Store
from concord_bench.evidence.tables import Row, reference, rows

#: Points by which block floating point may be below the reference.
TARGET = 0.5

_HEAD = """# Training in block floating point beside float32

Generated from `docs/data/training.json` by `python -m concord_bench.evidence --minutes 0 --docs docs --results
docs/data/training.json`; no figure is written by hand. `python -m concord_bench.evidence --minutes 60` runs what is
not there yet, keeps every result in `build/training.json` and goes on where it was stopped. Float32 needs the `torch`
extra, networks and data sets other than the digits need `CONCORD_DATA`. The rules of training are in
[training-arithmetic.md](training-arithmetic.md); [bench.md](bench.md#training-time-of-a-step) has times of a step, and
figures of accumulators of few bits.
"""

_SCRATCH = """## From random weights

All variants of a seed begin with the same random weights, which block floating point rounds to its format, and read
the samples in the same order with the same momentum and the same schedule of rates. Float32 is PyTorch. Data are in
three parts: one is learned, one chooses the rate, with a seed of its own, and the test part is judged once, at the
end of a run. The rate of all variants is the one that is best for float32.

BFP 8/16/32 has weights and activations of 8 bits, gradients of 16, and 32 between; an accumulator of 16 bits stands
beside every weight. Without lazy update there is none, and updates are rounded to the weights.

With point 15, as in the source, an update moves a weight by about one step of its last bit at most; what is beyond is
refused. The LSTM, at a rate that is good for float32, asks for more in its first epochs. With point 13 the same 16 bits
of accumulator have room for four steps, and two bits less behind the point. It was chosen without the test part: on
parts of the other samples point 12, point 13 and an accumulator of 24 bits were all as good as float32, and wider
activations or biases were no better than the usual ones.

Accuracy is the mean of the seeds on the test part and, behind ±, their standard deviation. Difference is to float32
of the same seed, mean and from the least to the greatest. Refused is the share of updates that were cut off, in the
epoch where it is greatest; vanished is the share of those of the last epoch that were rounded to nothing; grown is how
often the exponent of a block grew, per run. Seconds are of one thread and with the judging. Behind a verdict's ± is
the standard error of the mean difference.
"""

_TUNING = """## Trained networks in narrow formats

w5a8 means weights of 5 bits and activations of 8, with a shared exponent for 16 neighbours as on the NPU, and
accumulators of 16 bits. There are few samples with labels, so they are divided into folds. In each one the part that
is judged has not been learned, so every sample is judged once. What is learned are the outputs of the float network
before the Softmax (mean squared error), which needs no labels: of the other folds, and of 100 calibration samples
without labels. Inputs are divided by a power of two that makes them at most 1, and the first weights multiplied by it.
Results are those of the forward pass of training; the compiler of the NPU calibrates formats besides, and
[bench.md](bench.md) has its results.

*Rounded* weights are the nearest ones. *Rounded for samples* are those whose results change least for the inputs that
are learned, [one made up for by the others](training-arithmetic.md#start-from-samples), and with exponents chosen for
that. *Then trained* begins with these; the rate halves after every epoch. The first rate is chosen once for a network,
with w5a8 and calibration samples alone: two thirds of them are learned, with so many changed copies (shifted, images
mirrored and keywords mixed, too) that there are about as many as in a fold, and the error of outputs on the last third
decides. In the folds, where there are more samples, there are no changed copies: in one trial with the keywords they
did not make the error of outputs on calibration samples less at the same cost.

Accuracy is that of all samples that were judged; difference is to w8a8, rounded, of the same folds, mean and from the
least to the greatest. Refused, vanished and grown are as above.
"""


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def _signed(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{fmean(values):+.2f} ({min(values):+.2f} to {max(values):+.2f})"


def _share(row: Row, key: str, epochs: slice) -> str:
    """Greatest share of the updates of all runs in an epoch."""
    by_epoch = list(zip(*(r.counts[epochs] for r in row.results if r.counts), strict=True))
    shares = [sum(c[key] for c in counts) / sum(c["elements"] for c in counts) for counts in by_epoch]
    return f"{100 * max(shares):.2f} %" if shares else ""


def _line(row: Row, base: bool) -> list[str]:
    grown = [sum(c["grown"] for c in r.counts) for r in row.results if r.counts]
    rates = sorted({r.rate for r in row.results if r.rate})
    return [
        row.title,
        f"{len(row.results)} of {row.planned}",
        ", ".join(rates),
        _spread(row.accuracies),
        "" if base else _signed(row.differences),
        _share(row, "refused", slice(None)),
        _share(row, "vanished", slice(-1, None)),
        f"{fmean(grown):.0f}" if grown else "",
        f"{fmean([r.seconds for r in row.results]):.1f}",
    ]


def _table(study: Study, variants: dict[str, Row]) -> list[str]:
    counted = "folds" if isinstance(study, FineTuning) else "seeds"
    head = ["", counted, "rate", "accuracy, %", "difference, points", "refused", "vanished", "grown", "seconds"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [_line(row, name == reference(study)) for name, row in variants.items() if row.results]
    return ["| " + " | ".join(line) + " |" for line in lines]


def verdicts(study: Study, variants: dict[str, Row]) -> list[str]:
    """Sentences about the targets: which are met, and what is not known yet."""
    said = []
    pairs = [("lazy", "float32"), ("room", "float32")] if isinstance(study, Scratch) else [("w5a8-trained", "w8a8")]
    for name, base in pairs:
        row = variants.get(name)
        if row is None or base not in variants or not row.differences:
            continue
        mean = fmean(row.differences)
        error = stdev(row.differences) / len(row.differences) ** 0.5 if len(row.differences) > 1 else None
        measured = f"{mean:+.2f}" + ("" if error is None else f" ± {error:.2f}")
        verdict = "met" if mean >= -TARGET else "**missed**"
        so_far = "" if row.whole and variants[base].whole else f", so far ({len(row.differences)} of {row.planned})"
        said.append(
            f"* {row.title}: {measured} points to {variants[base].title}; "
            f"target -{TARGET} or better: {verdict}{so_far}."
        )
    gains = (
        [("lazy", "none"), ("lazy", "none-stochastic"), ("room", "lazy")]
        if isinstance(study, Scratch)
        else [
            (w.name, w.name.removesuffix("-trained") + rest)
            for w in study.variants
            if w.trained
            for rest in ("", "-start")
        ]
    )
    for name, other in gains:
        if not (name in variants and other in variants):
            continue
        ours, theirs = ({r.seed: r.test or 0 for r in variants[key].results} for key in (name, other))
        both = [100 * (ours[seed] - theirs[seed]) for seed in sorted(ours) if seed in theirs]
        if both:
            said.append(f"* {variants[name].title}, against {variants[other].title}: {_signed(both)} points.")
    return said


def _about(study: Study, variants: dict[str, Row]) -> str:
    result = next(
        r for row in variants.values() for r in row.results if "epochs" in r.facts or not isinstance(study, Scratch)
    )
    facts = next((r.facts for row in variants.values() for r in row.results if "epochs" in r.facts), result.facts)
    train, validation, test = (int(facts["data"][k].split()[0]) for k in ("train", "validation", "test"))
    choosing = f", {validation:,} to choose with" if isinstance(study, Scratch) else ""
    parts = f"{train:,} samples to learn from{choosing}, {test:,} to judge by"
    if "epochs" in facts:
        epochs = facts["epochs"]
        parts += f"; {epochs} {'epoch' if epochs == 1 else 'epochs'}, batches of {facts['batch']}"
    labels = result.samples if isinstance(study, Scratch) else test
    worth = f"a test sample is worth {100 / test:.2f} points"
    if labels != test:
        worth = f"test samples have {labels:,} labels, and one of them is worth {100 / labels:.3f} points"
    return f"{study.about[0].upper()}{study.about[1:]}. {parts}; {worth}."


def _section(study: Study, store: Store) -> list[str]:
    variants = rows(study, store)
    if not any(row.results for row in variants.values()):
        return []
    lines = ["", f"### {study.title}", "", _about(study, variants), "", *_table(study, variants)]
    if said := verdicts(study, variants):
        lines += ["", *said]
    return lines + _sweep(study, store)


def _sweep(study: Study, store: Store) -> list[str]:
    """Measurements by which the rate was chosen."""
    measured = (
        "Accuracy on the validation part, %, by rate, with a seed that is none of the others:"
        if isinstance(study, Scratch)
        else "Error of outputs on calibration samples that were not learned, by rate:"
    )
    choices = [(v, store.results.get(Run(study.name, v.name, CHOICE))) for v in study.variants]
    if not any(choice for _, choice in choices):
        return []
    lines = ["", measured, ""]
    lines += [f"| | {' | '.join(str(rate) for rate in study.rates)} |", f"|---|{'---:|' * len(study.rates)}"]
    for variant, choice in choices:
        if choice is not None:
            cells = [_judged(*choice.candidates[str(rate)]) for rate in study.rates]
            lines.append(f"| {variant.title} | {' | '.join(cells)} |")
    return lines


def _judged(accuracy: float | None, loss: float | None) -> str:
    return f"{100 * accuracy:.2f}" if accuracy is not None else f"{loss:.3f}"


def page(studies: Sequence[Study], store: Store) -> str:
    """The whole page."""
    lines = [_HEAD.rstrip()]
    for kind, head, drawn in (
        (Scratch, _SCRATCH, (SEEDS_PICTURE, CURVES_PICTURE)),
        (FineTuning, _TUNING, (TUNING_PICTURE,)),
    ):
        sections = [_section(study, store) for study in studies if isinstance(study, kind)]
        if any(sections):
            lines += ["", head.rstrip(), "", *(f"![]({name})" for name in drawn)]
            lines += [text for section in sections for text in section]
    left = {s.title: [run for run in s.runs if run not in store.results] for s in studies}
    if any(left.values()):
        lines += ["", "## Not run yet", ""]
        lines += [f"* {s.title}: {_missing(s, left[s.title])}" for s in studies if left[s.title]]
    return "\n".join(lines) + "\n"


def _missing(study: Study, left: Sequence[Run]) -> str:
    if len(left) == len(study.runs):
        return "nothing of it"
    by_variant: dict[str, list[str]] = {}
    for run in left:
        by_variant.setdefault(run.variant, []).append(str(run.seed))
    what = "folds" if isinstance(study, FineTuning) else "seeds"
    return "; ".join(f"{name}, {what} {', '.join(seeds)}" for name, seeds in by_variant.items())
