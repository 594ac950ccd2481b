"""Einsum, against onnxruntime."""

import pytest

from support.onnx_expressions import given, op
from support.onnx_models import agrees, floats, unary

SIZES = {"n": 1, "b": 2, "c": 3, "h": 2, "i": 3, "j": 4, "k": 5, "d": 4}


def shape(term):
    return tuple(SIZES[letter] for letter in term.replace("...", "nb"))


@pytest.mark.parametrize(
    "equation",
    ["nij->nji", "nij->ni", "nij->n", "nijk->njki", "nij", "jni", "...ij->...ji", "n...j->nj...", "nij -> nj"],
)
def test_one_operand(equation):
    term = equation.partition("->")[0].strip()
    agrees(unary("Einsum", shape=shape(term if term != "n...j" else "nbcj"), equation=equation))


@pytest.mark.parametrize("equation", ["nii->ni", "nii->n", "nihih->nhi", "nii"])
def test_diagonals(equation):
    agrees(unary("Einsum", shape=shape(equation.partition("->")[0]), equation=equation))


@pytest.mark.parametrize("equation", ["nii,nij->nj", "nij,njj->ni"])
def test_a_diagonal_in_a_product(equation):
    a, b = equation.partition("->")[0].split(",")
    x = given(*shape(a))
    agrees(op.Einsum(x, given(*shape(b), name="z"), equation=equation))
    agrees(op.Einsum(x, floats(*shape(b)), equation=equation))


@pytest.mark.parametrize(
    "equation",
    [
        "nij,njk->nik",
        "nik,njk->nij",
        "nhid,nhjd->hnij",
        "nij,nij->nij",
        "nij,nij->n",
        "ni,nj->nij",
        "nij,nj->ni",
        "nijk,nj->nik",
        "...ij,...jk->...ik",
        "nbij,nbjk",
        "nchk,ncj->nhkj",
        "nij,nkj->n",
    ],
)
def test_two_operands(equation):
    a, b = equation.partition("->")[0].split(",")
    agrees(op.Einsum(given(*shape(a)), given(*shape(b), name="z"), equation=equation))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("equation", ["nij,jk->nik", "nij,kj->nki", "nij,ik->njk", "nhid,dk->nhik", "nij,j->ni",
                                      "nij,jik->nk", "nij,jkc->nik", "nij,ij->n"])  # fmt: skip
def test_a_constant(equation, first):
    (a, b), result = equation.partition("->")[0].split(","), equation.partition("->")[2]
    x, constant = given(*shape(a)), floats(*shape(b))
    if first:
        agrees(op.Einsum(constant, x, equation=f"{b},{a}->{result}"))
    else:
        agrees(op.Einsum(x, constant, equation=equation))
