"""Both engines: what is tested here holds for either of them."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.schema.cel.engines import Engine


def _native() -> Engine:
    pytest.importorskip("cel_expr_python", reason="there is no build of cel-expr-python for this platform")
    from trainmaster.devcluster.apiserver.schema.cel.engines.native import NativeEngine  # noqa: PLC0415 - may be missing

    return NativeEngine()


def _pure() -> Engine:
    pytest.importorskip("celpy", reason="cel-python is not installed")
    from trainmaster.devcluster.apiserver.schema.cel.engines.pure import PureEngine  # noqa: PLC0415 - may be missing

    return PureEngine()


@pytest.fixture(params=[_native, _pure], ids=["native", "pure"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def native() -> Engine:
    return _native()
