"""Engines: the libraries that evaluate expressions, behind one interface.

`native` wraps the C++ implementation of CEL. `pure` is slower and knows less of the language; it serves platforms for
which there is no build of the other. Neither is imported before the first rule that needs one.
"""

from trainmaster.devcluster.apiserver.schema.cel.engines.choosing import default_engine
from trainmaster.devcluster.apiserver.schema.cel.engines.interface import (
    BudgetExceeded,
    CompilationFailed,
    Engine,
    EngineMissing,
    EvaluationFailed,
    Program,
    VariableMissing,
)

__all__ = [
    "BudgetExceeded",
    "CompilationFailed",
    "Engine",
    "EngineMissing",
    "EvaluationFailed",
    "Program",
    "VariableMissing",
    "default_engine",
]
