"""The texts of all back ends have one vocabulary: the same function has the same name, and the same arguments."""

import ast

from onnx import TensorProto

from concord.derive.backends.function_texts import flag_text, host_text, with_operations
from concord.derive.backends.onnx_functions import FUNCTIONS, function, function_name
from concord.derive.primitives import PRIMITIVES

#: Primitives that a library has no need of.
ABSENT = {
    "numpy": {"round_single_to_half", "round_sum_to_half", "sum_of_two", "sum_of_three", "beyond_sum"},
    "torch": {"round_single_to_half"},
}
#: Arguments that say how a primitive rounds.
ROUNDING = {"noise", "away"}


def parameters(library):
    """Names of the arguments of the functions that derived files of a library hold, by name."""
    text = "\n".join([with_operations(library), flag_text(library), host_text(library)])
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: [x.arg for x in (*node.args.args, *node.args.kwonlyargs)] for node in functions}


def test_python_has_the_primitives():
    for library, absent in ABSENT.items():
        functions = parameters(library)
        assert PRIMITIVES.keys() - functions.keys() == absent, library
        for name in PRIMITIVES.keys() & functions.keys():
            record = PRIMITIVES[name]
            arguments = [argument for argument in functions[name] if argument not in ROUNDING]
            assert arguments == [*record.operands, *record.attributes], (library, name)


def test_onnx_has_the_primitives():
    """But for one that it calls another for."""
    assert {name for name in PRIMITIVES if function_name(name) not in FUNCTIONS} == {"half_reduce_max"}


def test_functions_of_one_name_have_the_same_arguments():
    of_numpy, of_torch = parameters("numpy"), parameters("torch")
    both = of_numpy.keys() & of_torch.keys()
    assert {"block_quantize", "ended", "host_softmax", "note", "on_grid", "product", "windows"} < both
    assert {name: of_numpy[name] for name in both} == {name: of_torch[name] for name in both}


def test_names_inside_onnx_functions():
    """They say what tensors hold; ``half`` is one of binary16."""
    for name in FUNCTIONS:
        for node in function(name).node:
            assert not {"found", "mine", "one", "one_half"} & {*node.output}, name
            types = [attribute.i for attribute in node.attribute if attribute.name == "to"]
            assert "half" not in node.output or types == [TensorProto.FLOAT16], name
