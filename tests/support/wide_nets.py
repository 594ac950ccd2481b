"""Random networks whose layers read and write codes, with wide numbers between some of them."""

import numpy as np

from support.quantised_nets import QdqMaker

#: What stands between two layers, by what it may do with a wide tensor.
STEPS = ("sum", "difference", "product", "shift", "gain", "relu", "clip", "pool", "concat", "move", "nothing")


def wide_network(seed, exact=False, integers=False):
    """A model, and samples: convolutions in all four forms.

    Every layer reads codes; what it writes is wide if a sum, another activation or an output of the model reads it.
    With ``exact`` all scales are powers of two, so that sums of floats are exact in every order. With ``integers``
    convolutions are ConvInteger, Cast and Mul in the place of pairs, so ONNX Runtime adds up integers at any scales.
    """
    rng = np.random.default_rng(seed)
    kind = "UINT8" if integers else str(rng.choice(["INT8", "UINT8"]))
    maker, samples = QdqMaker((4, 6, 6), rng), rng.normal(0, 1, (3, 4, 6, 6)).astype(np.float32)
    samples[0, 0, 0, :2] = 0, -0.0

    def coded(x):
        return maker.fitted(x, kind, samples, exact=exact)

    def layer(x):
        weight = maker.weight((4, 4, 1, 1), exact, axis=0 if rng.random() < 0.5 else None)
        constant = maker.nodes[-1]
        decoded = coded(x)
        if not integers:
            return maker.add("Conv", decoded, weight)
        (codes, scale, zero), (source, step) = maker.nodes[-1].input, constant.input[:2]
        factor = maker.constants[scale] * maker.constants[step]
        sums = maker.add("Cast", maker.add("ConvInteger", codes, source, zero), to=1)
        return maker.add("Mul", sums, maker.constant(factor.reshape(-1, 1, 1) if factor.size > 1 else factor))

    wide, outputs = [layer("x")], []
    for _ in range(rng.integers(2, 5)):
        x, step = wide[int(rng.integers(len(wide)))], str(rng.choice(STEPS))
        number = np.float32(2.0 ** rng.integers(-2, 3)) if exact else np.float32(rng.uniform(0.3, 3))
        if step in ("sum", "difference", "product"):
            op = {"sum": "Add", "difference": "Sub", "product": "Mul"}[step]
            other = "x" if rng.random() < 0.2 else wide[int(rng.integers(len(wide)))]
            made = maker.add(op, x, coded(other) if step == "product" or rng.random() < 0.3 else other)
        elif step == "shift":
            terms = np.round(rng.normal(0, 1, (4, 1, 1)) * 64).astype(np.float32) / 64
            made = maker.add("Add", maker.constant(terms), x)
        elif step == "gain":
            made = maker.add("Mul", x, maker.constant(number))
        elif step == "relu":
            made = maker.add("Relu", x)
        elif step == "clip":
            made = maker.add("Clip", x, maker.constant(-number), maker.constant(np.float32(1)))
        elif step == "pool":
            made = maker.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
        elif step == "concat":
            both = maker.add("Concat", x, wide[0], axis=1)
            made = maker.add("Slice", both, *(maker.constant(np.array([k])) for k in (2, 6, 1)))
        elif step == "move":
            made = maker.add("Transpose", x, perm=[0, 1, 3, 2])
        else:
            made = x
        wide.append(layer(made) if rng.random() < 0.6 else made)
        if rng.random() < 0.4 and wide[-1] not in outputs:
            outputs.append(wide[-1])
    if wide[-1] not in outputs:
        outputs.append(wide[-1] if rng.random() < 0.5 else coded(wide[-1]))
    return maker.model(outputs), samples
