"""The Trainer API (`trainer.kubeflow.org/v1alpha1`) as Python types, and reading them from JSON.

Each module is imported where it is needed: most of the command line takes constants alone, without pydantic. Code
outside of this repository may import all models from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name[0].isupper() or name.startswith("parse_"):  # else it is a module, which Python imports by itself
        for module in ("decoding", "meta", "trainingruntime", "trainjob"):
            if hasattr(found := import_module(f"{__name__}.{module}"), name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
