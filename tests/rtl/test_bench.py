"""The test benches themselves: what they notice."""

import pytest
from amaranth.lib.fifo import SyncFIFO

from support.bench import simulate, sink, source


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ([1, 2, 3], None),
        ([1, 7, 3], "transfer 1: got 2, want 7"),
        ([1, 2], "transfer 2: nothing must follow"),
        ([1, 2, 3, 4], "still running after 100 cycles"),
    ],
)
@pytest.mark.parametrize("stalls", [(0, 0), (0.4, 0.4)])
def test_streams_are_compared_to_the_end(expected, message, stalls):
    fifo = SyncFIFO(width=8, depth=2)
    benches = source(fifo.w_stream, [1, 2, 3], stall=stalls[0]), sink(fifo.r_stream, expected, stall=stalls[1])
    if message is None:
        simulate(fifo, *benches, cycles=100)
    else:
        with pytest.raises(AssertionError, match=message):
            simulate(fifo, *benches, cycles=100)
