"""Networks that divide by a deviation or look a steep function up, on other inputs than their samples: random draws.

A result that is wrong by more than a twentieth comes with a word, of the compilation or of the run; a network that is
right on all inputs comes with none. What a word may be missing for are errors next to that limit, and those of a few
samples that were rounded before a function.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest

import concord
from support.quiet_draws import FUNCTIONS, NORMALISATIONS, draw, network

WRONG, RIGHT = 0.05, 0.02
KINDS = (*NORMALISATIONS, *FUNCTIONS, "distance")
#: Results that are no normal numbers of binary16 are not compared.
LEAST = 2.0**-14


@dataclass(frozen=True)
class Run:
    """A run: its error, whether it raised a flag, whether its inputs are like the samples."""

    error: float
    flagged: bool
    alike: bool


def runs_of(seed):
    """Kind of a network, whether its compilation has warned, and its runs."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    proto, shapes = network(rng, kind)
    size = np.float32(10.0 ** rng.uniform(-1, 1.5))
    near = float(rng.choice([0.3, 1.0])) if rng.random() < 0.5 else None

    def inputs(count, **quiet):
        return {name: size * values for name, values in draw(rng, shapes, count, **quiet).items()}

    preset = str(rng.choice(["tiny", "ecp5-85f"]))
    try:
        net = concord.compile(proto, preset=preset, calibrate=inputs(48, near=near), quick=True)
    except ValueError:  # it does not fit
        return kind, False, []
    session, runs = onnxruntime.InferenceSession(proto.SerializeToString()), []
    for k in range(5):
        quiet, share = 10.0 ** rng.uniform(-2.5, -0.5), float(rng.choice([0.2, 0.5, 1.0]))
        others = {"quiet": quiet, "share": share, "near": rng.choice([near or 1.0, 0.03])} if k else {"near": near}
        x = inputs(16, **others)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = net.run(x)["y"]
        (want,) = session.run(None, x)
        if np.sqrt(np.mean(want**2)) > LEAST:
            runs.append(Run(float(np.linalg.norm(got - want) / np.linalg.norm(want)), bool(caught), not k))
    return kind, bool(net.warnings), runs


def check(seeds):
    """Few wrong results without a word, none of them very wrong; few words about networks that are right."""
    networks = [(warned, runs) for _, warned, runs in map(runs_of, seeds) if runs]
    wrong = [(run.error, warned or run.flagged) for warned, runs in networks for run in runs if run.error > WRONG]
    silent = [error for error, told in wrong if not told]
    assert len(wrong) > len(seeds) and len(silent) <= 0.05 * len(wrong) and max(silent, default=0) < 0.15, silent
    right = [warned for warned, runs in networks if all(run.error < RIGHT for run in runs)]
    alike = [run.flagged for _, runs in networks for run in runs if run.alike and run.error < RIGHT]
    assert len(alike) > len(seeds) / 2 and sum(right) <= 0.05 * len(right) and sum(alike) <= 0.15 * len(alike)


@pytest.mark.slow
def test_wrong_results_are_told_and_right_ones_are_not():
    check(range(27))


@pytest.mark.deep
@pytest.mark.parametrize("first", range(27, 135, 27))
def test_many_wrong_results_are_told_and_right_ones_are_not(first):
    check(range(first, first + 27))
