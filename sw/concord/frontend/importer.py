"""ONNX to graph."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from concord.frontend import (
    arithmetic,
    einsum,
    linear,
    logic,
    masks,
    moving,
    pointwise,
    pooling,
    quantization,
    recurrent,
    reductions,
    resizing,
    selecting,
    trigonometry,
    unfolding,
    upsampling,
)
from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal, UnsupportedModel
from concord.frontend.folding import OF_SHAPES, evaluated
from concord.frontend.host import (
    HOST_HANDLERS,
    MOVING_OPERATORS,
    OF_COMPUTED_OPERANDS,
    HostHandler,
    TypedTensor,
    reads_whole_numbers,
    texts_of_operands,
)
from concord.frontend.load import (
    FLOAT_TYPES,
    OTHER_TEXT,
    captured,
    input_shapes,
    input_type,
    input_values,
    live_order,
    load,
    of_texts,
    opset,
    texts_of_model,
)
from concord.frontend.logic import BYTE_TYPES
from concord.frontend.ml import DOMAIN as ML_DOMAIN
from concord.frontend.ml import ML_HANDLERS
from concord.frontend.ngrams import NGRAM_HANDLERS
from concord.functions import by_onnx_name
from concord.graph import passes
from concord.graph.element_types import ends
from concord.graph.ir import Graph, Node
from concord.graph.level import GRAPH
from concord.graph.passes import Rewriting
from concord.pipeline.manager import Pipeline, advance, pass_called
from concord.utils.arrays import Array
from concord.utils.matrices import MatrixTooLarge

HANDLERS: dict[str, Handler] = {
    **linear.HANDLERS,
    **einsum.HANDLERS,
    **recurrent.HANDLERS,
    **pooling.HANDLERS,
    **reductions.HANDLERS,
    **pointwise.HANDLERS,
    **arithmetic.HANDLERS,
    **logic.HANDLERS,
    **trigonometry.HANDLERS,
    **selecting.HANDLERS,
    **moving.HANDLERS,
    **quantization.HANDLERS,
    **upsampling.HANDLERS,
    **resizing.HANDLERS,
}
#: Operators whose attributes may be infinite.
_INFINITE = ("Clip", "Pad", "Constant")
_RANDOM = {"RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
_INTEGER = ("QLinear", "ConvInteger", "MatMulInteger", "DynamicQuantize", "QGemm", "QAttention")


def handler_of(op: str) -> Handler | None:
    """Handler that imports an operator: of :data:`HANDLERS`, or the one for functions that are in the catalogue."""
    return HANDLERS.get(op) or (pointwise.function if op in by_onnx_name() else None)


def host_handler_of(op: str) -> HostHandler | None:
    """Handler that imports an operator for the host."""
    return HOST_HANDLERS.get(op) or NGRAM_HANDLERS.get(op)


def import_model(
    model: str | Path | bytes | Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batchnorm: bool = False,
    stay: Collection[str] = (),
    volumes: bool = False,
) -> Graph:
    """Return the graph of an ONNX file (or ``ModelProto``) of opset 7 or later.

    Parameters
    ----------
    model : path, bytes or ModelProto
        The network: a file, its contents, or what they mean.
    shapes : mapping, optional
        Shapes of one sample, batch axis included, for inputs that leave dimensions open. An open first dimension is
        taken for the batch without being told.
    batchnorm : bool
        Let BatchNormalization stay a node, which is trained but not compiled; otherwise it becomes part of the layer in
        front of it.
    stay : collection of str
        Names of pairs of QuantizeLinear and DequantizeLinear that are computed, however fine their codes are: those of
        the FakeQuantize in :func:`reference_graph`.
    volumes : bool
        Let convolutions and poolings over three spatial axes stay what they are, which is trained but not compiled;
        otherwise they become those of planes.

    Raises
    ------
    UnsupportedModel
        With everything that cannot be compiled, each with the reason and what to do.
    ValueError
        If it is no valid ONNX, or if ``shapes`` does not fit.
    """
    graph = IMPORT.run(OnnxSource(model, shapes or {}, batchnorm, stay, volumes)).graph
    graph.check()
    return graph


def reference_graph(model: str | Path | bytes | Any, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """Return the graph of an ONNX model as its file has it, to compare results with: no pass has rewritten it.

    Every pair of QuantizeLinear and DequantizeLinear is a FakeQuantize, which rounds halves to even and saturates, so
    that :func:`concord.graph.execute.run` computes what ONNX defines, in double precision.

    Parameters
    ----------
    model, shapes
        As for :func:`import_model`, with its errors.
    """
    graph = AS_WRITTEN.run(OnnxSource(model, shapes or {}, batchnorm=False, stay=(), volumes=False)).graph
    graph.check()
    return graph


@dataclass(frozen=True)
class OnnxSource:
    """Model to read and how, as for :func:`import_model`."""

    model: str | Path | bytes | Any
    shapes: Mapping[str, Sequence[int]]
    batchnorm: bool
    stay: Collection[str]
    volumes: bool


@dataclass(frozen=True)
class ParsedOnnx(OnnxSource):
    """The model, read and valid."""

    proto: Any


@pass_called("parse")
def _parsed(source: OnnxSource) -> ParsedOnnx:
    """Read ONNX and check that it is valid."""
    return advance(source, ParsedOnnx, proto=load(source.model))


@pass_called("import")
def _imported(state: ParsedOnnx) -> Rewriting:
    """Make nodes of ONNX operators."""
    return Rewriting(_nodes(state.proto, state))


def _nodes(proto: Any, source: OnnxSource) -> Graph:
    """The nodes of a file, operator by operator; :class:`UnsupportedModel` with everything that cannot be taken."""
    values = input_values(proto)
    known_texts = texts_of_model(proto)
    known, reasons = input_shapes(values, source.shapes, bool(known_texts))
    graph = Graph(proto.graph.name or "model", [], [value.name for value in values], [], dict(known))
    nodes = [OnnxNode(proto.graph.node[k]) for k in live_order(proto.graph)]
    importer = _Importer(proto, graph, nodes, reasons)
    importer.ctx.batchnorm, importer.ctx.stay = source.batchnorm, frozenset(source.stay)
    importer.ctx.volumes = source.volumes
    importer.ctx.element_types = {
        value.name: kind for value in values if value.name in known and (kind := input_type(value)) is not None
    }
    importer.ctx.texts = {
        value.name: (*known_texts, OTHER_TEXT) for value in values if value.name in known and of_texts(value)
    }
    importer.ctx.truths |= {name for name, kind in importer.ctx.element_types.items() if kind == "bool"}
    importer.run(nodes)
    if not proto.graph.output:
        reasons.append("the model must have at least one output; export it with its results as outputs")
    for output in proto.graph.output:
        importer.output(output.name)
    if importer.reasons:
        raise UnsupportedModel(graph.name, importer.reasons)
    graph.batched = {name for name in [*graph.inputs, *graph.outputs] if graph.shapes[name][:1] == (1,)}
    types = importer.ctx.element_types
    types |= dict.fromkeys(importer.ctx.truths, "bool")
    texts = importer.ctx.texts
    graph.texts = {name: texts[name] for name in [*graph.inputs, *graph.outputs] if name in texts}
    graph.element_types = {name: types[name] for name in [*graph.inputs, *graph.outputs] if name in types}
    graph.float_types = {
        value.name: FLOAT_TYPES.get(value.type.tensor_type.elem_type, FLOAT_TYPES[1])
        for value in proto.graph.output
        if value.name not in types and value.name not in texts
    }
    graph.whole = frozenset({*importer.ctx.whole, *(x for x in graph.inputs if types.get(x, "bool") not in BYTE_TYPES)})
    graph.known_ranges = {
        name: (*ends(types[name]), f"of {types[name]}") for name in graph.inputs if types.get(name) in BYTE_TYPES
    }
    masks.limit(graph)
    return graph


#: From a file to a graph with the operators of the file.
AS_WRITTEN = Pipeline("read", OnnxSource, Rewriting, (_parsed, _imported), (GRAPH,))
#: From a file to a graph in its canonical form.
IMPORT = Pipeline("import", OnnxSource, Rewriting, (_parsed, _imported, *passes.AFTER_IMPORT), (GRAPH,))


def _reads(node: OnnxNode) -> list[str]:
    """Names that a node reads, and that its bodies read of the model around."""
    return [*node.inputs, *captured(node.proto)]


def _check_numbers(node: OnnxNode) -> None:
    """Refuse attributes that are no numbers, but for what is missing; that, limits and padding may be infinite."""
    for name, value in node.attrs.items():
        numbers = [x for x in (value if isinstance(value, list) else [value]) if isinstance(x, float)]
        if any(math.isnan(x) for x in numbers) and name != "replaced_value_float":
            raise Refusal(f"attribute {name} must be a number, not NaN")
        if any(math.isinf(x) for x in numbers) and node.op not in _INFINITE and name != "replaced_value_float":
            raise Refusal(f"attribute {name} must be finite, not infinite")


class _Importer:
    """Takes nodes in order; goes on after what cannot be taken, to find every reason."""

    def __init__(self, proto: Any, graph: Graph, nodes: Sequence[OnnxNode], reasons: list[str]):
        self.proto, self.reasons = proto, reasons
        used = {name for node in nodes for name in _reads(node)} | {output.name for output in proto.graph.output}
        names = {name for node in nodes for name in (*node.inputs, *node.outputs, node.name)} | set(graph.inputs)
        self.ctx = Context(graph, opset(proto), names, used)
        self.unknown = set(graph.inputs) - set(graph.shapes)
        self.deferred: set[str] = set()  # constant, if the shape they come from were known
        self._inferred: dict[str, Any] | None = None
        self._initialisers()

    def _initialisers(self) -> None:
        from onnx import numpy_helper

        for item in self.proto.graph.initializer:
            try:
                self._add_constant(item.name, numpy_helper.to_array(item))
            except (ValueError, TypeError, LookupError) as error:
                reason = f"with data for its type and shape {list(item.dims)}"
                raise ValueError(f"initialiser {item.name!r} must be valid ONNX, {reason}") from error
        if self.proto.graph.sparse_initializer:
            self.reasons.append("sparse initialisers are not supported; export with dense weights")

    def _add_constant(self, name: str, value: Array) -> None:
        """A constant; weights must be finite, single numbers may be infinite: they are limits, and so may masks."""
        self.ctx.constants[name] = value
        if name in self.ctx.used and value.dtype.kind in "fV" and value.dtype.names is None:
            with np.errstate(invalid="ignore"):
                numbers = value.astype(np.float64)
            if np.isnan(numbers).any() or (value.size > 1 and (numbers == np.inf).any()):
                self.ctx.refused.add(name)
                self.reasons.append(f"constant '{name}': must be finite, it has NaN or infinities; correct the model")

    def run(self, nodes: Sequence[OnnxNode]) -> None:
        """Take all nodes."""
        for node in nodes:
            start = len(self.ctx.graph.nodes)
            try:
                _check_numbers(node)
                if not self._unfolded(node, unfolding.unfolding_of(self.ctx, node)) and not self._known(node):
                    self._bind(node, start)
            except (Refusal, ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
                # The others come from operands and attributes that this operator cannot have.
                del self.ctx.graph.nodes[start:]
                odd = "operands or attributes must be such as the operator has; correct the model"
                self._refuse(node, str(error) if isinstance(error, Refusal | MatrixTooLarge) else odd)

    def _unfolded(self, node: OnnxNode, rule: unfolding.Unfolding | None) -> bool:
        """Take the nodes that a node stands for; True if there are such."""
        if rule is None:
            return False
        if (self.unknown | self.deferred).intersection(_reads(node)):
            self.unknown.update(node.outputs)
            return True
        for parts in rule(self.ctx, node):
            self.ctx.used.update(name for part in parts for name in _reads(part))
            self.run(parts)
        return True

    def _known(self, node: OnnxNode) -> bool:
        """Make the result a constant if it does not depend on the inputs' values; True if so."""
        inputs = [name for name in node.inputs if name]
        if node.standard and node.op in OF_SHAPES and not self.ctx.is_constant(inputs[0]):
            return self._shape(node, inputs[0])
        foldable = node.standard and (inputs or node.op == "Constant") and node.op not in _RANDOM
        if not foldable or not set(inputs) <= self.ctx.constants.keys() | self.deferred:
            return False
        if self.deferred.intersection(inputs):
            self.deferred.update(node.outputs)
            return True
        results = evaluated(node, {name: self.ctx.constants[name] for name in inputs}, self.ctx.opset)
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self._add_constant(name, value)
        quantization.remember_constant(self.ctx, node)
        return True

    def _shape(self, node: OnnxNode, name: str) -> bool:
        """The shape of a tensor is a constant, now or as soon as it is known."""
        if name in self.unknown:
            self.deferred.add(node.outputs[0])
        else:
            shape = self.ctx.shape(name)
            self.ctx.constants[node.outputs[0]] = OF_SHAPES[node.op](node, shape)
        return True

    def _bind(self, node: OnnxNode, start: int) -> None:
        learned = ML_HANDLERS.get(node.op) if node.proto.domain == ML_DOMAIN else None
        if learned is None and (
            not node.standard or (handler_of(node.op) is None and host_handler_of(node.op) is None)
        ):
            integer = any(node.op.startswith(prefix) for prefix in _INTEGER)
            if node.standard and not integer and (rule := unfolding.defined_by_onnx(self.ctx, node)) is not None:
                self._unfolded(node, lambda *_: rule)
                return
            usual = "export in QDQ form or in floats" if integer else "replace it, or compute it outside the model"
            raise Refusal("operator is not supported", usual)
        if (self.unknown | self.deferred).intersection(node.inputs):
            self.unknown.update(node.outputs)
            return
        texts = texts_of_operands(self.ctx, node)
        typed = self._nodes_of(node, start) if learned is None else learned(self.ctx, node)
        if texts is not None and learned is None:
            typed = [replace(result, texts=texts) if result.element_type else result for result in typed]
        results = [result.name for result in typed]
        for index, name in enumerate(node.outputs):
            if name in self.ctx.used and index >= len(results) and name not in self.ctx.codes:
                raise Refusal(f"output {index} '{name}' is not supported", "do not use it")
        names = [name if name in self.ctx.used else "" for name in node.outputs]
        self.ctx.bind(start, results, names + [""] * (len(results) - len(names)))
        self._note_whole(node, start, dict(zip(names, (result.element_type for result in typed), strict=False)))
        for name, result in zip(names, typed, strict=False):
            if name and result.element_type is not None:
                self.ctx.element_types[name] = result.element_type
                if result.texts is not None:
                    self.ctx.texts[name] = result.texts
                if result.element_type == "bool":
                    self.ctx.truths.add(name)
        logic.note_truths(self.ctx, node)

    def _note_whole(self, node: OnnxNode, start: int, results: Mapping[str, str | None]) -> None:
        """Note what nodes from ``start`` on compute of whole numbers; results are given with their types.

        Of bytes that are moved, and of truth values, binary16 holds all; arithmetic with bytes leaves their range on
        the way.
        """
        kinds = {self.ctx.element_types.get(name) for name in node.inputs} | {*results.values()}
        held: set[str | None] = {None, "bool", *(BYTE_TYPES if node.op in MOVING_OPERATORS else ())}
        if kinds <= held or node.op == "DequantizeLinear":
            return
        made = {name for item in self.ctx.graph.nodes[start:] for name in item.outputs}
        if not node.standard or not reads_whole_numbers(self.ctx, node):
            made &= results.keys()
        self.ctx.whole |= {name for name in made if results.get(name, "") is not None}

    def _nodes_of(self, node: OnnxNode, start: int) -> Sequence[TypedTensor]:
        """Append nodes for one of the file: such that the NPU computes, or else such that the host does."""
        handler, host = handler_of(node.op), host_handler_of(node.op)
        kind = self.ctx.element_types.get(node.input(0))
        if reads_whole_numbers(self.ctx, node) and node.op not in MOVING_OPERATORS:
            if node.op == "DequantizeLinear":
                return quantization.meaning(self.ctx, node)
            if host is None:
                raise Refusal("reads whole numbers and computes with floats alone", "put a Cast to float in front")
            return host(self.ctx, node)
        if handler is None:
            assert host is not None
            return host(self.ctx, node)
        try:
            results = handler(self.ctx, node)
        except (Refusal, MatrixTooLarge) as refusal:
            if host is None or node.op not in OF_COMPUTED_OPERANDS:
                raise
            del self.ctx.graph.nodes[start:]
            try:
                return host(self.ctx, node)
            except (Refusal, MatrixTooLarge):
                raise refusal from None
        return [
            TypedTensor(name, kind if node.op in MOVING_OPERATORS else None)
            for name in ([results] if isinstance(results, str) else results)
        ]

    def _refuse(self, node: OnnxNode, reason: str) -> None:
        """Note a reason, and what its outputs are like, as far as ONNX itself knows."""
        self.reasons.append(f"{node.label} '{node.name}': {reason}")
        for name in filter(None, node.outputs):
            if shape := self._inference().get(name):
                self.ctx.graph.shapes[name] = shape
            else:
                self.unknown.add(name)

    def _inference(self) -> dict[str, Any]:
        """Shapes that onnx infers for tensors of floats, where they are known."""
        import onnx

        if self._inferred is None:
            for value in input_values(self.proto):
                for dim, size in zip(
                    value.type.tensor_type.shape.dim, self.ctx.graph.shapes.get(value.name, ()), strict=False
                ):
                    dim.dim_value = size
            try:
                inferred = onnx.shape_inference.infer_shapes(self.proto, data_prop=True)
            except onnx.shape_inference.InferenceError:  # types or shapes in it contradict each other
                inferred = self.proto
            types = {item.name: item.type.tensor_type for item in inferred.graph.value_info}
            floats = {name: kind for name, kind in types.items() if kind.elem_type in FLOAT_TYPES}
            sizes = {name: tuple(dim.dim_value for dim in kind.shape.dim) for name, kind in floats.items()}
            self._inferred = {name: shape for name, shape in sizes.items() if shape and all(shape)}
        return self._inferred

    def _constant_output(self, name: str) -> None:
        """A constant beside what is computed; the host gives it for every sample."""
        value = self.ctx.constants[name]
        if value.dtype.kind not in "fiub" or not np.isfinite(value.astype(np.float64)).all():
            self.reasons.append(f"output '{name}': is constant and no finite numbers; --outputs leaves it out")
        elif self.ctx.graph.inputs and not self.reasons:
            attrs = {"value": np.asarray(value, np.float64)}
            self.ctx.graph.nodes.append(
                Node("Fill", self.ctx.unique(f"{name}/Fill"), (self.ctx.graph.inputs[0],), (name,), attrs)
            )
            self.ctx.graph.shapes[name] = value.shape
            if value.dtype.kind != "f":
                self.ctx.element_types[name] = value.dtype.name

    def output(self, name: str) -> None:
        """Note an output of the network."""
        graph = self.ctx.graph
        graph.outputs.append(name)
        if OTHER_TEXT in self.ctx.texts.get(name, ()):
            self.reasons.append(f"output '{name}': is a text of an input, which may be any; --outputs leaves it out")
        elif name in self.ctx.dynamic:
            what = "integers, scale and zero point of DynamicQuantizeLinear are not computed"
            self.reasons.append(f"output '{name}': {what}; use QuantizeLinear")
        elif name in self.ctx.constants:
            self._constant_output(name)
        elif name in self.ctx.codes:
            start = len(graph.nodes)
            result, kind = quantization.codes_of(self.ctx, name)
            self.ctx.bind(start, [result], [name])
            self.ctx.element_types[name] = kind
        elif name in self.ctx.sequences:
            self.reasons.append(f"output '{name}': is a sequence; put SequenceAt or ConcatFromSequence behind it")
        elif name not in graph.shapes and not self.reasons:
            self.reasons.append(f"output '{name}': is never computed; correct the model")
