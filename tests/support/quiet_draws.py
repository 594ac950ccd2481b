"""Random networks that divide by a deviation or look a steep function up, and inputs that are quiet, loud or alike."""

import numpy as np

from support.onnx_models import model, node

#: Axes of sums.
_AXIS = np.array([-1])


class _Network:
    """Nodes that follow each other, with their constants."""

    def __init__(self, rng, frames):
        self.rng, self.frames = rng, frames
        self.width, self.outputs = (int(rng.choice(sizes)) for sizes in ([8, 16, 32], [4, 8, 16]))
        self.nodes, self.constants, self.inputs = [], {}, {}

    def given(self, name):
        """An input."""
        self.inputs[name] = (*([self.frames] if self.frames else []), self.width)
        return name

    def add(self, op, *inputs, **attributes):
        """A node; arrays among its inputs are constants."""
        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants[f"c{len(self.constants)}"] = value
                value = f"c{len(self.constants) - 1}"
            names.append(value)
        self.nodes.append(node(op, names, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def weight(self, outputs):
        return (self.rng.normal(size=(self.width, outputs)) / np.sqrt(self.width)).astype(np.float32)

    def product(self, x, outputs):
        return self.add("MatMul", x, self.weight(outputs))

    def squares(self, x):
        return self.add("ReduceSum", self.add("Mul", x, x), _AXIS, keepdims=1)

    def ended(self, x):
        """The model, and the shapes of its inputs."""
        self.nodes.append(node("Identity", [x], ["y"]))
        shapes = {name: ("n", *shape) for name, shape in self.inputs.items()}
        return model(self.nodes, shapes, constants=self.constants), self.inputs


def _ones(size):
    return np.ones(size, np.float32), np.zeros(size, np.float32)


def _normalised(net, x, kind):
    if kind == "layer":
        return net.add("LayerNormalization", x, *_ones(net.width), axis=-1)
    if kind == "rms":
        mean = net.add("ReduceMean", net.add("Mul", x, x), axes=[-1], keepdims=1)
        return net.add("Div", x, net.add("Sqrt", net.add("Add", mean, np.float32(1e-6))))
    turned = net.add("Transpose", x, perm=[0, 2, 1])
    if kind == "instance":
        return net.add("Transpose", net.add("InstanceNormalization", turned, *_ones(net.width)), perm=[0, 2, 1])
    groups = net.add("Reshape", turned, np.array([0, 2, -1]))
    groups = net.add("Reshape", net.add("InstanceNormalization", groups, *_ones(2)), np.array([0, net.width, -1]))
    return net.add("Transpose", groups, perm=[0, 2, 1])


def _looked_up(net, x, kind):
    if kind == "length":
        return net.add("Sqrt", net.squares(x))
    if kind == "unit":
        return net.add("Div", x, net.add("Sqrt", net.squares(x)))
    shifted = net.add("Add", net.add("Mul", x, x), np.float32(10.0 ** net.rng.uniform(-3, 0)))
    return net.add({"reciprocal": "Reciprocal", "log": "Log"}[kind], shifted)


NORMALISATIONS = ("layer", "rms", "instance", "groups")
FUNCTIONS = ("length", "unit", "reciprocal", "log")


def network(rng, kind):
    """A model of :data:`NORMALISATIONS` or :data:`FUNCTIONS`, or the ``distance`` of two inputs; and the shapes."""
    frames = int(rng.choice([4, 10])) if kind in ("instance", "groups") else 0
    net = _Network(rng, frames or (int(rng.choice([1, 4])) if kind in NORMALISATIONS else 0))
    x = net.given("x")
    if kind == "distance":
        weight, other = net.weight(net.outputs), net.given("b")
        difference = net.add("Sub", net.add("MatMul", x, weight), net.add("MatMul", other, weight))
        return net.ended(net.add("Sqrt", net.squares(difference)))
    x = net.product(x, net.width) if rng.random() < 0.5 else x
    x = _normalised(net, x, kind) if kind in NORMALISATIONS else _looked_up(net, x, kind)
    product = kind != "length" and rng.random() < 0.5
    return net.ended(net.product(x, net.outputs) if product else x)


def draw(rng, shapes, count, quiet=1.0, share=0.0, near=None):
    """Inputs ``[count, *shape]`` by name.

    ``share`` of the samples, or of their frames, is ``quiet`` times as large as others, which have deviation 1; if
    ``near`` is a number, the second input is the first one and that times the noise.
    """
    x = {name: rng.normal(size=(count, *shape)) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        places = (count, *shape[:-1], 1) if rng.random() < 0.5 else (count, *[1] * len(shape))
        x[name] = np.where(rng.random(places) < share, quiet, 1.0) * x[name]
    if near is not None and "b" in x:
        x["b"] = x["x"] + near * x["b"]
    return {name: values.astype(np.float32) for name, values in x.items()}
