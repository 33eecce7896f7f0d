"""Certificates are replaced while the API server calls the webhooks of two managers, none of which waits for the other:
there is no election, so that both lead, as it may be for a moment in any cluster."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from support.admission import NAMESPACE, SERVICE, requests_to
from support.certificate_installation import CertificateInstallation
from support.certificates import names, written
from support.loadbalancer import OVERLOADED, RATE, LoadBalancer, Replica, SteadyReviews
from support.stack import api_server
from support.training import apply_runtime, runtime, until

from trainmaster.controller.certificates.pki import CA_VALIDITY, new_authority, new_serving_pair
from trainmaster.controller.certificates.rotation import PROPAGATION
from trainmaster.controller.certificates.server_time import ServerTime
from trainmaster.controller.certificates.webhook_names import DEFAULTER
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.manager.process import background_task

pytestmark = pytest.mark.timeout(180)


TOO_SLOW = "context deadline exceeded"


class PushedClock(SystemClock):
    """Real time, of which a test can let some pass at once."""

    def __init__(self) -> None:
        self.pushed = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.pushed

    def observing(
        self, observe: Callable[[ServerTime, Mapping[str, str]], None]
    ) -> Callable[[ServerTime, Mapping[str, str]], None]:
        """Have the API server tell a time that was pushed alike: it is what counts."""

        def observed(time: ServerTime, headers: Mapping[str, str]) -> None:
            told = parsedate_to_datetime(headers["Date"]) + timedelta(seconds=self.pushed)
            observe(time, {"Date": format_datetime(told, usegmt=True)})

        return observed


async def served_by(replica: Replica) -> bytes:
    """The certificate that a replica shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", replica.webhooks, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return shown


@pytest.mark.guarantee("H-11")
async def test_a_rotation_under_fifty_reviews_a_second_refuses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    balancer, clock = LoadBalancer(), PushedClock()
    monkeypatch.setattr(ServerTime, "observe", clock.observing(ServerTime.observe))
    now = datetime.now(UTC)
    authority, made = new_authority(now=now - CA_VALIDITY + timedelta(days=400))
    old = written(made, new_serving_pair(authority, names(), now=now))
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(api_server(tmp_path))
        installed = CertificateInstallation(cluster, tmp_path)
        await apply_runtime(cluster.client, runtime())
        await installed.create_secret(old)
        await installed.create_webhooks()

        @asynccontextmanager
        async def replica(name: str) -> AsyncIterator[Replica]:
            async with installed.manager(name, clock=clock) as probes:
                made = Replica(webhooks=probes.webhooks, health=probes.port)
                async with background_task(balancer.follow(made)):
                    yield made

        both = [await stack.enter_async_context(replica(name)) for name in ("a", "b")]
        listening = await asyncio.start_server(balancer.forward, "127.0.0.1", 0)
        stack.callback(listening.close)
        port = listening.sockets[0].getsockname()[1]
        assert cluster.cluster is not None
        cluster.cluster.services.register(namespace=NAMESPACE, name=SERVICE, address="127.0.0.1", local_port=port)

        async def all_rotate() -> bool:
            return balancer.rotates(*both)

        async def all_serve_the_certificate_of_the_secret() -> bool:
            serving = (await installed.secret()).serving
            return serving is not None and all(
                [await served_by(each) == serving.public_bytes(Encoding.DER) for each in both]
            )

        await until(all_rotate)
        before = await installed.secret()
        assert before.certificate == old.certificate, "it is good, and its authority is trusted"
        assert before.authorities[1:] == old.authorities
        assert set(await installed.bundles()) == {before.ca_certificate}

        reviews = SteadyReviews(await stack.enter_async_context(requests_to(cluster)))
        sending = asyncio.create_task(reviews.send())

        async def some_more() -> None:
            enough = reviews.sent + RATE

            async def sent() -> bool:
                return reviews.sent >= enough

            await until(sent)

        await some_more()
        # An hour later the new authority signs. The managers wake up by any change of what they watch.
        clock.pushed += PROPAGATION.total_seconds()
        await installed.patch_webhooks(DEFAULTER, {"metadata": {"labels": {"a": "b"}}})

        async def signed() -> bool:
            return (await installed.secret()).certificate != old.certificate

        await until(signed)
        await until(all_serve_the_certificate_of_the_secret)
        await some_more()
        rotated = await installed.secret()
        assert rotated.authorities == before.authorities, "the old authority is trusted on"

        # Somebody empties the Secret: what is served is trusted on, too.
        await installed.patch_secret({"data": None})

        async def signed_again() -> bool:
            found = await installed.secret()
            return bool(found.certificate) and found.certificate != rotated.certificate

        await until(signed_again)
        await until(all_serve_the_certificate_of_the_secret)
        await some_more()
        sending.cancel()
        await sending
        found = await installed.secret()
        assert found.authorities[1:] == before.authorities
        assert set(await installed.bundles()) == {found.ca_certificate}
    # What is promised is that the API server trusts whatever certificate it is shown. API server, load balancer and
    # both managers are this one process: on a busy machine a call may also be too much at once, or take too long.
    assert [each for each in reviews.refused if each[0] != OVERLOADED and TOO_SLOW not in each[1]] == []
    assert len(reviews.refused) < reviews.sent / 10
    assert set(balancer.served) == set(both)
