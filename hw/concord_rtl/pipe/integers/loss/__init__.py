"""Softmax and cross-entropy of samples: ``i_loss``."""
