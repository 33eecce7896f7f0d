"""Which framework a program trains with, by what it imports, and the runtime and the launcher that go with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Framework:
    """How programs of a framework are run."""

    name: str
    """The policy of runtimes that serve it: `mlPolicy.<name>`."""

    runtime: str
    """The built-in runtime."""

    modules: frozenset[str]
    """Modules that programs of this framework import: the framework itself, and what stands on it alone."""


TORCH: Final = Framework(
    "torch",
    "torch-distributed",
    frozenset(
        {
            *("torch", "torchvision", "torchaudio", "torchtune", "lightning", "pytorch_lightning", "accelerate"),
            *("deepspeed", "ignite", "peft", "timm", "transformers", "trl"),
        }
    ),
)
FRAMEWORKS: Final = (
    TORCH,
    Framework("jax", "jax-distributed", frozenset({"jax", "flax", "optax", "equinox", "haiku"})),
    Framework("xgboost", "xgboost-distributed", frozenset({"xgboost"})),
)
"""In the order in which they are looked for: JAX and XGBoost are also used by programs that train with PyTorch."""


def framework_of(modules: Collection[str]) -> Framework | None:
    """Return the framework that a program trains with; None: without one that is known."""
    return next((framework for framework in FRAMEWORKS if framework.modules.intersection(modules)), None)


def imported_of(framework: Framework, modules: Collection[str]) -> str:
    """Return the module by which a framework was found: itself, if the program imports it."""
    found = sorted(framework.modules.intersection(modules), key=lambda name: (name != framework.name, name))
    return found[0]
