"""Raw inputs through the feeder: the driver against its model, and what is sent."""

import random
from dataclasses import replace

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.golden.blocks import dequantize, quantize
from concord.host import Link, LinkedDevice, connect
from concord.host.errors import BusyError
from concord.image import Image, ImageError
from concord.image.code_book import Coding
from concord.image.feeder_layout import BORDER, Feed, Feeding
from concord.spec.feeder import FeedOp, feed_word
from concord.spec.memmap import CORE_REGIONS, RegionId
from concord.spec.presets import TINY
from support.fed_model import FedModel
from support.fed_nets import NETWORKS, batch_of
from support.link_model import ModelTransport

CONFIG = TINY.replace(inbox=128)


class Noisy(ModelTransport):
    """Loses or damages a request or a reply now and then."""

    def __init__(self, model, rate, seed):
        super().__init__(model)
        self.rate, self.rng = rate, random.Random(seed)
        self.sent = 0

    def _spoilt(self, data):
        if data and self.rng.random() < self.rate:
            at = self.rng.randrange(len(data))
            return (
                b""
                if self.rng.random() < 0.3
                else data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1 :]
            )
        return data

    def write(self, data):
        self.sent += len(data)
        super().write(self._spoilt(data))

    def read(self, count, timeout):
        return self._spoilt(super().read(count, timeout))


def results(compiled, device, given):
    device.load(compiled.image)
    return compiled.run(device, given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["codes", "many"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rate", [0.0, 0.05])
def test_the_same_bits_and_fewer_bytes(name, kind, rate):
    graph = NETWORKS[name]()
    fed, plain = (compile_graph(graph, config) for config in (CONFIG, TINY))
    given = batch_of(graph, 3 if name == "row tiles" else 9, kind)
    want = results(fed, connect("emulator", CONFIG), given)
    lines = []
    for compiled, config in ((fed, CONFIG), (plain, TINY)):
        line = Noisy(FedModel(config), 0.0, 1)
        device = LinkedDevice(Link(line, timeout=0.01, retries=20), config)
        device.load(compiled.image)
        line.rate = rate
        for _ in range(2):  # script and code book are there in the second batch
            before = line.sent
            got = compiled.run(device, given)
            for output, values in want.items():
                np.testing.assert_array_equal(got[output], values)
        assert (device.link.repeated > 0) == (rate > 0)
        lines.append(line.sent - before)
    assert rate or name == "row tiles" or lines[0] < lines[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_narrow_results_are_those_rounded_to_an_exponent_per_vector(name):
    graph = NETWORKS[name]()
    half, narrow = (compile_graph(graph, CONFIG, Formats(narrow=names)) for names in ((), tuple(graph.outputs)))
    assert [port.region for port in narrow.image.outputs] == [RegionId.NARROW]
    given = batch_of(graph, 9, "codes")
    whole = results(half, connect("emulator", CONFIG), given)
    vectors = half.package.arrangement.outputs[graph.outputs[0]] // CONFIG.native
    device = LinkedDevice(Link(ModelTransport(FedModel(CONFIG))), CONFIG)
    got = results(narrow, device, given)
    assert device.input_route.startswith("raw: ") or name == "row tiles"
    for output, values in results(narrow, connect("emulator", CONFIG), given).items():
        np.testing.assert_array_equal(got[output], values)
        flat, exact = values.reshape(len(values), -1), whole[output].reshape(len(values), -1)
        for k in np.unique(vectors):  # the padding lanes of a vector hold copies of its elements
            mine = vectors.ravel() == k
            padded = np.pad(exact[:, mine], ((0, 0), (0, CONFIG.native - mine.sum())), mode="edge")
            blocks = quantize(padded.astype(np.float16).view(np.uint16), CONFIG.act)
            rounded = dequantize(blocks.mant, blocks.exp)[:, : mine.sum()]
            np.testing.assert_array_equal(flat[:, mine], rounded)


def test_outputs_that_cannot_be_narrow():
    graph = NETWORKS["perceptron"]()
    with pytest.raises(ValueError, match=r"narrow outputs must be among fc1.out, not z"):
        compile_graph(graph, CONFIG, Formats(narrow=("z",)))


@pytest.mark.parametrize(
    ("feed", "found"),
    [
        (Feed("x", (1, 4, 10)), Feed("x", (1, 4, 10))),
        (Feed("x", (1, 32, 1), (1, 8), (1, 4), windows=(1, 7)), Feed("x", (1, 8, 4), (1, 2), (1, 1), windows=(1, 7))),
        (Feed("x", (3, 5, 8), (2, 2), windows=(2, 4)), Feed("x", (3, 5, 8), (2, 2), windows=(2, 4))),
        (Feed("x", (1, 32, 1), (1, 8), (1, 2), windows=(1, 7)), None),  # a vector begins in the middle of another
        (Feed("x", (1, 32, 1), (1, 4), (1, 4), (1, 2), windows=(1, 7)), None),  # elements are not neighbours
        (Feed("x", (3, 5, 8), (2, 2), origin=(0, -1), windows=(2, 4)), None),  # outside the image there is no exponent
        (Feed("x", (3, 5, 8), (2, 2), windows=(3, 4)), None),
    ],
)
def test_windows_of_whole_vectors(feed, found):
    assert feed.in_vectors(4) == found
    if found is not None and not feed.single:
        assert (found.order(4) == feed.order(4)).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_laid_out_is_what_the_host_writes(name):
    """For all elements: the geometry gives the order in which the compiler wants them."""
    compiled = compile_graph(NETWORKS[name](), CONFIG)
    assert {feed.port for feed in compiled.image.feeding.feeds} == {port.name for port in compiled.image.inputs}
    for feed in compiled.image.feeding.feeds:
        order, wanted = feed.order(CONFIG.native), compiled.package.arrangement.inputs[feed.port]
        assert order.shape == wanted.shape and ((order < 0) == (wanted < 0)).all()
        pairs = {(int(a), int(b)) for a, b in zip(order.flat, wanted.flat, strict=True) if a >= 0}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_order_of_a_window():
    feed = Feed("x", (2, 3, 2), (1, 2), (1, 2), (1, 1), (0, -1), (2, 2), 7)
    assert feed.order(8).tolist() == [
        [BORDER, BORDER, 0, 1, 1, 1, 1, 1],
        [2, 3, 4, 5, 5, 5, 5, 5],
        [BORDER, BORDER, 6, 7, 7, 7, 7, 7],
        [8, 9, 10, 11, 11, 11, 11, 11],
    ]


def test_a_saved_image_has_its_feeding(tmp_path):
    image = compile_graph(NETWORKS["residual"](), CONFIG).image
    image.save(tmp_path / "net.image")
    assert Image.load(tmp_path / "net.image").feeding == image.feeding != Feeding()


@pytest.mark.parametrize(
    ("feeding", "message"),
    [
        (Feeding((Feed("x", (1, 1, 4)),)), "feed of 'x' must lay out 32 vectors, not 1"),
        (Feeding((), {"y": (5, 4)}), r"lanes must be those of the vectors of \['y'\] and in 1..4, not \[5, 4\] of 'y'"),
        (Feeding((), {"y": (4,)}), r"lanes must be those of the vectors of \['y'\] and in 1..4, not \[4\] of 'y'"),
        (Feeding((), codings={"x": Coding()}), r"codes must be of a feed, in 1 pages, not Coding\(page=0.*\) of 'x'"),
        (Feeding((), {"z": (1,)}), r"lanes must be those of the vectors of \['y'\] and in 1..4, not \[1\] of 'z'"),
    ],
)
def test_feedings_that_do_not_fit_are_refused(feeding, message):
    image = compile_graph(NETWORKS["residual"](), CONFIG).image
    with pytest.raises(ImageError, match=message):
        replace(image, feeding=feeding).check()


def test_values_beyond_a_word_are_refused():
    with pytest.raises(ValueError, match=r"pc must be in 0..65535, not 65536"):
        feed_word(FeedOp.RUN, pc=65536, adds=0)


@pytest.mark.parametrize("inbox", [-1, 1, 64, 100, 16384])
def test_sizes_of_the_inbox(inbox):
    with pytest.raises(ValueError, match=f"inbox must be 0 or a power of two in 128..8192, not {inbox}"):
        TINY.replace(inbox=inbox)


def test_without_an_inbox_there_are_no_regions():
    assert tuple(connect("emulator", TINY).regions) == CORE_REGIONS
    with pytest.raises(ValueError, match=r"region must be one of .*, not 'INBOX'"):
        connect("emulator", TINY).write("INBOX", 0, [1])


def test_the_emulator_refuses_what_the_device_refuses():
    device = connect("emulator", CONFIG)
    device.write("SCRIPT", 0, [feed_word(FeedOp.END)])
    device.write("INBOX", 0, [1] * 127)
    with pytest.raises(BusyError):
        device.write("INBOX", 0, [1])
    assert device.read("OUTBOX", 0, 1) == device.read("OUTBOX", 0, 0) == []
