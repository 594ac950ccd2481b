"""Samples as programs have them: by name, by place, and from loaders of batches."""

import itertools

import numpy as np
import pytest

import concord
from concord.api.samples import MOST_SAMPLES, arrays_for, example_for, read_samples
from support.frameworks import needs
from support.onnx_models import model, node

RNG = np.random.default_rng(7)
A, B = RNG.normal(size=(2, 12, 4)).astype(np.float32)
LABELS = np.arange(12) % 3


class Loader:
    """As that of PyTorch: an iterable with a length, which is no sequence."""

    def __init__(self, *arrays, make=tuple, size=5):
        self.arrays, self.make, self.size = arrays, make, size

    def __len__(self):
        return (len(self.arrays[0]) + self.size - 1) // self.size

    def __iter__(self):
        for at in range(0, len(self.arrays[0]), self.size):
            yield self.make(values[at : at + self.size] for values in self.arrays)


def pair_of_inputs():
    nodes = [node("Mul", ["a", "b"], ["c"]), node("Sub", ["c", "b"], ["y"])]
    return model(nodes, {"a": ("n", 4), "b": ("n", 4)}, outputs=["y"])


def single_input():
    return model([node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 4)}, constants={"w": A[:4]})


@pytest.fixture(scope="module")
def pair():
    return concord.compile(pair_of_inputs(), preset="tiny")


def test_several_inputs_of_a_call(pair):
    expected = pair({"a": A, "b": B})
    for given in ((A, B), ((A, B),), ([A, B],)):
        np.testing.assert_array_equal(pair(*given), expected)
    np.testing.assert_array_equal(pair(A[1], B[1]), expected[1])
    np.testing.assert_array_equal(pair(A, B, on="emulator", strict=False), expected)
    np.testing.assert_array_equal(pair.run((A, B))["y"], expected)
    with concord.connect("emulator", pair) as device:
        np.testing.assert_array_equal(pair(A, B, on=device), expected)
        np.testing.assert_array_equal(pair.run((A, B), device)["y"], expected)


@pytest.mark.parametrize("given", [(), (A,), (A, B, A), ((A, B, A),)])
def test_a_count_of_inputs_that_is_wrong(pair, given):
    count = len(given[0]) if given and isinstance(given[0], tuple) else len(given)
    message = rf"inputs must be 2 arrays, one each, for \['a', 'b'\], or a mapping, not {count}"
    with pytest.raises(ValueError, match=message):
        pair(*given)


def test_a_device_has_a_name_and_an_array_is_none(pair):
    with concord.connect("emulator", pair) as device:
        for target in (device, "emulator"):
            with pytest.raises(TypeError, match=r"on must be given by its name, as in network\(x, on=device\)"):
                pair({"a": A, "b": B}, target)
    with pytest.raises(TypeError, match="on must be the name of a target or a device, not ndarray; several inputs are"):
        pair.run(A, B)
    with pytest.raises(TypeError, match="inputs must be arrays, not a Loader: call the network with each of its"):
        pair(Loader(A, B))


def test_an_array_of_one_input_in_a_tuple():
    network = concord.compile(single_input(), preset="tiny")
    np.testing.assert_array_equal(network((A,)), network(A))
    with pytest.raises(ValueError, match=r"inputs must be one array for \['x'\], or a mapping, not 2"):
        network(A, B)


@pytest.mark.parametrize(
    "given",
    [
        (A, B),
        [A, B],
        Loader(A, B),
        Loader(A, B, make=list),
        Loader(A, B, LABELS),
        Loader(A, B, LABELS, make=lambda batch: (tuple(itertools.islice(batch, 2)), *batch)),
        Loader(A, B, LABELS, make=lambda batch: dict(zip(("a", "b", "labels"), batch, strict=True))),
        Loader(A, B, LABELS, make=lambda batch: (dict(zip("ab", batch, strict=False)), LABELS)),
        list(Loader(A, B, LABELS)),
        (batch for batch in Loader(B, A, make=lambda batch: dict(zip("ba", batch, strict=True)))),
    ],
    ids="tuple list loader list-batches labels nested dicts dict-labels list-of-batches generator".split(),
)
def test_samples_of_two_inputs(given):
    found = arrays_for(["a", "b"], read_samples(given))
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], A)
    np.testing.assert_array_equal(found["b"], B)


@pytest.mark.parametrize("given", [Loader(A), Loader(A, LABELS), Loader(A, make=next), [(A, LABELS)], (A,)])
def test_samples_of_an_input(given):
    np.testing.assert_array_equal(arrays_for(["x"], read_samples(given))["x"], A)


def test_what_is_no_loader_stays_as_it_is():
    for given in (A, {"x": A}, list(A), [1.0, 2.0], 3.0):
        np.testing.assert_equal(arrays_for(["x"], read_samples(given)), given)


def test_so_many_samples_are_taken_and_no_more():
    taken = []

    def endless():
        for k in itertools.count():
            taken.append(k)
            yield np.full((100, 2), k), np.zeros(100)

    found = arrays_for(["x"], read_samples(endless()))["x"]
    assert len(found) == MOST_SAMPLES == 256 and taken == [0, 1, 2] and found[-1, 0] == 2


def test_a_loader_may_fill_the_same_memory_again():
    memory = np.zeros((2, 3))

    def refilled():
        for k in range(3):
            memory[:] = k
            yield (memory,)

    np.testing.assert_array_equal(arrays_for(["x"], read_samples(refilled()))["x"][:, 0], [0, 0, 1, 1, 2, 2])


def test_loaders_that_cannot_be():
    with pytest.raises(ValueError, match="samples must have a batch, but this generator has none"):
        read_samples(batch for batch in ())
    with pytest.raises(ValueError, match=r"inputs must be 2 arrays, one each, for \['a', 'b'\], or a mapping, not 1"):
        arrays_for(["a", "b"], read_samples(Loader(A)))
    with pytest.raises(ValueError, match=r"data must have the arrays \['a', 'b'\], not \['a', 'c'\]"):
        arrays_for(["a", "b"], read_samples([{"a": A, "c": B}]))


class Module:
    def __init__(self, forward):
        self.forward = forward


def test_what_a_module_is_called_with():
    def two(a, b, scale=1.0):
        return a + b

    batches = read_samples(Loader(A, B, LABELS))
    assert [len(values) for values in example_for(Module(two), batches)] == [5, 5]
    assert len(example_for(Module(lambda x: x), batches)) == 1
    assert len(example_for(Module(lambda *x: x), batches)) == 3
    assert set(example_for(Module(two), read_samples([{"a": A, "b": B}]))) == {"a", "b"}
    assert isinstance(example_for(Module(two), read_samples([A, B])), tuple)
    assert isinstance(example_for(Module(lambda x: x), read_samples([A, B])), list)
    assert example_for("net.onnx", A) is A


@pytest.mark.slow
def test_calibration_is_that_of_the_arrays():
    expected = concord.compile(pair_of_inputs(), preset="tiny", calibrate={"a": A, "b": B}).image
    for given in ((A, B), Loader(A, B, LABELS)):
        assert concord.compile(pair_of_inputs(), preset="tiny", calibrate=given).image == expected
    with pytest.raises(ValueError, match="labels must be integers, one for each of the 12 samples"):
        concord.compile(pair_of_inputs(), preset="tiny", calibrate=Loader(A, B), labels=[1])


@pytest.mark.slow
@needs("torch")
def test_a_loader_of_torch():
    import torch

    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    data = torch.utils.data.TensorDataset(torch.as_tensor(A), torch.as_tensor(LABELS))
    loader = torch.utils.data.DataLoader(data, batch_size=5)
    given, plain = (concord.compile(module, preset="tiny", calibrate=each) for each in (loader, torch.as_tensor(A)))
    assert given.image == plain.image
