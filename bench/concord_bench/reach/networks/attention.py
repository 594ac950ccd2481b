"""Networks with attention and networks of tokens."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from concord_bench.reach.networks.builder import Builder, Family, whole

TOKENS = Family("attention and tokens")
network = TOKENS.network


def attention(b: Builder, x: str, t: int, c: int, heads: int, mask: str = "") -> str:
    """Self-attention with one product for queries, keys and values; ``mask`` is added to the scores."""
    size = c // heads
    y = b.op("Reshape", b.dense(x, c, 3 * c), b.ints(0, t, 3, heads, size))
    y = b.transpose(y, 2, 0, 3, 1, 4)
    q, k, v = (b.op("Gather", y, b.const(np.int64(n)), axis=0) for n in range(3))
    scores = b.mul(b.op("MatMul", q, b.transpose(k, 0, 1, 3, 2)), b.scalar(size**-0.5))
    if mask:
        scores = b.add(scores, mask)
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    return b.dense(b.op("Reshape", b.transpose(y, 0, 2, 1, 3), b.ints(0, t, c)), c, c)


def encoder(b: Builder, x: str, t: int, c: int, heads: int, mask: str = "", first: bool = True) -> str:
    """A layer of a transformer; normalisation in front of the parts or after them."""
    if first:
        x = b.add(x, attention(b, b.layernorm(x, c), t, c, heads, mask))
        return b.add(x, b.dense(b.gelu(b.dense(b.layernorm(x, c), c, 2 * c)), 2 * c, c))
    x = b.layernorm(b.add(x, attention(b, x, t, c, heads, mask)), c)
    return b.layernorm(b.add(x, b.dense(b.op("Relu", b.dense(x, c, 2 * c)), 2 * c, c)), c)


@network("transformer encoder for series with class token (expanded) and position embedding")
def class_token_encoder(b: Builder) -> None:
    x = b.dense(b.input("series", ["batch", 8, 6]), 6, 16)
    size = b.op("Gather", b.op("Shape", x), b.const(np.int64(0)), axis=0)
    shape = b.concat(b.unsqueeze(size, 0), b.ints(-1), b.ints(-1), axis=0)
    shape = b.op("Where", b.op("Equal", shape, b.ints(-1, -1, -1)), b.ints(1, 1, 1), shape)
    token = b.op("Expand", b.small(1, 1, 16, size=1.0), shape)
    x = b.add(b.concat(token, x), b.small(1, 9, 16, size=0.5))
    x = encoder(b, x, 9, 16, 2)
    b.result("logits", b.linear(b.op("Gather", b.layernorm(x, 16), b.const(np.int64(0)), axis=1), 16, 4))


@network("the same with the class token as a constant of the batch of 1")
def class_token_constant(b: Builder) -> None:
    x = b.dense(b.input("series", [1, 8, 6]), 6, 16)
    x = b.add(b.concat(b.small(1, 1, 16, size=1.0), x), b.small(1, 9, 16, size=0.5))
    x = encoder(b, x, 9, 16, 2, first=False)
    b.result("logits", b.linear(b.op("Gather", x, b.const(np.int64(0)), axis=1), 16, 4))


@network("causal self-attention with a mask of -inf")
def causal_mask(b: Builder) -> None:
    x = b.add(b.dense(b.input("series", [1, 8, 6]), 6, 16), b.small(1, 8, 16))
    mask = b.const(np.triu(np.full((8, 8), -np.inf, np.float32), 1))
    b.result("next", b.dense(encoder(b, x, 8, 16, 2, mask), 16, 6))


@network("nanoGPT: causal mask by Where with -inf over masked scores")
def nanogpt(b: Builder) -> None:
    c, heads, t = 16, 2, 8
    x = b.add(b.input("embedded", [1, t, c]), b.small(1, t, c))
    y = b.dense(b.layernorm(x, c), c, 3 * c)
    q, k, v = b.op("Split", y, b.ints(c, c, c), results=3, axis=2)
    q, k, v = (b.transpose(b.reshape(part, 1, t, heads, c // heads), 0, 2, 1, 3) for part in (q, k, v))
    scores = b.mul(b.op("MatMul", q, b.transpose(k, 0, 1, 3, 2)), b.scalar((c // heads) ** -0.5))
    above = b.const(np.triu(np.ones((1, 1, t, t), bool), 1))
    scores = b.op("Where", above, b.scalar(-np.inf), scores)
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    x = b.add(x, b.dense(b.reshape(b.transpose(y, 0, 2, 1, 3), 1, t, c), c, c))
    x = b.add(x, b.dense(b.gelu(b.dense(b.layernorm(x, c), c, 4 * c)), 4 * c, c))
    b.result("logits", b.dense(b.layernorm(x, c), c, 20, bias=False))


@network("Llama block: RMSNorm written out, rotary embedding with constant Cos and Sin, SwiGLU, causal")
def llama_block(b: Builder) -> None:
    c, heads, t, size = 16, 2, 8, 8
    x = b.input("hidden", [1, t, c])

    def rms(x: str) -> str:
        square = b.mean(b.op("Pow", x, b.scalar(2)), -1)
        root = b.op("Sqrt", b.add(square, b.scalar(1e-5)))
        return b.mul(b.small(c, middle=1.0), b.mul(x, b.op("Reciprocal", root)))

    angle = np.outer(np.arange(t), 1 / 10000 ** (np.arange(0, size, 2) / size))
    angle = np.concatenate([angle, angle], -1)[None, None].astype(np.float32)
    cosine, sine = b.op("Cos", b.const(angle)), b.op("Sin", b.const(angle))

    def rotary(x: str) -> str:
        low, high = b.slice(x, 0, size // 2, 3), b.slice(x, size // 2, 2**31 - 1, 3)
        return b.add(b.mul(x, cosine), b.mul(b.concat(b.op("Neg", high), low, axis=-1), sine))

    y = rms(x)
    q, k, v = (b.transpose(b.reshape(b.dense(y, c, c, bias=False), 1, t, heads, size), 0, 2, 1, 3) for _ in range(3))
    scores = b.op("Div", b.op("MatMul", rotary(q), b.transpose(rotary(k), 0, 1, 3, 2)), b.scalar(size**0.5))
    mask = b.const(np.triu(np.full((1, 1, t, t), np.finfo(np.float32).min), 1))
    y = b.op("MatMul", b.op("Softmax", b.add(scores, mask), axis=-1), v)
    x = b.add(x, b.dense(b.reshape(b.transpose(y, 0, 2, 1, 3), 1, t, c), c, c, bias=False))
    y = rms(x)
    y = b.mul(b.silu(b.dense(y, c, 40, bias=False)), b.dense(y, c, 40, bias=False))
    b.result("hidden_out", b.add(x, b.dense(y, 40, c, bias=False)))


@network("BERT: int64 ids, mask and types, mask made of (1 - mask) times the least float, pooler")
def bert(b: Builder) -> None:
    t, c = 10, 16
    ids = b.input("input_ids", ["batch", t], TensorProto.INT64, whole(0, 60))
    length = lambda rng, shape: (np.arange(t) < rng.integers(4, t + 1)).astype(np.int64).reshape(shape)  # noqa: E731
    mask = b.input("attention_mask", ["batch", t], TensorProto.INT64, length)
    kinds = b.input("token_type_ids", ["batch", t], TensorProto.INT64, whole(0, 2))
    x = b.add(b.op("Gather", b.small(60, c, size=0.7), ids), b.op("Gather", b.small(2, c, size=0.3), kinds))
    x = b.layernorm(b.add(x, b.small(1, t, c, size=0.3)), c)
    mask = b.op("Cast", b.unsqueeze(b.unsqueeze(mask, 1), 2), to=1)
    mask = b.mul(b.op("Sub", b.scalar(1), mask), b.scalar(float(np.finfo(np.float32).min)))
    for _ in range(2):
        x = encoder(b, x, t, c, 2, mask, first=False)
    x = b.op("Gather", x, b.const(np.int64(0)), axis=1)
    b.result("logits", b.linear(b.op("Tanh", b.linear(x, c, c)), c, 2))


@network("ViT tiny of torchvision: patches by a convolution, class token, encoder")
def vit_tiny(b: Builder) -> None:
    x = b.conv(b.input("image", ["batch", 3, 16, 16]), 3, 24, 4, s=4, p=0)
    x = b.transpose(b.reshape(x, -1, 24, 16), 0, 2, 1)
    x = b.add(b.concat(b.small(1, 1, 24, size=1.0), x), b.small(1, 17, 24))
    x = b.layernorm(encoder(b, x, 17, 24, 3), 24)
    b.result("logits", b.linear(b.op("Gather", x, b.const(np.int64(0)), axis=1), 24, 10))


@network("ViT without class token: mean over the patches")
def vit_mean(b: Builder) -> None:
    x = b.conv(b.input("image", ["batch", 3, 16, 16]), 3, 16, 4, s=4, p=0)
    x = b.add(b.transpose(b.reshape(x, 0, 16, -1), 0, 2, 1), b.small(1, 16, 16))
    x = b.layernorm(encoder(b, x, 16, 16, 2), 16)
    b.result("logits", b.linear(b.mean(x, 1, keep=False), 16, 10))


@network("MLP-Mixer: products along tokens and along channels")
def mlp_mixer(b: Builder) -> None:
    x = b.conv(b.input("image", ["batch", 3, 16, 16]), 3, 16, 4, s=4, p=0)
    x = b.transpose(b.reshape(x, 0, 16, -1), 0, 2, 1)
    for _ in range(2):
        y = b.transpose(b.layernorm(x, 16), 0, 2, 1)
        y = b.dense(b.gelu(b.dense(y, 16, 32)), 32, 16)
        x = b.add(x, b.transpose(y, 0, 2, 1))
        x = b.add(x, b.dense(b.gelu(b.dense(b.layernorm(x, 16), 16, 32)), 32, 16))
    b.result("logits", b.linear(b.mean(b.layernorm(x, 16), 1, keep=False), 16, 10))


@network("gMLP: spatial gating unit, a convolution over tokens as the product")
def gmlp(b: Builder) -> None:
    x = b.dense(b.input("tokens", [1, 8, 6]), 6, 16)
    for _ in range(2):
        y = b.gelu(b.dense(b.layernorm(x, 16), 16, 32))
        u, v = b.op("Split", y, b.ints(16, 16), results=2, axis=2)
        v = b.conv(b.layernorm(v, 16), 8, 8, 1, axes=1)
        x = b.add(x, b.dense(b.mul(u, v), 16, 16))
    b.result("logits", b.linear(b.mean(x, 1, keep=False), 16, 4))


@network("Linformer: keys and values projected to four tokens")
def linformer(b: Builder) -> None:
    x = b.dense(b.input("tokens", [1, 12, 6]), 6, 16)
    y = b.layernorm(x, 16)
    q = b.dense(y, 16, 16)
    k, v = (b.op("MatMul", b.weight(4, 12), b.dense(y, 16, 16)) for _ in range(2))
    scores = b.mul(b.op("MatMul", q, b.transpose(k, 0, 2, 1)), b.scalar(0.25))
    x = b.add(x, b.op("MatMul", b.op("Softmax", scores, axis=-1), v))
    b.result("logits", b.linear(b.mean(x, 1, keep=False), 16, 4))


@network("linear attention (Performer-like): features elu(x) + 1, sums of keys times values, a quotient")
def linear_attention(b: Builder) -> None:
    x = b.dense(b.input("tokens", [1, 12, 6]), 6, 16)
    q, k = (b.add(b.op("Elu", b.dense(x, 16, 8), alpha=1.0), b.scalar(1)) for _ in range(2))
    v = b.dense(x, 16, 16)
    context = b.op("MatMul", b.transpose(k, 0, 2, 1), v)
    total = b.op("MatMul", q, b.unsqueeze(b.mean(k, 1, keep=False, op="ReduceSum"), -1))
    y = b.op("Div", b.op("MatMul", q, context), b.add(total, b.scalar(1e-6)))
    b.result("logits", b.linear(b.mean(b.add(x, y), 1, keep=False), 16, 4))


@network("attention pooling: a learned query, softmax over steps, Einsum for the mean")
def attention_pooling(b: Builder) -> None:
    x = b.op("Relu", b.dense(b.input("tokens", ["batch", 12, 6]), 6, 16))
    weights = b.op("Softmax", b.squeeze(b.dense(x, 16, 1, bias=False), -1), axis=1)
    b.result("logits", b.linear(b.op("Einsum", weights, x, equation="bt,btc->bc"), 16, 4))


@network("cross attention (Perceiver): constant latents read the input")
def perceiver(b: Builder) -> None:
    x = b.layernorm(b.dense(b.input("tokens", [1, 16, 6]), 6, 16), 16)
    q = b.small(1, 4, 16, size=1.0)
    scores = b.mul(b.op("MatMul", q, b.transpose(b.dense(x, 16, 16), 0, 2, 1)), b.scalar(0.25))
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), b.dense(x, 16, 16))
    y = b.add(y, b.dense(b.gelu(b.dense(b.layernorm(y, 16), 16, 32)), 32, 16))
    b.result("logits", b.linear(b.mean(y, 1, keep=False), 16, 4))


@network("self-attention of Keras (MultiHeadAttention, tf2onnx): Einsum with heads", opset=15)
def keras_attention(b: Builder) -> None:
    x = b.input("input_1", ["unk__8", 10, 16])

    def projected() -> str:
        y = b.op("Einsum", x, b.weight(16, 2, 8, fan=16), equation="abc,cde->abde")
        return b.add(y, b.small(2, 8))

    q, k, v = projected(), projected(), projected()
    scores = b.op("Einsum", k, b.mul(q, b.scalar(8**-0.5)), equation="aecd,abcd->acbe")
    y = b.op("Einsum", b.op("Softmax", scores, axis=-1), v, equation="acbe,aecd->abcd")
    y = b.add(b.op("Einsum", y, b.weight(2, 8, 16, fan=16), equation="abcd,cde->abe"), b.small(16))
    b.result("output", b.layernorm(b.add(x, y), 16), shape=["N", 10, 16])


@network("mixture of experts: softmax gate, all experts side by side, weighted sum")
def mixture_of_experts(b: Builder) -> None:
    x = b.input("x", ["batch", 16])
    gate = b.op("Softmax", b.linear(x, 16, 4), axis=1)
    experts = [b.op("Relu", b.linear(x, 16, 24, gain=1.4)) for _ in range(4)]
    stacked = b.concat(*(b.unsqueeze(y, 1) for y in experts), axis=1)
    y = b.mean(b.mul(b.unsqueeze(gate, 2), stacked), 1, keep=False, op="ReduceSum")
    b.result("y", b.linear(y, 24, 5))


@network("mixture of experts, one at a time: a column of the gate times each expert")
def mixture_of_columns(b: Builder) -> None:
    x = b.input("x", ["batch", 16])
    gate = b.op("Softmax", b.linear(x, 16, 3), axis=1)
    parts = [b.mul(b.slice(gate, k, k + 1, 1), b.linear(b.op("Relu", b.linear(x, 16, 24)), 24, 5)) for k in range(3)]
    b.result("y", b.add(b.add(parts[0], parts[1]), parts[2]))
