"""Networks of one convolution or product, ``last``, in every way that its weights are laid out."""

import numpy as np

from support.expressions import concat, network, tensor


def conv(x, outputs, group=1):
    rng = np.random.default_rng(9)
    weight = rng.normal(0, 0.5, (outputs, x.shape[1] // group, 2, 2))
    return network(x.conv(weight, rng.normal(0, 0.2, outputs), group=group, name="last"))


def dense(bias=0.1):
    weight = np.random.default_rng(10).normal(0, 0.5, (6, 9))
    return network(tensor(1, 9).dense(weight, bias * np.arange(1, 7), "last"))


def unfolded():
    return conv(tensor(1, 2, 3, 3), 6)


def behind(group, outputs):
    """A convolution that does not read the input of the network."""
    return lambda: conv(tensor(1, 6, 3, 3).relu("relu"), outputs, group)


def steps():
    """A product at every step of a sequence whose channels are permuted and sliced apart behind it."""
    rng = np.random.default_rng(11)
    turned = tensor(1, 5, 4).transpose(0, 2, 1)
    last = turned.dense(rng.normal(0, 0.5, (6, 5)), rng.normal(0, 0.3, 6), "last")
    return network(last[:, :, :3] - last[:, :, 3:])


def twice():
    """A product of which every element is two inputs."""
    rng, x = np.random.default_rng(13), tensor(1, 5)
    return network(concat(1, x, x).dense(rng.normal(0, 0.5, (6, 10)), rng.normal(0, 0.3, 6), "last"))


#: Those whose weights are each in one place.
PRODUCTS = {
    "dense": dense,
    "unfolded": unfolded,
    "conv": behind(1, 5),
    "groups": behind(2, 4),
    "depthwise": behind(6, 6),
    "steps": steps,
}
