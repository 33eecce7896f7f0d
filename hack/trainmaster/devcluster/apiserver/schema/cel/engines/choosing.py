"""Choosing the engine, once, when the first rule needs it."""

from __future__ import annotations

import functools

from trainmaster.devcluster.apiserver.schema.cel.engines.interface import Engine, EngineMissing

_MISSING = (
    "rules cannot be evaluated: neither cel-expr-python nor cel-python is installed; "
    "install one of them with pip and restart the cluster"
)


@functools.cache
def default_engine() -> Engine:
    """Return the best engine that is installed; raises EngineMissing."""
    try:
        from trainmaster.devcluster.apiserver.schema.cel.engines.native import NativeEngine  # noqa: PLC0415 - 14 MB, for rules only
    except ImportError:
        pass
    else:
        return NativeEngine()
    try:
        from trainmaster.devcluster.apiserver.schema.cel.engines.pure import PureEngine  # noqa: PLC0415 - as above
    except ImportError as error:
        raise EngineMissing(_MISSING) from error
    return PureEngine()
