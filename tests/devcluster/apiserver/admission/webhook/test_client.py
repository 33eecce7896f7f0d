"""Which way a webhook is called, and what a client is told when that fails."""

import asyncio
import base64
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.devcluster.envtest import Environment
from support.webhooks import SERVICE_HOST, HookedServer, patch, serve_webhooks

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS

_PATH = "/api/v1/namespaces/default/configmaps"


async def _create(served: Environment, name: str = "a") -> Any:
    return await served.api.create(CONFIGMAPS, {"metadata": {"name": name}}, namespace="default")


async def _failure(served: Environment) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await _create(served)
    return caught.value


async def test_the_question_has_all_that_the_real_server_puts_into_it(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", {})
    await hooked.validating(hooked.webhook(timeoutSeconds=7))
    async with hooked.server.session() as session:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
        async with session.post(_PATH, json=body, params={"fieldManager": "me", "dryRun": "All"}) as response:
            assert response.status == 201
    (_, review) = hooked.hooks.asked[0]
    request = review["request"]
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    obj = request.pop("object")
    assert (obj["kind"], obj["data"], obj["metadata"]["namespace"]) == ("ConfigMap", {"x": "1"}, "default")
    assert request.pop("uid")
    user = request.pop("userInfo")
    assert (user["username"], "system:masters" in user["groups"]) == ("trainmaster-admin", True)
    assert request == {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "a",
        "namespace": "default",
        "operation": "CREATE",
        "oldObject": None,
        "dryRun": True,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "me",
            "fieldValidation": "Warn",
            "dryRun": ["All"],
        },
    }
    assert hooked.hooks.queries == ["timeout=7s"]
    assert hooked.hooks.headers[0]["Content-Type"] == "application/json"


async def test_a_service_is_called_where_it_is_registered_under_its_own_name(hooked: HookedServer) -> None:
    service = {"namespace": "kube-system", "name": "hooks", "path": "/hook"}
    client = {"service": service, "caBundle": hooked.hooks.authority}
    hooked.hooks.on("/hook", {})
    await hooked.validating(hooked.webhook(clientConfig=client))
    url = f"https://{SERVICE_HOST}:443/hook?timeout=10s"
    assert (await _failure(hooked.server)).message.endswith(f'Post "{url}": service "hooks" not found')
    forget = hooked.server.services.register(
        namespace="kube-system", name="hooks", address="127.0.0.1", local_port=hooked.hooks.port
    )
    await _create(hooked.server)
    assert hooked.hooks.headers[0]["Host"] == f"{SERVICE_HOST}:443"
    forget()
    assert "not found" in (await _failure(hooked.server)).message


async def test_a_refused_connection_fails_the_request_in_the_words_of_the_api_server(hooked: HookedServer) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        await hooked.validating(hooked.webhook(clientConfig={"url": f"https://127.0.0.1:{port}/hook"}))
        error = await _failure(hooked.server)
    reason = (
        'failed calling webhook "hook.example.com": failed to call webhook: '
        f'Post "https://127.0.0.1:{port}/hook?timeout=10s": dial tcp 127.0.0.1:{port}: connect: connection refused'
    )
    assert (error.code, error.reason, error.message) == (500, "InternalError", f"Internal error occurred: {reason}")
    assert error.details == {"causes": [{"message": reason}]}


async def test_failures_can_be_ignored(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", lambda _: web.Response(status=500))
    await hooked.mutating(hooked.webhook(failurePolicy="Ignore"))
    await hooked.validating(hooked.webhook(failurePolicy="Ignore"))
    assert await _create(hooked.server)
    assert len(hooked.hooks.asked) == 2


async def test_the_certificate_is_verified(hooked: HookedServer, tmp_path: Path) -> None:
    unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    url = f"https://127.0.0.1:{hooked.hooks.port}/hook"
    await hooked.validating(hooked.webhook(clientConfig={"url": url}), name="system")
    assert (await _failure(hooked.server)).message.endswith(unknown)
    async with serve_webhooks(tmp_path / "others") as others:
        other = {"url": url, "caBundle": others.authority}
        await hooked.validating(hooked.webhook(clientConfig=other), name="another")
        assert (await _failure(hooked.server)).message.endswith(unknown)
    assert hooked.hooks.asked == []


async def test_the_certificate_must_be_for_the_service(hooked: HookedServer) -> None:
    client = {"service": {"namespace": "kube-system", "name": "others"}, "caBundle": hooked.hooks.authority}
    hooked.server.services.register(
        namespace="kube-system", name="others", address="127.0.0.1", local_port=hooked.hooks.port
    )
    await hooked.validating(hooked.webhook(clientConfig=client))
    message = (await _failure(hooked.server)).message
    assert 'Post "https://others.kube-system.svc:443/?timeout=10s": tls: failed to verify certificate' in message
    assert "others.kube-system.svc" in message.rpartition("x509")[2]


async def test_a_webhook_that_takes_too_long_fails(hooked: HookedServer) -> None:
    cancelled = asyncio.Event()

    async def never(_: object) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    hooked.hooks.on("/hook", never)
    await hooked.validating(hooked.webhook(timeoutSeconds=1))
    assert (await _failure(hooked.server)).message.endswith('/hook?timeout=1s": context deadline exceeded')
    await cancelled.wait()


async def test_a_kept_connection_that_was_closed_does_not_fail_a_call(hooked: HookedServer) -> None:
    """A webhook server may restart, or close what is idle, between two calls."""
    hooked.hooks.on("/hook", {})
    hooked.hooks.cut_off = {2}
    await hooked.validating(hooked.webhook())
    await _create(hooked.server, "a")
    await _create(hooked.server, "b")
    assert len(hooked.hooks.asked) == 3


@pytest.mark.parametrize("status", [429, 503])
async def test_a_webhook_that_says_when_to_come_again_is_called_again(hooked: HookedServer, status: int) -> None:
    hooked.hooks.on("/hook", lambda _: {} if len(hooked.hooks.asked) == 3 else _busy(status))
    await hooked.validating(hooked.webhook())
    assert await _create(hooked.server)
    assert len(hooked.hooks.asked) == 3
    assert hooked.hooks.asked[0] == hooked.hooks.asked[2], "it is one call, so its uid stays"


async def test_a_webhook_is_called_again_ten_times_at_most(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", lambda _: _busy(429))
    await hooked.validating(hooked.webhook())
    error = await _failure(hooked.server)
    assert (error.code, len(hooked.hooks.asked)) == (500, 11)
    assert error.message.endswith(
        'failed calling webhook "hook.example.com": failed to call webhook: '
        "the server has received too many requests and has asked us to try again later"
    )


async def test_all_attempts_together_end_with_the_timeout_of_the_webhook(hooked: HookedServer) -> None:
    hooked.hooks.on("/hook", lambda _: _busy(429, after="3600"))
    await hooked.validating(hooked.webhook(timeoutSeconds=1))
    assert (await _failure(hooked.server)).message.endswith('/hook?timeout=1s": context deadline exceeded')
    assert len(hooked.hooks.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=429),
        web.Response(status=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        web.Response(status=403, headers={"Retry-After": "0"}),
    ],
    ids=["says not when", "a date", "no overload"],
)
async def test_any_other_failure_is_final(hooked: HookedServer, answer: web.Response) -> None:
    hooked.hooks.on("/hook", answer)
    await hooked.validating(hooked.webhook())
    assert (await _failure(hooked.server)).code == 500
    assert len(hooked.hooks.asked) == 1


def _busy(status: int, *, after: str = "0") -> web.Response:
    return web.Response(status=status, headers={"Retry-After": after})


_INVALID = "received invalid webhook response: "


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (web.Response(status=404), "failed to call webhook: the server could not find the requested resource"),
        (
            web.Response(status=500, text="boom\n"),
            'failed to call webhook: an error on the server ("boom") has prevented the request from succeeding',
        ),
        (
            web.Response(status=200, body=b"nonsense"),
            "failed to call webhook: couldn't get version/kind; json parse error",
        ),
        (web.Response(status=200), "failed to call webhook: 0-length response with status code: 200"),
        (web.json_response({"response": {}}), "failed to call webhook: Object 'Kind' is missing"),
        (
            web.json_response({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}),
            f"{_INVALID}webhook response was absent",
        ),
        ({"uid": "other"}, f'{_INVALID}expected response.uid="'),
        (patch({"op": "remove", "path": "/data"}), f"{_INVALID}validating webhook may not return response.patch"),
        ({"patchType": "JSONPatch"}, f"{_INVALID}validating webhook may not return response.patchType"),
    ],
)
async def test_an_answer_against_the_protocol_fails_the_call(hooked: HookedServer, answer: Any, told: str) -> None:
    hooked.hooks.on("/hook", answer)
    await hooked.validating(hooked.webhook())
    error = await _failure(hooked.server)
    assert error.code == 500
    assert error.message.startswith(f'Internal error occurred: failed calling webhook "hook.example.com": {told}')


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            {"patch": base64.b64encode(b"[]").decode()},
            f"{_INVALID}webhook returned response.patch but not response.patchType",
        ),
        ({"patchType": "JSONPatch"}, f"{_INVALID}webhook returned response.patchType but not response.patch"),
        ({**patch({"op": "x"}), "patchType": "Merge"}, 'unsupported patch type "Merge"'),
        (
            {"patchType": "JSONPatch", "patch": base64.b64encode(b"x").decode()},
            "received undecodable patch in webhook response",
        ),
    ],
)
async def test_an_unreadable_patch_counts_as_a_failed_call(hooked: HookedServer, answer: Any, told: str) -> None:
    hooked.hooks.on("/hook", answer)
    await hooked.mutating(hooked.webhook())
    error = await _failure(hooked.server)
    assert error.message.startswith(f'Internal error occurred: failed calling webhook "hook.example.com": {told}')


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    "operation", [{"op": "remove", "path": "/data/missing"}, {"op": "add", "path": "/data", "value": "no map"}]
)
async def test_a_patch_that_does_not_fit_or_breaks_the_object_fails_the_request(
    hooked: HookedServer, operation: dict[str, Any], policy: str
) -> None:
    """Whatever the policy: it is not the fault of the client."""
    hooked.hooks.on("/hook", patch(operation))
    await hooked.mutating(hooked.webhook(failurePolicy=policy))
    error = await _failure(hooked.server)
    assert (error.code, error.reason) == (500, "InternalError")
