"""Replicas of the manager replace each other while the API server calls their webhooks. Each is a process, and so is
the API server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.admission import CONFIGURATIONS, configurations, requests_to, serving_certificates
from support.commands import TIMEOUT
from support.loadbalancer import OVERLOADED, RATE, LoadBalancer, Replica, SteadyReviews
from support.processes import ManagerProcess, account_token, cluster_process
from support.stack import Stack
from support.training import apply_runtime, runtime, until

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.controller.manager.process import background_task
from trainmaster.devcluster.listener import free_port

pytestmark = pytest.mark.timeout(240)


class ManagerReplica(Replica):
    """One that is a process."""

    def __init__(self, process: ManagerProcess, *, webhooks: int, health: int) -> None:
        super().__init__(webhooks=webhooks, health=health)
        self.process = process


@pytest.mark.guarantee("M-7")
async def test_a_rolling_update_under_fifty_reviews_a_second_refuses_none(tmp_path: Path) -> None:
    certificates = serving_certificates(tmp_path / "certificates")
    balancer = LoadBalancer()
    async with AsyncExitStack() as stack:
        cluster, client = await stack.enter_async_context(cluster_process(tmp_path))
        access = await load_config(kubeconfig=str(cluster.state.kubeconfig))
        requests = await stack.enter_async_context(requests_to(Stack(access, client, None)))
        listening = await asyncio.start_server(balancer.forward, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        stack.callback(listening.close)

        @asynccontextmanager
        async def replica(name: str) -> AsyncIterator[ManagerReplica]:
            webhooks, health = free_port(), free_port()
            configuration: dict[str, Any] = {
                "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(tmp_path / "certificates")},
                "certManagement": {"enable": False},
                "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
                "leaderElection": {"leaderElect": True, "resourceNamespace": "default", "retryPeriod": "500ms"},
            }
            token = await account_token(client, name)
            process = ManagerProcess(cluster, name, token=token, port=cluster.port, configuration=configuration)
            try:
                await process.start()
                made = ManagerReplica(process, webhooks=webhooks, health=health)
                async with background_task(balancer.follow(made)):
                    yield made
            finally:
                await process.kill()

        async def rotates(*replicas: ManagerReplica) -> None:
            async def reached() -> bool:
                return balancer.rotates(*replicas)

            await until(reached)

        old_leader = await stack.enter_async_context(replica("a"))
        await old_leader.process.logged("lease acquired")
        old_follower = await stack.enter_async_context(replica("b"))
        await rotates(old_leader, old_follower)
        await apply_runtime(client, runtime())
        for configuration in configurations(certificates, port=port):
            kind = f"{configuration['kind'].lower()}s"
            assert (await requests.send("POST", f"{CONFIGURATIONS}/{kind}", configuration)).code == 201
        reviews = SteadyReviews(requests)
        sending = asyncio.create_task(reviews.send())
        first = await stack.enter_async_context(replica("c"))

        async def both_are_called() -> bool:
            return set(balancer.served) >= {old_leader, old_follower}

        await until(both_are_called)
        old_leader.process.signal(signal.SIGTERM)

        async def taken_over() -> bool:
            lease = await client.get(LEASES, "default", "trainer.kubeflow.org")
            held: str = lease["spec"].get("holderIdentity") or ""
            return bool(held) and any(
                line.event == "lease acquired" for each in (old_follower, first) for line in each.process.lines()
            )

        await until(taken_over)
        assert old_leader.process.code is None, "it leads no more, and answers still"
        assert await old_leader.process.wait(timeout=TIMEOUT) == 0
        await rotates(old_follower, first)
        second = await stack.enter_async_context(replica("d"))
        await rotates(old_follower, first, second)
        old_follower.process.signal(signal.SIGTERM)
        assert await old_follower.process.wait(timeout=TIMEOUT) == 0
        await rotates(first, second)
        sending.cancel()
        await sending
    assert [each for each in reviews.refused if each[0] != OVERLOADED] == []
    assert reviews.sent > RATE
    assert first in balancer.served
