"""An API server with the webhooks and a runtime, for managers that make their own certificates."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.certificate_installation import CertificateInstallation
from support.certificates import quick_keys
from support.stack import api_server
from support.training import apply_runtime, runtime


@pytest.fixture
async def installed_with_slow_keys(tmp_path: Path, impatient: None) -> AsyncIterator[CertificateInstallation]:
    async with api_server(tmp_path) as stack:
        await apply_runtime(stack.client, runtime())
        made = CertificateInstallation(stack, tmp_path)
        await made.create_webhooks()
        yield made


@pytest.fixture
def installed(installed_with_slow_keys: CertificateInstallation) -> Iterator[CertificateInstallation]:
    with quick_keys():
        yield installed_with_slow_keys
