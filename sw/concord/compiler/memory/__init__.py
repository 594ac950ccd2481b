"""Which memories hold tensors, where and for how long."""
