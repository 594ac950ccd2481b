"""Progress bars around the calls of a device that take long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from concord.host import Device, LinkedDevice
from concord.image import Image
from concord.image.columns import columns_of
from concord.spec.memmap import RegionId, regions
from concord.utils.arrays import Array


def bars(console: Console) -> Progress:
    """Bars as they look everywhere."""
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


#: Bytes for the external memory from which on it is said how long they take.
_ANNOUNCED = 1 << 20


def load(device: Device, image: Image, console: Console, what: str = "load the image (bytes)") -> None:
    """Load an image; over a link with a bar that counts its bytes, and an announcement if it takes long."""
    if not isinstance(device, LinkedDevice):
        device.load(image)
        return
    columns = sum(len(part.data) for part in columns_of(image))
    if columns >= _ANNOUNCED and device.carrier is not None:
        seconds = columns / device.carrier.bytes_per_second
        text = f"{columns / 1e6:.1f} MB of weights take {seconds:.0f} s with {device.carrier.text}"
        console.print(f"{text}, unless the external memory holds them since the last load")
    total = sum(len(part.data) for part in image.segments)
    total += len(image.program) * regions(image.config)[RegionId.PROGRAM].nbytes
    with bars(console) as progress:
        task = progress.add_task(what, total=total)
        device.progress = lambda count: progress.update(task, advance=count)
        try:
            device.load(image)
        finally:
            device.progress = None


def run_batch(device: Device, batch: Mapping[str, Array], console: Console, what: str = "run") -> dict[str, Array]:
    """Run a batch; over a link with a bar that counts the samples."""
    with sample_bar(device, batch, console, what):
        return dict(device.run(dict(batch)))


@contextmanager
def sample_bar(device: Device, batch: Mapping[str, Array], console: Console, what: str = "run") -> Iterator[None]:
    """A bar that counts the samples of a batch while it runs, over a link."""
    if not isinstance(device, LinkedDevice):
        yield
        return
    with bars(console) as progress:
        task = progress.add_task(what, total=len(next(iter(batch.values()))))
        device.ended = lambda count: progress.update(task, advance=count)
        try:
            yield
        finally:
            device.ended = None
