"""Training in block floating point with lazy update [lazy-update]; the rules are in ``docs/training-arithmetic.md``."""

from concord.train.augment import Augmentation, augmented, taught
from concord.train.data import Samples
from concord.train.describe import adjacency_of, described
from concord.train.export import export_onnx
from concord.train.losses import OutputLoss
from concord.train.network import CannotTrain
from concord.train.settings import Settings
from concord.train.start import fitted
from concord.train.trainer import Figures, OutputFigures, Trainer

__all__ = [
    "Augmentation", "CannotTrain", "Figures", "OutputFigures", "OutputLoss", "Samples", "Settings", "Trainer",
    "adjacency_of", "augmented", "described", "export_onnx", "fitted", "taught",
]  # fmt: skip
