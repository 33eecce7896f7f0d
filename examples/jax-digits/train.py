"""Train a small neural network on handwritten digits with JAX on several processes.

`jax.distributed.initialize()` joins the nodes; JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID, which
Trainmaster injects, tell it how. From then on the devices of all nodes are one mesh: every batch is spread over it, and
the compiler adds up the gradients. The data, 1797 images of 8 x 8 pixels, comes with scikit-learn.

Exits with an error if the processes end with different weights, which means that they did not train together.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

SEED = 7
EPOCHS = 20
BATCH_SIZE = 64  # of all processes together
HIDDEN = 64
LEARNING_RATE = 0.2
TEST_SHARE = 0.2

Weights = dict[str, jax.Array]


def first_weights(key: jax.Array) -> Weights:
    """Return the weights to start from: the same everywhere, since the key is."""
    one, two = jax.random.split(key)
    return {
        "w1": jax.random.normal(one, (64, HIDDEN)) * np.sqrt(2 / 64),
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(two, (HIDDEN, 10)) * np.sqrt(2 / HIDDEN),
        "b2": jnp.zeros(10),
    }


def scores(weights: Weights, images: jax.Array) -> jax.Array:
    """Return the logarithm of the probability of each digit."""
    hidden = jax.nn.relu(images @ weights["w1"] + weights["b1"])
    return jax.nn.log_softmax(hidden @ weights["w2"] + weights["b2"])


def loss_of(weights: Weights, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of a batch."""
    return -jnp.take_along_axis(scores(weights, images), labels[:, None], axis=1).mean()


@jax.jit
def step(weights: Weights, images: jax.Array, labels: jax.Array) -> tuple[Weights, jax.Array]:
    """Learn from one batch, of which every device has a share."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda weight, gradient: weight - LEARNING_RATE * gradient, weights, gradients), loss


def main() -> int:
    """Train, and return the exit code."""
    jax.distributed.initialize(
        coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
        cluster_detection_method="deactivate",  # everything is known; looking at the cluster would take a permission
    )
    rank, processes = jax.process_index(), jax.process_count()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    spread, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)  # pixels are 0..16
    order = np.random.default_rng(SEED).permutation(len(labels))  # the same in every process
    test_size = int(len(labels) * TEST_SHARE)
    test, train = order[:test_size], order[test_size:]
    if rank == 0:
        print(f"{processes} processes, {len(train)} training and {len(test)} test images", flush=True)

    weights = jax.device_put(first_weights(jax.random.key(SEED)), everywhere)
    shuffling = np.random.default_rng(SEED)
    share = BATCH_SIZE // processes
    batches = len(train) // BATCH_SIZE
    started = time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for batch in np.split(shuffling.permutation(train)[: batches * BATCH_SIZE], batches):
            mine = batch[rank * share : (rank + 1) * share]
            inputs = jax.make_array_from_process_local_data(spread, images[mine])
            targets = jax.make_array_from_process_local_data(spread, labels[mine])
            weights, loss = step(weights, inputs, targets)
            losses.append(loss)
        if rank == 0:
            print(f"epoch {epoch:2}/{EPOCHS}  loss {np.mean([float(loss) for loss in losses]):.4f}", flush=True)

    local = {name: np.asarray(weight.addressable_data(0)) for name, weight in weights.items()}
    digest = hashlib.sha256(b"".join(local[name].tobytes() for name in sorted(local))).digest()[:8]
    digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    if len({bytes(each) for each in digests}) != 1:
        print(f"process {rank}: the processes disagree about the weights", file=sys.stderr, flush=True)
        return 1
    if rank == 0:
        accuracy = float((scores(local, images[test]).argmax(axis=1) == labels[test]).mean())
        print(f"weights {digest.hex()} in all processes, trained in {time.perf_counter() - started:.1f} s")
        print(f"test accuracy {accuracy:.1%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
