"""Every option of the configuration file takes effect or is refused: what proves each is named here."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from aiohttp import web
from pydantic import BaseModel
from support.authorities import Authority
from support.commands import eventually
from support.stack import Stack, manager
from support.virtualtime import VirtualClock
from support.web import get, listening, probed

from trainmaster.controller.configuration import Configuration, ConfigurationInvalid, parse_configuration
from trainmaster.controller.kube.leaderelection.elector import LeaderElector
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES
from trainmaster.controller.manager import parts
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.statusserver.server import StatusServer
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.jsontree import JsonObject

ROOT = Path(__file__).parents[3]
HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
OFF = {"webhook": {"enabled": False}, "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"}}

F = TypeVar("F", bound=Callable[..., Any])

_BY_TEST = {
    "configuration/test_loading.py::test_what_is_wrong_is_said_with_its_place": "apiVersion kind",
    "manager/test_metrics.py::test_the_configuration_sets_the_number_of_workers": "controller.groupKindConcurrency",
    "manager/test_metrics.py::test_secure_serving_lets_in_whom_rbac_allows_the_path": (
        "metrics.bindAddress metrics.secureServing metrics.auth.enabled"
    ),
    "manager/test_namespaces.py::test_two_installations_side_by_side_serve_each_its_own_namespaces": "watchNamespaces",
    "cli/test_manager.py::test_the_log_follows_the_configuration_file_while_the_manager_runs": "logging.verbosity",
    "certificates/test_integration.py::test_an_empty_secret_is_filled_and_webhooks_work": (
        "certManagement.enable certManagement.webhookSecretName"
    ),
    "statusserver/test_server.py::test_the_plugin_is_told_the_service_unless_the_configuration_says_otherwise": (
        "certManagement.webhookServiceName"
    ),
    "plugins/test_loading.py::test_only_those_of_others_that_are_enabled_are_loaded": "plugins.enabled",
    "plugins/test_loading.py::test_one_that_does_not_load_is_left_out_where_the_configuration_says_so": (
        "plugins.onLoadError"
    ),
    "plugins/test_integration.py::test_the_configuration_says_how_plugins_are_contained": (
        "plugins.failurePolicy plugins.timeLimit plugins.quarantine.failures plugins.quarantine.period"
    ),
    "tracing/test_manager.py::test_a_reconcile_is_a_span_with_its_requests_and_plugin_calls": "tracing.endpoint",
    "tracing/test_manager.py::test_a_review_is_in_the_trace_of_the_api_server_that_asks": (
        "tracing.samplingRatePerMillion"
    ),
    "manager/test_training_operator.py::test_switched_off_it_does_not_even_ask": "trainingOperator.enabled",
    "manager/test_training_operator.py::test_enabled_kinds_alone_are_served_and_their_pods_made_as_configured": (
        "trainingOperator.enableScheme trainingOperator.gangSchedulerName trainingOperator.clusterDomain "
        "trainingOperator.options"
    ),
    "reconciling/jobs/test_odd_jobs.py::test_the_configuration_says_how_many_pods_a_job_may_have": (
        "trainingOperator.maxReplicas"
    ),
    "test_feature_gates.py::test_later_sources_win": "featureGates",
    "debugging/test_handlers.py::test_they_are_off_unless_switched_on": "enableDebuggingHandlers",
    "history/test_manager.py::test_jobs_are_recorded_when_they_end_and_when_they_are_deleted": "history.enabled",
    "history/test_manager.py::test_a_store_that_cannot_be_used_costs_the_history_and_nothing_else": "history.file",
    "history/test_manager.py::test_the_records_may_be_in_a_database": "history.databaseUrlFile",
    "history/test_manager.py::test_the_configuration_bounds_the_history_and_names_the_annotation": (
        "history.maxRecords history.maxAge history.userAnnotation"
    ),
    "web/test_handlers.py::test_it_is_off_unless_switched_on_and_does_without_a_history": "web.enabled",
    "manager/test_manager.py::test_the_order_of_start_and_stop": "shutdownDelayDuration",
}
PROVED = {option: test for test, options in _BY_TEST.items() for option in options.split()}
"""The test that proves an option, by its path in the file; those of this module add themselves."""


def proves(*options: str) -> Callable[[F], F]:
    """Note that a test of this module proves some options."""

    def note(test: F) -> F:
        PROVED.update(dict.fromkeys(options, f"manager/test_options.py::{test.__name__}"))
        return test

    return note


def leaves(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The path of each option that is no section."""
    for field in model.model_fields.values():
        name = f"{path}{field.alias}"
        sections = [part for part in (field.annotation, *getattr(field.annotation, "__args__", ())) if _is_model(part)]
        if sections:
            yield from leaves(sections[0], f"{name}.")
        else:
            yield name


def _is_model(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def test_every_option_is_documented_and_has_a_test_that_proves_its_effect() -> None:
    options = list(leaves(Configuration))
    assert set(options) == set(PROVED)
    text = (ROOT / "docs/configuration.md").read_text()
    assert [option for option in options if f"\n- `{option}`" not in text] == []
    for path, names in groupby(sorted(test.split("::") for test in PROVED.values()), key=itemgetter(0)):
        defined = re.findall(r"def (test_\w+)\(", (ROOT / "tests/controller" / path).read_text())
        assert {name for _, name in names} - set(defined) == set(), path


def configured(**sections: Any) -> Configuration:
    return parse_configuration({**HEAD, **OFF, **sections})


async def handshake(
    port: int, *, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, protocols: tuple[str, ...] = ("h2", "http/1.1")
) -> tuple[str, str, str | None]:
    """Connect, as soon as there is a server; returns version, suite and protocol."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = most
    context.set_alpn_protocols(list(protocols))

    def connect() -> tuple[str, str, str | None]:
        with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as secure:
            return secure.version() or "", (secure.cipher() or ("",))[0], secure.selected_alpn_protocol()

    async def shaken() -> tuple[str, str, str | None] | None:
        with suppress(ConnectionRefusedError):
            return await asyncio.to_thread(connect)
        return None

    version, suite, protocol = await eventually(shaken)
    return version, suite, protocol


@asynccontextmanager
async def three_tls_servers(stack: Stack, directory: Path, tls: JsonObject) -> AsyncIterator[dict[str, int]]:
    """Run webhooks, metrics and the status server; yields their ports."""
    Authority().mount(directory)
    ports = {"webhooks": free_port(), "metrics": free_port(), "status": free_port()}
    configuration = configured(
        webhook={"host": "127.0.0.1", "port": ports["webhooks"], "certDir": str(directory)},
        metrics={"bindAddress": f"127.0.0.1:{ports['metrics']}"},
        statusServer={"host": "127.0.0.1", "port": ports["status"]},
        tls=tls,
        shutdownDelayDuration="0s",
    )
    stop = asyncio.Event()
    running = Manager(
        Setup(stack.access, configuration, Framework(load_plugins()), status_server=StatusServer(configuration))
    )
    task = asyncio.create_task(running.run(stop))
    try:
        yield ports
    finally:
        stop.set()
        await task


@proves("webhook.host", "webhook.port", "webhook.certDir", "tls.minVersion", "statusServer.host", "statusServer.port")
async def test_each_server_is_where_it_should_be_and_demands_the_version(stack: Stack, tmp_path: Path) -> None:
    async with three_tls_servers(stack, tmp_path / "certs", {"minVersion": "1.3"}) as ports:
        for name, port in ports.items():
            assert (await handshake(port))[0] == "TLSv1.3", name
            with pytest.raises(ssl.SSLError):
                await handshake(port, most=ssl.TLSVersion.TLSv1_2)
            # Where something listens on all interfaces, nobody else can have the port on one of them.
            socket.create_server(("127.0.0.2", port)).close()


@proves("tls.cipherSuites", "tls.nextProtos")
async def test_each_server_has_the_suites_and_speaks_http_1_1(stack: Stack, tmp_path: Path) -> None:
    only = {"cipherSuites": ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]}
    async with three_tls_servers(stack, tmp_path / "certs", {**only, "nextProtos": ["h2", "http/1.1"]}) as ports:
        for name, port in ports.items():
            version, suite, protocol = await handshake(port, most=ssl.TLSVersion.TLSv1_2)
            assert (version, suite.endswith("AES256-GCM-SHA384"), protocol) == ("TLSv1.2", True, "http/1.1"), name


@proves("health.healthProbeBindAddress", "health.readinessEndpointName", "health.livenessEndpointName")
async def test_probes_are_where_they_should_be(stack: Stack) -> None:
    port = free_port()
    names = {"readinessEndpointName": "/ready", "livenessEndpointName": "alive"}
    health = {"healthProbeBindAddress": f"127.0.0.1:{port}", **names}
    async with manager(stack.access, configuration=configured(health=health)):
        assert [(await get(port, path))[0] for path in ("ready", "alive", "readyz")] == [200, 200, 404]


@proves(
    *(f"leaderElection.{name}" for name in ("leaderElect", "resourceName", "resourceNamespace")),
    *(f"leaderElection.{name}" for name in ("leaseDuration", "renewDeadline", "retryPeriod")),
)
async def test_the_election_is_as_configured(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    periods: dict[str, float] = {}

    class Recorded(LeaderElector):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            periods.update({name: options[name] for name in ("renew_deadline", "retry_period")})
            super().__init__(*arguments, **options)

    monkeypatch.setattr(parts, "LeaderElector", Recorded)

    async def leases() -> list[JsonObject]:
        return list((await stack.client.list(LEASES, "kube-system"))["items"])

    election = {"resourceName": "chosen", "resourceNamespace": "kube-system", "leaderElect": True}
    durations = {"leaseDuration": "9s", "renewDeadline": "6s", "retryPeriod": "500ms"}
    async with manager(stack.access, configuration=configured(leaderElection={**election, **durations})):
        (lease,) = await eventually(leases)
    assert (lease["metadata"]["name"], lease["spec"]["leaseDurationSeconds"]) == ("chosen", 9)
    assert periods == {"renew_deadline": 6.0, "retry_period": 0.5}
    async with manager(stack.access, configuration=configured(leaderElection={**election, "leaderElect": False})):
        pass
    assert len(await leases()) == 1


@asynccontextmanager
async def counting_server() -> AsyncIterator[tuple[RestConfig, list[str]]]:
    """An API server that notes what it is asked."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        empty = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
        return web.Response(body=orjson.dumps(empty), content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with listening(app) as port:
        yield RestConfig(server=f"http://127.0.0.1:{port}"), asked


@proves("clientConnection.qps", "clientConnection.burst", "statusServer.qps", "statusServer.burst")
@pytest.mark.parametrize("whose", ["clientConnection", "statusServer"])
async def test_clients_send_no_more_than_they_are_allowed(whose: str) -> None:
    clock = VirtualClock()
    configuration = configured(**{whose: {"qps": 0.5, "burst": 3}})
    async with counting_server() as (access, asked):
        if whose == "statusServer":
            client = StatusServer(configuration, clock=clock)._connect(access, "tests")
        else:
            setup = Setup(access, configuration, Framework([]), clock=clock)
            client = parts.http_client(setup, user_agent="tests", guard=None, tries=1)

        async with client:
            sending = [asyncio.create_task(client.list(CONFIGMAPS, "default")) for _ in range(5)]
            await eventually(lambda: len(asked) >= 3)
            await clock.advance(1.9)
            assert len(asked) == 3, "the burst, and not one more before 1 / qps"
            await clock.advance(0.2)
            await eventually(lambda: len(asked) >= 4)
            await clock.advance(2)
            await asyncio.gather(*sending)


@proves("webhook.enabled")
async def test_webhooks_that_are_switched_off_are_not_served(stack: Stack) -> None:
    """Those that are on hold readiness up until there is a certificate."""
    for enabled, status in ((False, 200), (True, 500)):
        webhook = {"enabled": enabled, "port": free_port(), "certDir": "/nowhere"}
        async with probed(stack.access, configured(webhook=webhook, shutdownDelayDuration="0s")) as probes:
            await probes.until("readyz?verbose", "[+]informer-sync ok", status=status)


@proves("plugins.disabled", "plugins.options")
def test_a_disabled_plugin_does_not_run_and_options_reach_constructors() -> None:
    settings = configured(plugins={"disabled": ["torch"], "options": {"torch": {"colour": "red"}}}).plugins
    every, rest = Framework(load_plugins()).names(), Framework(load_plugins(disabled=settings.disabled)).names()
    assert {name.lower() for name in set(every) - set(rest)} == {"torch"}
    with pytest.raises(PluginInvalid, match="colour"):
        load_plugins(options=settings.options)


@proves("leaderElection.resourceLock")
@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"health": {"readinessEndpointName": ""}}, "must be one part of a path"),
        ({"health": {"livenessEndpointName": "a/b"}}, "must be one part of a path"),
        ({"health": {"livenessEndpointName": "readyz"}}, "must differ"),
        ({"leaderElection": {"resourceLock": "endpoints"}}, r"leaderElection\.resourceLock: must be 'leases'"),
        ({"tls": {"minVersion": "1.4"}}, r"tls\.minVersion: must be '', '1\.0'"),
        ({"tls": {"cipherSuites": ["TLS_RSA_WITH_RC4_128_SHA"]}}, r"tls\.cipherSuites\[0\]: .* unknown or not secure"),
        ({"tls": {"nextProtos": ["h2"]}}, r"tls\.nextProtos: http/1\.1 must be among them"),
        ({"shutdownDelayDuration": "26s"}, "shutdownDelayDuration: 26s must not be longer than 25s"),
        ({"shutdownDelayDuration": "soon"}, "shutdownDelayDuration: must"),
        ({"watchNamespaces": "team"}, "watchNamespaces: must be a list"),
        ({"watchNamespaces": ["Team"]}, r"watchNamespaces\[0\]: 'Team' is no name of a namespace"),
        ({"watchNamespaces": ["a.b"]}, r"watchNamespaces\[0\]: 'a\.b' .* must not contain dots"),
        ({"watchNamespaces": [""]}, r"watchNamespaces\[0\]: '' is no name of a namespace"),
        ({"watchNamespaces": ["a", "b", "a"]}, "watchNamespaces: a must be named once only"),
    ],
)
def test_what_could_have_no_effect_is_refused(sections: JsonObject, message: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=message):
        configured(**sections)
