"""The cluster on which recorded answers and specs of admission are played."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.admission import Requests, admitting
from support.original_crds import SCHEMAS, install_original_definitions
from support.stack import api_server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SCHEMAS)
async def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[str, Requests]]:
    """Which definitions the cluster has, and how it is asked."""
    directory = tmp_path_factory.mktemp("admission")
    async with api_server(directory) as stack:
        if request.param == "original":
            if stack.cluster is None:
                pytest.skip("the definitions of a foreign cluster stay as they are")
            await install_original_definitions(stack)
        async with admitting(stack, directory / "serving") as requests:
            yield request.param, requests
