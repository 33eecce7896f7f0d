"""Try one setting on each node: a sweep, for which the nodes need not know each other.

Without a framework in the runtime's policy nothing is injected. What a node needs is its number, and that comes from
Kubernetes: JOB_COMPLETION_INDEX. Each node trains a classifier of handwritten digits with another strength of
regularization, and prints what became of it.
"""

from __future__ import annotations

import os
import sys

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

SETTINGS = [0.001, 0.01, 0.1, 1.0]


def main() -> int:
    """Train, and return the exit code."""
    number = int(os.environ["JOB_COMPLETION_INDEX"])
    if number >= len(SETTINGS):
        print(f"there are {len(SETTINGS)} settings, nothing is left for node {number}", file=sys.stderr)
        return 1
    setting = SETTINGS[number]
    digits = load_digits()
    classifier = LogisticRegression(C=setting, max_iter=1000)
    accuracy = cross_val_score(classifier, digits.data / 16, digits.target, cv=3).mean()
    print(f"C={setting}: accuracy {accuracy:.1%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
