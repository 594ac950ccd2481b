"""The experiments, in the order in which they run."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from concord.train import Augmentation, OutputLoss, Settings
from concord_bench.evidence.data import digits, large
from concord_bench.evidence.finetune import FineTuning
from concord_bench.evidence.networks import CNN, DEPTHWISE, MLP, RESIDUAL, lstm
from concord_bench.evidence.recall import attention, pairs
from concord_bench.evidence.scratch import ALL, FEW, FLOAT, LAZY, ROOM, Scratch
from concord_bench.evidence.sentences import sentences, translator
from concord_bench.evidence.two_digits import digit_pairs, two_outputs
from concord_bench.evidence.videos import moving_digits, over_time

Study = Scratch | FineTuning


def _settings(epochs: int, batch: int = 32) -> Settings:
    """The rate halves after half of the epochs, and once more after three quarters, none in a single epoch."""
    half = Fraction(1, 2)
    steps = ((epochs // 2, half), (3 * epochs // 4, half)) if epochs > 1 else ()
    return Settings(epochs=epochs, batch=batch, schedule=steps)


def _halving(epochs: int, batch: int) -> Settings:
    """The rate halves after every epoch."""
    return Settings(epochs=epochs, batch=batch, schedule=tuple((k, Fraction(1, 2)) for k in range(1, epochs)))


def _rates(*powers: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(1, 1 << power) for power in powers)


#: Losses of the pairs of digits.
_OF_BOTH = {"left": OutputLoss(), "right": OutputLoss(weight=Fraction(1, 2))}

STUDIES: tuple[Study, ...] = (
    Scratch("digits-mlp", "Digits, MLP", "64-32-10 with ReLU", MLP, digits, _settings(12), _rates(5, 4, 3, 2), ALL, 3),
    Scratch(
        "digits-cnn", "Digits, CNN", "convolutions of 8 and 16 channels with ReLU and pooling, a product",
        CNN, digits, _settings(8), _rates(5, 4, 3, 2), swept=3,
    ),
    Scratch(
        "digits-lstm", "Digits, LSTM", "32 units that read eight rows of eight pixels, a product",
        lstm, digits, _settings(10), _rates(4, 3, 2), (*FEW, ROOM),
    ),
    Scratch(
        "sentences", "Sentences, LSTM",
        "a made-up language translated word for word: an embedding of 16 features, an LSTM of 32 units, a layer "
        "normalisation of its states and a product at every position, with a label per word",
        translator, sentences, _settings(10), _rates(6, 5, 4, 3), (FLOAT, LAZY, ROOM),
    ),
    Scratch(
        "recall", "Recall, attention",
        "six made-up pairs of a key and a value and a key that asks for its value: an embedding of 16 features, "
        "attention with two heads and what it has read added, a layer normalisation and a product at every position, "
        "with a label at the last one",
        attention, pairs, _settings(8), _rates(6, 5, 4, 3), (*FEW, ROOM),
    ),
    Scratch(
        "digits-pairs", "Pairs of digits, two outputs",
        "two digits side by side: convolutions of 8 and 16 channels with ReLU and pooling, then a product for the left "
        "digit and one for the right digit, whose loss has the weight 1/2; accuracies are the means of both",
        two_outputs, digit_pairs, replace(_settings(8), losses=_OF_BOTH),
        _rates(6, 5, 4, 3), (*FEW, ROOM),
    ),
    Scratch(
        "digits-videos", "Videos of digits, convolutions over time",
        "four frames of 14 by 14 pixels with noise, in which a digit moves in one of eight directions: two "
        "convolutions over frames, rows and columns, of 8 and 16 channels, with ReLU and pooling, and a product",
        over_time, moving_digits, _settings(6), _rates(6, 5, 4, 3),
    ),
    FineTuning(
        "kws_dscnn", "Keywords, DS-CNN", "the reference network of MLPerf Tiny, 500 clips with labels, 100 without",
        _halving(4, 16), _rates(12, 11, 10), Augmentation(shift=(0, 2, 0), mix=0.3),
    ),
    FineTuning(
        "ic_resnet8", "CIFAR-10, ResNet-8", "the reference network of MLPerf Tiny, 400 images with labels, 100 without",
        _halving(4, 16), _rates(14, 13, 12), Augmentation(shift=(0, 2, 2), flip=2),
    ),
    Scratch(
        "mnist-residual", "MNIST, residual CNN",
        "three convolutions of 8 channels with a residual connection, one of 16, a product",
        RESIDUAL, lambda: large("train_mnist", 55_000, 5_000), _settings(1, 64), _rates(6, 5, 4),
    ),
    Scratch(
        "fashion-depthwise", "Fashion-MNIST, depthwise CNN",
        "a convolution, two pairs of a depthwise and a 1x1 convolution of 24 and 32 channels, a product",
        DEPTHWISE, lambda: large("train_fashion", 20_000, 2_000), _settings(2, 64), _rates(6, 5, 4),
    ),
)  # fmt: skip
