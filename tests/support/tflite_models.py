"""Small TensorFlow Lite files, written through the object interface of LiteRT, and what its interpreter computes."""

from __future__ import annotations

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from concord.frontend.codes import load

KINDS = {np.dtype(np.float32): "FLOAT32", np.dtype(np.int8): "INT8", np.dtype(np.int32): "INT32",
         np.dtype(np.float16): "FLOAT16", np.dtype(np.uint8): "UINT8", np.dtype(np.int16): "INT16",
         np.dtype(np.int64): "INT64", np.dtype(np.bool_): "BOOL"}  # fmt: skip


class Net:
    """A network that grows operator by operator; tensors are numbers. With another one it is part of the same file."""

    def __init__(self, first=None):
        self.model = schema.ModelT() if first is None else first.model
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        if first is None:
            self.model.version = 3
            self.model.buffers, self.model.operatorCodes, self.model.subgraphs = [schema.BufferT()], [], []
        self.model.subgraphs.append(self.graph)

    def tensor(self, shape, dtype=np.float32, scale=None, zero=0, data=None, axis=0, name=None):
        """``scale`` and ``zero`` of codes; of each element of an axis if they are lists."""
        tensor = schema.TensorT()
        tensor.name = name or f"tensor{len(self.graph.tensors)}"
        tensor.shape, tensor.type = list(shape), getattr(schema.TensorType, KINDS[np.dtype(dtype)])
        tensor.buffer = 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data, dtype).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            tensor.buffer = len(self.model.buffers) - 1
        if scale is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = [float(s) for s in np.atleast_1d(scale)]
            tensor.quantization.zeroPoint = [int(z) for z in np.broadcast_to(zero, np.shape(np.atleast_1d(scale)))]
            tensor.quantization.quantizedDimension = axis
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, values, **codes):
        return self.tensor(np.shape(values), np.asarray(values).dtype, data=values, **codes)

    def op(self, name, inputs, output, options=None, **values):
        """An operator; ``output`` is one tensor or several."""
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        self.model.operatorCodes.append(code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = list(inputs), np.atleast_1d(output).tolist()
        if options:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(schema, f"{options}T")()
            for key, value in values.items():
                assert hasattr(operator.builtinOptions, key), key
                setattr(operator.builtinOptions, key, value)
        self.graph.operators.append(operator)
        return output

    def ends(self, inputs, outputs):
        """What the network reads and makes."""
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)

    def bytes(self, inputs, outputs):
        self.ends(inputs, outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def interpreted(data, *inputs):
    """Results of the interpreter, by output."""
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    for details, values in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], values)
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]


def reference_codes(data, names, *inputs):
    """Tensors that the reference kernels compute, by name; a file for one sample is run for each."""
    kernels = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=kernels, experimental_preserve_all_tensors=True
    )
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    size = int(details[0]["shape"][0])
    made = []
    for k in range(0, len(inputs[0]), size):
        for item, values in zip(details, inputs, strict=True):
            interpreter.set_tensor(item["index"], values[k : k + size])
        interpreter.invoke()
        made.append({item["name"]: interpreter.get_tensor(item["index"]) for item in interpreter.get_tensor_details()
                     if item["name"] in names})  # fmt: skip
    return {name: np.concatenate([np.atleast_1d(part[name]) for part in made]) for name in made[0]}


def compared_codes(data, *inputs, every=True):
    """How many codes a network has, and how many are not those of the reference kernels.

    With ``every`` they are those of all tensors, else of the outputs: rows of samples may have an axis more.
    """
    network = load(data, compose=False)
    own = network.run(dict(zip(network.graph.inputs, inputs, strict=True)), every=True)
    made = [operation.output for operation in network.graph.operations if operation.inputs and every]
    want = reference_codes(data, {*made, *network.graph.outputs}, *inputs)
    count = different = 0
    for name in want:
        codes = own[name]
        if want[name].dtype.kind == "f":  # what DEQUANTIZE makes of the codes
            scheme = network.scheme(name)
            codes = (codes.astype(np.float64) - scheme.zero) * float(scheme.scale)
            codes = codes.astype(np.float32)
        assert codes.shape == want[name].shape and codes.dtype == want[name].dtype
        count, different = count + codes.size, different + int(np.sum(codes != want[name]))
    return count, different
