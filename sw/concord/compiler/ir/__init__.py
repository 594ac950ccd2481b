"""What a layer is, and how tensors lie in memory."""
