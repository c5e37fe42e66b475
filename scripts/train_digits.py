"""Trains the digits network and writes it with a few held-out samples.

The data are the 1797 handwritten digits of 8 x 8 pixels that scikit-learn carries (UCI "Optical
Recognition of Handwritten Digits", test part). The network is two blocks of conv 3 x 3, batch
normalization, ReLU and 2 x 2 max-pooling, then one dense layer and softmax. Forward and backward
passes are written out below in numpy; the exported graph keeps batch normalization as an operator
of its own, so that importing it exercises the rewrite into the weights.

usage: python scripts/train_digits.py [--output DIR]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Array = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]

SEED = 20240
TEST_SHARE = 0.25
EPOCHS = 40
BATCH = 32
CHANNELS = (16, 32)
CLASSES = 10
BN_EPSILON = 1e-5
BN_MOMENTUM = 0.9
SAMPLES = 20
DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "rlx_edge" / "data"


@dataclass(frozen=True)
class Split:
    """Images f32 [n, 1, 8, 8] in 0..1 and labels i64 [n], for training and for testing."""

    train_images: Array
    train_labels: Labels
    test_images: Array
    test_labels: Labels


def load_split() -> Split:
    """The seeded split; the network never sees the test part."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None, :, :] / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(labels))
    held_out = int(len(labels) * TEST_SHARE)
    test, train = order[:held_out], order[held_out:]
    return Split(images[train], labels[train], images[test], labels[test])


@dataclass
class Block:
    """Conv 3 x 3 (padding 1, no bias), batch normalization, ReLU, max-pool 2 x 2."""

    weight: Array  # [out, in, 3, 3]
    scale: Array
    shift: Array
    mean: Array = field(init=False)
    variance: Array = field(init=False)

    def __post_init__(self) -> None:
        self.mean = np.zeros_like(self.scale)
        self.variance = np.ones_like(self.scale)

    def forward(self, x: Array, training: bool) -> Array:
        self._columns = im2col(x)
        out, channels = self.weight.shape[:2]
        conv = np.einsum("nkhw,ok->nohw", self._columns, self.weight.reshape(out, channels * 9))
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = conv.mean(axis=(0, 2, 3)), conv.var(axis=(0, 2, 3))
            self.mean = BN_MOMENTUM * self.mean + (1 - BN_MOMENTUM) * mean
            self.variance = BN_MOMENTUM * self.variance + (1 - BN_MOMENTUM) * variance
        self._inverse = 1.0 / np.sqrt(variance + BN_EPSILON)
        self._normal = (conv - per_channel(mean)) * per_channel(self._inverse)
        activated = np.maximum(
            self._normal * per_channel(self.scale) + per_channel(self.shift), 0.0
        )
        n, c, h, w = activated.shape
        windows = activated.reshape(n, c, h // 2, 2, w // 2, 2)
        pooled = windows.max(axis=(3, 5))
        first = windows == pooled[:, :, :, None, :, None]
        self._winner = first / first.sum(axis=(3, 5), keepdims=True)
        self._active = activated > 0.0
        return pooled

    def backward(self, grad: Array) -> tuple[Array, list[Array]]:
        """The gradient at the input, and those of weight, scale and shift."""
        spread = self._winner * grad[:, :, :, None, :, None]
        grad = spread.reshape(self._active.shape) * self._active
        grad_scale = (grad * self._normal).sum(axis=(0, 2, 3))
        grad_shift = grad.sum(axis=(0, 2, 3))
        count = grad.size / grad.shape[1]
        centred = grad - per_channel(grad_shift / count)
        centred -= self._normal * per_channel(grad_scale / count)
        grad_conv = centred * per_channel(self.scale * self._inverse)
        grad_weight = np.einsum("nohw,nkhw->ok", grad_conv, self._columns)
        out, channels = self.weight.shape[:2]
        flat = self.weight.reshape(out, channels * 9)
        grad_input = col2im(np.einsum("nohw,ok->nkhw", grad_conv, flat))
        return grad_input, [grad_weight.reshape(self.weight.shape), grad_scale, grad_shift]


def per_channel(values: Array) -> Array:
    return values[None, :, None, None]


def im2col(x: Array) -> Array:
    """[n, c, h, w] to [n, c * 9, h, w]: the 3 x 3 neighbourhood of every pixel, zero outside."""
    n, c, h, w = x.shape
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    return np.ascontiguousarray(windows.transpose(0, 1, 4, 5, 2, 3)).reshape(n, c * 9, h, w)


def col2im(columns: Array) -> Array:
    """The adjoint of `im2col`."""
    n, k, h, w = columns.shape
    padded = np.zeros((n, k // 9, h + 2, w + 2))
    taps = columns.reshape(n, k // 9, 3, 3, h, w)
    for row in range(3):
        for column in range(3):
            padded[:, :, row : row + h, column : column + w] += taps[:, :, row, column]
    return padded[:, :, 1:-1, 1:-1]


class Network:
    """Two blocks, one dense layer, softmax."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.blocks: list[Block] = []
        channels = 1
        for out in CHANNELS:
            weight = rng.normal(0.0, np.sqrt(2.0 / (channels * 9)), (out, channels, 3, 3))
            self.blocks.append(Block(weight, np.ones(out), np.zeros(out)))
            channels = out
        features = channels * 2 * 2
        self.dense = rng.normal(0.0, np.sqrt(1.0 / features), (features, CLASSES))
        self.bias = np.zeros(CLASSES)

    def parameters(self) -> list[Array]:
        blocks = [p for b in self.blocks for p in (b.weight, b.scale, b.shift)]
        return [*blocks, self.dense, self.bias]

    def probabilities(self, images: Array, training: bool = False) -> Array:
        x: Array = images.astype(np.float64)
        for block in self.blocks:
            x = block.forward(x, training)
        self._pooled_shape = x.shape
        self._features = x.reshape(len(x), -1)
        logits = self._features @ self.dense + self.bias
        exponent = np.exp(logits - logits.max(axis=1, keepdims=True))
        result: Array = exponent / exponent.sum(axis=1, keepdims=True)
        return result

    def gradients(self, images: Array, labels: Labels) -> list[Array]:
        """Of the mean cross-entropy, in the order of `parameters`."""
        grad = self.probabilities(images, training=True)
        grad[np.arange(len(labels)), labels] -= 1.0
        grad /= len(labels)
        tail = [self._features.T @ grad, grad.sum(axis=0)]
        below = (grad @ self.dense.T).reshape(self._pooled_shape)
        heads: list[Array] = []
        for block in reversed(self.blocks):
            below, own = block.backward(below)
            heads = own + heads
        return heads + tail


def train(split: Split) -> Network:
    """Adam with a cosine learning rate; images are shifted by up to one pixel at random."""
    rng = np.random.default_rng(SEED)
    network = Network(rng)
    first = [np.zeros_like(p) for p in network.parameters()]
    second = [np.zeros_like(p) for p in network.parameters()]
    count = len(split.train_labels)
    steps = EPOCHS * (count // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(count)
        for start in range(0, count - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            images = shifted(split.train_images[chosen], rng)
            gradients = network.gradients(images, split.train_labels[chosen])
            rate = 3e-3 * 0.5 * (1.0 + np.cos(np.pi * step / steps))
            step += 1
            for p, g, m, v in zip(network.parameters(), gradients, first, second, strict=True):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                corrected = np.sqrt(v / (1.0 - 0.999**step)) + 1e-8
                p -= rate * (m / (1.0 - 0.9**step)) / corrected
    return network


def shifted(images: Array, rng: np.random.Generator) -> Array:
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    offsets = rng.integers(0, 3, (len(images), 2))
    return np.stack([p[:, r : r + 8, c : c + 8] for p, (r, c) in zip(padded, offsets, strict=True)])


def export(network: Network, path: Path) -> None:
    """Writes the ONNX file: opset 17, dynamic batch, every weight f32."""
    from onnx import TensorProto, checker, helper, numpy_helper, save

    nodes, weights = [], []

    def constant(name: str, values: Array) -> str:
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    value = "image"
    for number, block in enumerate(network.blocks, start=1):
        at = f"block{number}"
        nodes += [
            helper.make_node(
                "Conv",
                [value, constant(f"{at}.weight", block.weight)],
                [f"{at}.conv"],
                name=f"{at}/conv",
                kernel_shape=[3, 3],
                pads=[1, 1, 1, 1],
            ),
            helper.make_node(
                "BatchNormalization",
                [
                    f"{at}.conv",
                    constant(f"{at}.scale", block.scale),
                    constant(f"{at}.shift", block.shift),
                    constant(f"{at}.mean", block.mean),
                    constant(f"{at}.variance", block.variance),
                ],
                [f"{at}.normal"],
                name=f"{at}/normalize",
                epsilon=BN_EPSILON,
            ),
            helper.make_node("Relu", [f"{at}.normal"], [f"{at}.relu"], name=f"{at}/relu"),
            helper.make_node(
                "MaxPool",
                [f"{at}.relu"],
                [f"{at}.pool"],
                name=f"{at}/pool",
                kernel_shape=[2, 2],
                strides=[2, 2],
            ),
        ]
        value = f"{at}.pool"
    nodes += [
        helper.make_node("Flatten", [value], ["features"], name="flatten", axis=1),
        helper.make_node(
            "Gemm",
            [
                "features",
                constant("dense.weight", network.dense),
                constant("dense.bias", network.bias),
            ],
            ["logits"],
            name="dense",
        ),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name="softmax", axis=1),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])
    result = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES])
    graph = helper.make_graph(nodes, "digits", [image], [result], weights)
    model = helper.make_model(
        graph,
        producer_name="rlx-edge",
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    checker.check_model(model, full_check=True)
    save(model, path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    output: Path = parser.parse_args(arguments).output
    output.mkdir(parents=True, exist_ok=True)
    split = load_split()
    network = train(split)
    guesses = network.probabilities(split.test_images).argmax(axis=1)
    accuracy = float((guesses == split.test_labels).mean())
    export(network, output / "digits.onnx")
    np.savez_compressed(
        output / "digits_samples.npz",
        image=split.test_images[:SAMPLES],
        label=split.test_labels[:SAMPLES],
    )
    size = (output / "digits.onnx").stat().st_size
    print(f"accuracy {accuracy:.4f} on {len(guesses)} held-out images; {size} bytes")
    return 0 if accuracy >= 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
