"""Results of every layer on a device: the program runs up to each layer, and then to its end."""

from __future__ import annotations

from rich.console import Console

from concord.compiler.calibration.calibration import Inputs
from concord.compiler.model import Compiled
from concord.host import Device
from concord.host.progress import load, run_batch
from concord.prove.compare import Outputs
from concord.report.prefixes import prefixes
from concord.utils.arrays import FloatArray


def every_tensor(compiled: Compiled, inputs: Inputs, device: Device, console: Console) -> Outputs:
    """Tensors by name, in the order of the layers, the outputs of the network last.

    Parameters
    ----------
    compiled : Compiled
        The network; its image is loaded into the device at the end.
    inputs : mapping of str to array
        ``[samples, *shape of a sample]`` for every input.
    device : Device
        Runs it.
    console : Console
        For progress.

    Returns
    -------
    mapping of str to array
        ``[samples, elements]``; of a tensor that is kept wide and narrow the wide copy.
    """
    ports = compiled.package.pack(inputs)
    samples = len(next(iter(ports.values()))) * compiled.package.arrangement.batch
    tensors: dict[str, FloatArray] = {}
    *before, _ = prefixes(compiled)  # the last ends where the program does
    for layer, prefix in zip(compiled.lowered.layers, before, strict=False):
        load(device, prefix.image, console, f"load as far as {layer.name}")
        outputs = run_batch(device, ports, console, f"{samples} images to {layer.name}")
        tensors |= {result.tensor: result.best for result in prefix.results(outputs, samples)}
    load(device, compiled.image, console)
    outputs = run_batch(device, ports, console, f"{samples} images")
    results = compiled.package.finish(inputs, outputs)
    return tensors | {name: values.reshape(len(values), -1) for name, values in results.items()}
