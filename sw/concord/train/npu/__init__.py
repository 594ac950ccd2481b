"""Training on the NPU: steps as programs of integer chains; bits as in training on the host."""

from concord.train.npu.trainer import NpuTrainer, training_config

__all__ = ["NpuTrainer", "training_config"]
