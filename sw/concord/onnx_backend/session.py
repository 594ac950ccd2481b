"""A session with the methods of ``onnxruntime.InferenceSession``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from concord import api
from concord.api.network import Network
from concord.host import Device
from concord.onnx_backend.values import as_written, dims_of, inputs_of, labels_of_maps, with_shapes


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a session.

    Parameters
    ----------
    name : str
        As in the file.
    shape : list of int, str or None
        Sizes of the axes, or names of those that are open.
    type : str
        Such as ``"tensor(float)"``.
    """

    name: str
    shape: list[int | str | None]
    type: str


class InferenceSession:
    """A compiled network with the methods of ``onnxruntime.InferenceSession``, for programs that have one.

    Parameters
    ----------
    path_or_bytes : str, Path, bytes, ModelProto or Network
        An ONNX model, the folder of a compiled network, or a network.
    sess_options, providers, provider_options
        Of ONNX Runtime: they are not used.
    on : str or Device
        Where it runs, as for :meth:`concord.Network.run`.
    options
        Of :func:`concord.compile`, for a model.

    Raises
    ------
    ValueError
        As :func:`concord.compile` and :func:`concord.load` raise it; options for what is compiled already.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        *,
        on: str | Device = "emulator",
        **options: Any,
    ):
        compiled = isinstance(path_or_bytes, str | Path) and Path(path_or_bytes).is_dir()
        if options and (compiled or isinstance(path_or_bytes, Network)):
            raise ValueError(f"{', '.join(options)} must be left out: the network is compiled already")
        if isinstance(path_or_bytes, Network):
            self.network = path_or_bytes
        else:
            self.network = api.load(path_or_bytes) if compiled else api.compile(path_or_bytes, **options)
        self.on = on
        self._proto = with_shapes(onnx.load_model_from_string(self.network.model))
        self._maps = labels_of_maps(self._proto)

    def get_inputs(self) -> list[NodeArg]:
        """Inputs that :meth:`run` needs, in the order of the model."""
        return [_node_arg(item) for item in inputs_of(self._proto) if item.name in self.network.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs that :meth:`run` gives, in the order of the model."""
        return [_node_arg(item) for item in self._proto.graph.output if item.name in self.network.outputs]

    def get_providers(self) -> list[str]:
        """``["ConcordExecutionProvider"]``."""
        return ["ConcordExecutionProvider"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, npt.ArrayLike], run_options: Any = None
    ) -> list[Any]:
        """Outputs in the order of their names, or of the model, with the types that the model has for them.

        Texts are objects, and what ZipMap makes is a list with a dictionary for every sample.

        Parameters
        ----------
        output_names : sequence of str or None
            Which outputs; all of them for ``None``.
        input_feed : mapping of str to array
            A batch by input. A model with a fixed batch takes more samples, too.
        run_options
            Of ONNX Runtime: not used.

        Raises
        ------
        ValueError
            If a name or a shape is wrong.
        """
        outputs = {item.name: item for item in self._proto.graph.output if item.name in self.network.outputs}
        names = list(outputs) if output_names is None else list(output_names)
        if unknown := [name for name in names if name not in outputs]:
            raise ValueError(f"output_names must be among {list(outputs)}, not {unknown}")
        if set(input_feed) != set(self.network.inputs):
            raise ValueError(f"input_feed must have the inputs {list(self.network.inputs)}, not {list(input_feed)}")
        results = self.network(input_feed, on=self.on)
        by_name = results if isinstance(results, dict) else dict.fromkeys(self.network.outputs, results)
        return [
            self._mapped(name, by_name[name]) if name in self._maps else as_written(outputs[name], by_name[name])
            for name in names
        ]

    def _mapped(self, name: str, scores: Any) -> list[dict[Any, float]]:
        """Scores by label, sample by sample."""
        labels = self._maps[name]
        return [dict(zip(labels, row, strict=True)) for row in np.asarray(scores).reshape(-1, len(labels)).tolist()]


def _node_arg(value: Any) -> NodeArg:
    if value.type.HasField("sequence_type"):
        keys = onnx.TensorProto.DataType.Name(value.type.sequence_type.elem_type.map_type.key_type).lower()
        return NodeArg(value.name, [], f"seq(map({keys},tensor(float)))")
    kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    return NodeArg(value.name, dims_of(value), f"tensor({kind})")
