"""Tasks of the trained networks, for tests that take one after the other."""

import pytest

from concord_bench.tasks import TASKS

#: Networks that stand for all: a perceptron, pictures, windows of sound, a stream with states.
SOME = ("digits_mlp", "mnist_cnn", "kws_dscnn", "silero_vad_16k_core")


def marked_tasks():
    """Parameters of a test: every task, deep but for those of ``SOME``."""
    return [
        pytest.param(task, id=task.model, marks=pytest.mark.slow if task.model in SOME else pytest.mark.deep)
        for task in TASKS
    ]
