"""The probes of a manager: what each of their checks means, asked as a kubelet asks."""

import datetime as dt
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from support.authorities import Authority
from support.stack import Stack, api_server
from support.web import Probes, probed

from trainmaster.controller.configuration import CertManagement, Configuration, LeaderElection, Metrics, Webhook
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.devcluster.listener import free_port

pytestmark = [pytest.mark.guarantee("M-8"), pytest.mark.usefixtures("impatient")]


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    Authority().mount(tmp_path / "certs")
    return tmp_path / "certs"


def served(access: RestConfig, certs: Path, *, delay: str = "0s") -> AbstractAsyncContextManager[Probes]:
    """Run a manager with election and webhooks."""
    configuration = Configuration(
        webhook=Webhook(host="127.0.0.1", port=free_port(), cert_dir=str(certs)),
        metrics=Metrics(bind_address="0"),
        leader_election=LeaderElection(leader_elect=True, resource_namespace="default"),
        cert_management=CertManagement(enable=False),
        shutdown_delay_duration=delay,
    )
    return probed(access, configuration)


async def test_readiness_breaks_down_and_ends_when_told_to_stop(stack: Stack, certs: Path) -> None:
    async with served(stack.access, certs, delay="1s") as probes:
        assert await probes.until("readyz?verbose", "check passed") == (
            "[+]ping ok\n[+]shutdown ok\n[+]informer-sync ok\n[+]rights ok\n[+]leaderElection ok\n[+]webhook ok\n"
            "[+]certificate ok\nreadyz check passed\n"
        )
        assert await probes.ask("readyz") == (200, "ok")
        assert await probes.ask("healthz?verbose") == (200, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n")
        probes.stop.set()
        assert await probes.ask("readyz/shutdown") == (500, "internal server error: the manager was told to stop\n")
        assert await probes.ask("healthz") == (200, "ok")


async def test_readiness_fails_while_the_certificate_is_out_of_date(stack: Stack, certs: Path) -> None:
    Authority().mount(certs, valid=dt.timedelta(days=-1))
    async with served(stack.access, certs) as probes:
        text = await probes.until("readyz", "[+]webhook ok", "[-]certificate failed")
        assert f"the certificate in {certs / 'tls.crt'} expired at 20" in text
        assert await probes.ask("healthz") == (200, "ok")
        Authority().mount(certs)
        await probes.until("readyz", status=200)


async def test_readiness_names_the_caches_that_are_not_filled_and_why(tmp_path: Path, certs: Path) -> None:
    async with api_server(tmp_path, definitions=False) as stack, served(stack.access, certs) as probes:
        text = await probes.until("readyz", "[-]informer-sync failed: waiting for ", "jobsets.jobset.x-k8s.io")
        assert "[-]webhook failed: the webhooks are not served yet\n" in text
        assert await probes.ask("healthz") == (200, "ok")


async def test_liveness_asks_nothing_of_the_api_server(certs: Path) -> None:
    """It is away: another process would not find it either."""
    async with served(RestConfig(server=f"http://127.0.0.1:{free_port()}"), certs) as probes:
        text = await probes.until("readyz/informer-sync", "jobsets", "trainjobs", "refused the connection")
        assert text.count("refused the connection") == 1, "one reason, said once"
        assert await probes.ask("healthz?verbose") == (200, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n")
