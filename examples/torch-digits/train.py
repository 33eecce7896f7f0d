"""Train a small convolutional network on handwritten digits with PyTorch's DistributedDataParallel.

Start it with `torchrun` on every node; torchrun reads where the others are from the PET_* environment that Trainmaster
injects. Each rank learns from its own share of the data, and DDP averages the gradients after each step. The data, 1797
images of 8 x 8 pixels, comes with scikit-learn: nothing is downloaded.

Exits with an error if the ranks end with different weights, which means that they did not train together.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 7
EPOCHS = 10
BATCH_SIZE = 32  # of each rank
LEARNING_RATE = 0.003
TEST_SHARE = 0.2


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Return the training set and the test set: the same split on every rank."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16  # pixels are 0..16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    test_size = int(len(labels) * TEST_SHARE)
    test, train = order[:test_size], order[test_size:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def build_model() -> nn.Module:
    """Return the network with its first weights; DDP gives every rank those of rank 0."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def train_epoch(model: nn.Module, batches: DataLoader[tuple[Tensor, ...]], optimizer: torch.optim.Optimizer) -> float:
    """Pass once over this rank's share of the data; return the mean loss of all ranks."""
    model.train()
    total = torch.zeros(2)  # sum of losses, number of samples
    for images, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # DDP averages the gradients over all ranks here
        optimizer.step()
        total += torch.tensor([loss.item() * len(labels), len(labels)])
    dist.all_reduce(total)
    return float(total[0] / total[1])


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Return the share of samples that the model gets right."""
    model.eval()
    images, labels = data.tensors
    return float((model(images).argmax(dim=1) == labels).float().mean())


def fingerprint(model: nn.Module) -> str:
    """Return a digest of all weights, to the last bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Train, and return the exit code."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # Only what rank 0 draws matters for the weights; different seeds show that the ranks agree because of DDP.
    torch.manual_seed(SEED + rank)

    train_data, test_data = load_data()
    model = build_model()
    parallel_model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train_data, seed=SEED)
    batches = DataLoader(train_data, batch_size=BATCH_SIZE, sampler=sampler)

    if rank == 0:
        print(f"{ranks} ranks, {len(train_data)} training and {len(test_data)} test images", flush=True)
    started = time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        sampler.set_epoch(epoch)  # another order in each epoch
        loss = train_epoch(parallel_model, batches, optimizer)
        if rank == 0:
            print(f"epoch {epoch:2}/{EPOCHS}  loss {loss:.4f}", flush=True)

    fingerprints: list[str] = [""] * ranks
    dist.all_gather_object(fingerprints, fingerprint(model))
    dist.destroy_process_group()
    if len(set(fingerprints)) != 1:
        print(f"rank {rank}: the ranks disagree about the weights: {fingerprints}", file=sys.stderr, flush=True)
        return 1
    if rank == 0:
        print(f"weights {fingerprints[0]} on all {ranks} ranks, trained in {time.perf_counter() - started:.1f} s")
        print(f"test accuracy {accuracy(model, test_data):.1%}", flush=True)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Not sys.exit: with DDP the threads of PyTorch 2.13's gloo outlive the process group, and one that lets go of a
    # tensor while the interpreter shuts down aborts the process. All is done and written here, so it may end at once.
    os._exit(code)
