"""Random ONNX models of many operators with several outputs."""

import numpy as np

from support.onnx_models import model, node


class Builder:
    """Appends random operators; knows the shape of every tensor that is there."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants, self.shapes = [], {}, {"x": (1, *self.rng.integers(1, 5, 3).tolist())}

    def add(self, op, inputs, shape, constants=(), **attrs):
        names = []
        for value in constants:
            names.append(f"c{len(self.constants)}")
            self.constants[names[-1]] = np.asarray(value)
        name = f"t{len(self.nodes)}"
        self.nodes.append(node(op, [*inputs, *names], [name], **attrs))
        self.shapes[name] = tuple(int(size) for size in shape)

    def floats(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def step(self):
        # Mostly what comes last, so that chains grow; sometimes an earlier tensor, so that some have several readers.
        names = list(self.shapes)
        source = names[-1] if self.rng.random() < 0.75 else str(self.rng.choice(names))
        kinds = [self.layer, self.constant, self.plain, self.move, self.join, self.pad, self.normal]
        kinds[int(self.rng.choice(len(kinds), p=[0.25, 0.25, 0.1, 0.15, 0.1, 0.05, 0.1]))](source, self.shapes[source])

    def layer(self, x, shape):
        outputs = int(self.rng.integers(1, 5))
        if len(shape) == 4 and self.rng.random() < 0.7:
            kernel = min(2, *shape[2:])
            weight = self.floats(outputs, shape[1], kernel, kernel)
            self.add("Conv", [x], (shape[0], outputs, *(np.array(shape[2:]) - kernel + 1)), [weight])
        else:
            self.add("MatMul", [x], (*shape[:-1], outputs), [self.floats(shape[-1], outputs)])

    def constant(self, x, shape):
        rank = int(self.rng.integers(0, len(shape) + 1))
        full = shape[len(shape) - rank :]
        sizes = [size if self.rng.random() < 0.4 else 1 for size in full]
        if len(shape) > 2 and self.rng.random() < 0.4:
            sizes = [shape[1]] + [1] * (len(shape) - 2)
        op, value = str(self.rng.choice(["Add", "Sub", "Mul", "Div", "Max"])), self.floats(*sizes)
        self.add(op, [x], shape, [np.sign(value) + value] if op == "Div" else [value])

    def normal(self, x, shape):
        if len(shape) > 1:
            scale, bias, mean = (self.floats(shape[1]) for _ in range(3))
            self.add("BatchNormalization", [x], shape, [scale, bias, mean, np.abs(bias) + 0.5])

    def plain(self, x, shape):
        self.add(str(self.rng.choice(["Relu", "Sigmoid", "Tanh", "Identity", "Softplus"])), [x], shape)

    def move(self, x, shape):
        choice = self.rng.integers(3)
        if choice == 0:
            perm = self.rng.permutation(len(shape)).tolist()
            self.add("Transpose", [x], [shape[axis] for axis in perm], perm=perm)
        elif choice == 1:
            new = [(1, -1), shape, (1, *shape[1:][::-1]), (*shape, 1)[-4:]][int(self.rng.integers(4))]
            total = int(np.prod(shape))
            if -1 not in new and np.prod(new) != total:
                new = (1, -1)
            self.add("Reshape", [x], [total if size == -1 else size for size in new], [np.array(new, np.int64)])
        else:
            axis = int(self.rng.integers(len(shape)))
            bounds = [np.array([shape[axis] // 3]), np.array([shape[axis]]), np.array([axis])]
            self.add("Slice", [x], [n - (n // 3) * (k == axis) for k, n in enumerate(shape)], bounds)

    def join(self, x, shape):
        others = [name for name, other in self.shapes.items() if other == shape]
        self.add(str(self.rng.choice(["Add", "Sub", "Mul"])), [x, str(self.rng.choice(others))], shape)

    def pad(self, x, shape):
        if len(shape) == 4:
            self.add("Pad", [x], (*shape[:3], shape[3] + 1), [np.array([0, 0, 0, 0, 0, 0, 0, 1])])


def network(seed):
    builder = Builder(seed)
    while len(builder.nodes) < 12:
        builder.step()
    names = list(builder.shapes)[1:]
    outputs = dict.fromkeys([names[-1], *builder.rng.choice(names, 2).tolist()])
    return model(builder.nodes, {"x": builder.shapes["x"]}, list(outputs), builder.constants)
