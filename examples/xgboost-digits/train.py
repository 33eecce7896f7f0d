"""Train gradient-boosted trees on handwritten digits with XGBoost on several nodes.

The workers find each other by Rabit, XGBoost's collective. Its tracker runs beside worker 0; DMLC_TRACKER_URI and
DMLC_TRACKER_PORT say where, DMLC_NUM_WORKER how many workers there are, and DMLC_TASK_ID which of them this is: all of
them are injected by Trainmaster. Each worker has its own share of the data, 1797 images that come with scikit-learn.

Exits with an error if the workers end with different trees, which means that they did not train together.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_digits
from xgboost import collective
from xgboost.tracker import RabitTracker

SEED = 7
ROUNDS = 20
TEST_SHARE = 0.2
PATIENCE = 60  # seconds for everybody to come: names resolve only once the other pods are there


def start_tracker(workers: int, host: str, port: int) -> RabitTracker:
    """Start the tracker in this process."""
    tracker = RabitTracker(n_workers=workers, host_ip=address_of(host), port=port, timeout=PATIENCE)
    tracker.start()
    return tracker


def address_of(host: str) -> str:
    """Return the address of a pod as soon as its name is known."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.gethostbyname(host)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main() -> int:
    """Train, and return the exit code."""
    host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
    workers, rank = int(os.environ["DMLC_NUM_WORKER"]), int(os.environ["DMLC_TASK_ID"])
    tracker = start_tracker(workers, host, port) if rank == 0 else None
    settings = {
        "dmlc_tracker_uri": address_of(host),
        "dmlc_tracker_port": port,
        "dmlc_task_id": str(rank),
        "dmlc_retry": 10,
        "dmlc_timeout": PATIENCE,
    }
    with collective.CommunicatorContext(**settings):
        code = train(collective.get_rank(), collective.get_world_size())
    if tracker is not None:
        tracker.wait_for(timeout=PATIENCE)
    return code


def train(rank: int, workers: int) -> int:
    """Train with the others."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))  # the same in every worker
    test_size = int(len(order) * TEST_SHARE)
    test, mine = order[:test_size], order[test_size:][rank::workers]
    share = xgb.DMatrix(digits.data[mine], digits.target[mine])
    held_out = xgb.DMatrix(digits.data[test], digits.target[test])
    if rank == 0:
        print(f"{workers} workers, {len(order) - test_size} training and {test_size} test images", flush=True)

    parameters = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "eta": 0.3, "seed": SEED, "nthread": 1}
    history: dict[str, dict[str, list[float]]] = {}
    started = time.perf_counter()
    trees = xgb.train(parameters, share, ROUNDS, evals=[(share, "train")], evals_result=history, verbose_eval=False)
    fingerprint = hashlib.sha256(bytes(trees.save_raw("ubj"))).hexdigest()[:16]
    first = collective.broadcast(fingerprint, 0)
    different = int(collective.allreduce(np.array([fingerprint != first], dtype=np.int32), collective.Op.SUM)[0])
    if different:
        print(f"worker {rank}: the workers disagree about the trees", file=sys.stderr, flush=True)
        return 1
    if rank == 0:
        for number, error in enumerate(history["train"]["mlogloss"], start=1):
            print(f"round {number:2}/{ROUNDS}  loss {error:.4f}")
        accuracy = float((trees.predict(held_out) == digits.target[test]).mean())
        print(f"trees {fingerprint} in all workers, trained in {time.perf_counter() - started:.1f} s")
        print(f"test accuracy {accuracy:.1%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
