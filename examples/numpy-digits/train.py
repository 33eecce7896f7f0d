"""Train a small neural network on handwritten digits with NumPy, sockets and the injected environment alone.

The same as the PyTorch example without PyTorch: each node learns from its own share of the data, and the gradients are
averaged after each step. All that a node knows of the others is in four variables that Trainmaster injects:

    PET_NNODES, PET_NODE_RANK          how many nodes there are, and which of them this is
    PET_MASTER_ADDR, PET_MASTER_PORT   where node 0 listens

Exits with an error if the nodes end with different weights, which means that they did not train together.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Array = NDArray[np.float64]
Connection = socket.socket

SEED = 7
EPOCHS = 20
BATCH_SIZE = 32  # of each node
HIDDEN = 64
LEARNING_RATE = 0.1
MOMENTUM = 0.9
TEST_SHARE = 0.2
PATIENCE = 60.0  # seconds to wait for another node: it may still be starting, and its name unknown until then
LENGTH = struct.Struct("!Q")


class Group:
    """All nodes of the job, connected in a star around node 0."""

    def __init__(self) -> None:
        self.size = int(os.environ["PET_NNODES"])
        self.rank = int(os.environ["PET_NODE_RANK"])
        address = os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"])
        if self.rank == 0:
            self._peers = self._accept(patiently(lambda: socket.create_server(address)))
        else:
            hub = patiently(lambda: socket.create_connection(address, timeout=PATIENCE))
            send_at_once(hub)
            send(hub, str(self.rank).encode())
            self._peers = [hub]

    def _accept(self, server: Connection) -> list[Connection]:
        """Return the connections to all other nodes, by rank."""
        connections: dict[int, Connection] = {}
        with server:
            server.settimeout(PATIENCE)
            while len(connections) < self.size - 1:
                connection, _ = server.accept()
                connection.settimeout(PATIENCE)
                send_at_once(connection)
                connections[int(receive(connection))] = connection
        return [connections[rank] for rank in sorted(connections)]

    def all_gather(self, data: bytes) -> list[bytes]:
        """Return the data of every node, by rank. All nodes must call this together."""
        if self.rank != 0:
            (hub,) = self._peers
            send(hub, data)
            return [receive(hub) for _ in range(self.size)]
        everything = [data, *(receive(peer) for peer in self._peers)]
        for peer in self._peers:
            send(peer, *everything)
        return everything

    def mean(self, values: Array) -> Array:
        """Return the element-wise mean of all nodes' values: to the last bit the same everywhere."""
        parts = [np.frombuffer(part) for part in self.all_gather(values.tobytes())]
        return np.mean(parts, axis=0, dtype=np.float64)


def patiently(connect: Callable[[], Connection]) -> Connection:
    """Try until it works or patience ends."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return connect()
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"node 0 could not be reached within {PATIENCE:.0f} s: {error}") from error
            time.sleep(0.1)


def send_at_once(connection: Connection) -> None:
    """Have small messages sent without waiting for more: every step of the training waits for them."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def send(connection: Connection, *messages: bytes) -> None:
    """Send messages: of each its length, then its content."""
    connection.sendall(b"".join(LENGTH.pack(len(message)) + message for message in messages))


def receive(connection: Connection) -> bytes:
    """Receive one message."""
    (length,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
    return receive_exactly(connection, length)


def receive_exactly(connection: Connection, length: int) -> bytes:
    """Receive `length` bytes, which may arrive in pieces."""
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise SystemExit("another node went away before the training ended")
        data += piece
    return bytes(data)


class Network:
    """One hidden layer; all weights live in one flat array, which makes gradients easy to exchange."""

    shapes = ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))

    def __init__(self, generator: np.random.Generator) -> None:
        parts = [
            generator.normal(0, shape[0] ** -0.5, shape) if len(shape) == 2 else np.zeros(shape)
            for shape in self.shapes
        ]
        self.weights: Array = np.concatenate([part.ravel() for part in parts])

    def _layers(self) -> list[Array]:
        """Return the weights of each layer, as views of the flat array."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(self.weights, ends[:-1]), self.shapes, strict=True)]

    def scores(self, images: Array) -> tuple[Array, Array]:
        """Return the hidden layer and the probability of each digit."""
        w1, b1, w2, b2 = self._layers()
        hidden = np.maximum(images @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def gradient(self, images: Array, labels: NDArray[np.int64]) -> tuple[float, Array]:
        """Return the mean cross-entropy of a batch and its gradient, flat like the weights."""
        hidden, probabilities = self.scores(images)
        rows = np.arange(len(labels))
        loss = float(-np.log(probabilities[rows, labels] + 1e-12).mean())
        d_logits = probabilities.copy()
        d_logits[rows, labels] -= 1
        d_logits /= len(labels)
        d_hidden = (d_logits @ self._layers()[2].T) * (hidden > 0)
        parts = (images.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_logits, d_logits.sum(axis=0))
        return loss, np.concatenate([part.ravel() for part in parts])

    def accuracy(self, images: Array, labels: NDArray[np.int64]) -> float:
        """Return the share of samples that the network gets right."""
        return float((self.scores(images)[1].argmax(axis=1) == labels).mean())


def main() -> int:
    """Train, and return the exit code."""
    group = Group()
    digits = load_digits()
    images, labels = digits.data / 16, digits.target  # pixels are 0..16
    order = np.random.default_rng(SEED).permutation(len(labels))  # the same on every node
    test_size = int(len(labels) * TEST_SHARE)
    test, train = order[:test_size], order[test_size:]
    steps = len(train) // (BATCH_SIZE * group.size)

    # Each node draws other weights at first; the mean of all is where they start together.
    network = Network(np.random.default_rng([SEED, group.rank]))
    network.weights = group.mean(network.weights)
    velocity = np.zeros_like(network.weights)
    shuffling = np.random.default_rng(SEED)

    if group.rank == 0:
        print(f"{group.size} nodes, {len(train)} training and {len(test)} test images", flush=True)
    started = time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        share = shuffling.permutation(train)[group.rank :: group.size]
        losses = np.zeros(steps)
        for step in range(steps):
            batch = share[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
            losses[step], gradient = network.gradient(images[batch], labels[batch])
            velocity = MOMENTUM * velocity - LEARNING_RATE * group.mean(gradient)
            network.weights = network.weights + velocity
        loss = float(group.mean(losses).mean())
        if group.rank == 0:
            print(f"epoch {epoch:2}/{EPOCHS}  loss {loss:.4f}", flush=True)

    fingerprint = hashlib.sha256(network.weights.tobytes()).hexdigest()[:16]
    fingerprints = [part.decode() for part in group.all_gather(fingerprint.encode())]
    if len(set(fingerprints)) != 1:
        print(f"node {group.rank}: the nodes disagree about the weights: {fingerprints}", file=sys.stderr, flush=True)
        return 1
    if group.rank == 0:
        seconds = time.perf_counter() - started
        print(f"weights {fingerprint} on all {group.size} nodes, trained in {seconds:.1f} s")
        print(f"test accuracy {network.accuracy(images[test], labels[test]):.1%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
