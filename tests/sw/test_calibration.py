"""Formats chosen with evidence."""

import numpy as np

from concord.calibration import choose_formats, emulate
from concord.spec.presets import TINY
from networks import network


def test_evidence_ranks_the_candidates():
    net = network(6, 8, 3)
    x = np.random.default_rng(4).normal(0, 1, (24, net.inputs))
    labels = net(x).argmax(axis=1)
    evidence = choose_formats(net, TINY, emulate, x, labels)
    assert evidence.reference_accuracy == 1.0
    assert len({candidate.label for candidate in evidence.candidates}) == 5
    ranks = [(-candidate.accuracy, candidate.error) for candidate in evidence.candidates]
    assert ranks == sorted(ranks)
    assert evidence.chosen is evidence.candidates[0]
    errors = [candidate.error for _, candidate in evidence.mantissas]
    assert errors == sorted(errors, reverse=True), "more bits, less error"


def test_evidence_without_labels_uses_agreement():
    net = network(6, 3)
    x = np.random.default_rng(5).normal(0, 1, (8, net.inputs))
    evidence = choose_formats(net, TINY, emulate, x)
    assert evidence.chosen.accuracy is None and evidence.reference_accuracy is None
    assert evidence.chosen.agreement == 1.0
