"""The recorded answers of admission: the API server and our webhooks say what the original's said.

Deliberate differences are in `admission-differences.yaml`: an entry replaces fields of the recorded answer, and says
why. All cases are played with our definitions and with those of the original; an entry with `definitions` counts with
one of them.
"""

import asyncio
import json
import re
from typing import Any

import pytest
from support.admission import Answer, Requests
from support.commands import TIMEOUT
from support.golden import GOLDEN, RESOURCES, Normaliser, assert_same, given, in_namespace, load_yaml, recorded_cases
from support.original_crds import SCHEMAS

from trainmaster.runtime.jsontree import JsonObject

CASES = recorded_cases("admission")
DIFFERENCES: dict[str, Any] = load_yaml((GOLDEN / "admission-differences.yaml").read_text())
DIFFERENT = {
    (entry["case"], schemas): entry
    for entry in DIFFERENCES["cases"]
    for schemas in SCHEMAS
    if entry.get("definitions", schemas) == schemas
}

MERGE = "application/merge-patch+json"

pytestmark = pytest.mark.golden


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", CASES)
async def test_answer(served: tuple[str, Requests], name: str) -> None:
    schemas, requests = served
    case = load_yaml(CASES[name])
    expected = case["expect"] | DIFFERENT.get((name, schemas), {}).get("expect", {})
    expected = {key: value for key, value in expected.items() if value is not None}
    player = Player(requests, f"admission-{name[:3]}", case.get("unordered") or [])
    seen: JsonObject = {}
    try:
        await player.prepare(case)
        async with asyncio.timeout(TIMEOUT):
            # The webhooks see what their caches have, which follow the server within milliseconds.
            while (seen := player.normalised(await player.act(case["request"], dry=True))) != expected:
                await asyncio.sleep(0.02)
    except TimeoutError:
        assert_same(seen, expected)
    finally:
        await player.clean()


def test_every_difference_belongs_to_a_case_and_has_its_reason() -> None:
    assert {case for case, _ in DIFFERENT} <= CASES.keys()
    assert len({(entry["case"], entry.get("definitions")) for entry in DIFFERENCES["cases"]}) == len(
        DIFFERENCES["cases"]
    )
    assert {reason for entry in DIFFERENT.values() for reason in entry["reasons"]} == set(DIFFERENCES["reasons"])


class Player:
    """Plays one case in a namespace of its own."""

    def __init__(self, requests: Requests, namespace: str, unordered: list[str]) -> None:
        self._requests = requests
        self._namespace = namespace
        self._normaliser = Normaliser(namespace, unordered)
        self._made: list[str] = []

    async def prepare(self, case: JsonObject) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        await self._requests.send("POST", "/api/v1/namespaces", namespace)
        for obj in map(given, case.get("given") or []):
            async with asyncio.timeout(TIMEOUT):
                while (answer := await self.act({"create": obj})).code != 201:
                    # A TrainJob is refused until the webhooks know its runtime.
                    assert obj["kind"] == "TrainJob", answer.message
                    await asyncio.sleep(0.02)
            self._made.append(self._path(obj["kind"], obj["metadata"]["name"]))
        for action in case.get("setup") or []:
            if "sleep" not in action:
                answer = await self.act(action)
                assert answer.code == 200, answer.message

    async def act(self, action: JsonObject, *, dry: bool = False) -> Answer:
        ((verb, target),) = in_namespace(action, self._namespace).items()
        if verb == "create":
            target = given(target)
            return await self._requests.send("POST", self._path(target["kind"]), target, dry=dry)
        path = self._path(target["kind"], target["name"], target.get("subresource"))
        if verb == "delete":
            return await self._requests.send("DELETE", path, dry=dry)
        if verb == "merge":
            return await self._requests.send("PATCH", path, target["body"], kind=MERGE, dry=dry)
        assert verb == "update", verb
        version = (await self._requests.send("GET", path)).body["metadata"]["resourceVersion"]
        body = target["body"] | {"metadata": {**target["body"]["metadata"], "resourceVersion": version}}
        return await self._requests.send("PUT", path, body, dry=dry)

    def normalised(self, answer: Answer) -> JsonObject:
        """The answer in the form in which it was recorded."""
        seen: JsonObject = {"allowed": answer.code < 300, "code": answer.code}
        if answer.code < 300:
            seen["object"] = self._normaliser.object(answer.body)
            if not seen["object"].get("status", True):
                del seen["object"]["status"]
        else:
            message = self._normaliser.tree(answer.message)
            seen |= {"reason": answer.body.get("reason"), "message": _in_order(message)}
            causes = (answer.body.get("details") or {}).get("causes")
            if causes:
                seen["causes"] = sorted(
                    self._normaliser.tree(causes), key=lambda cause: json.dumps(cause, sort_keys=True)
                )
        if answer.warnings:
            seen["warnings"] = sorted(self._normaliser.tree(answer.warnings))
        return {key: value for key, value in seen.items() if value is not None}

    async def clean(self) -> None:
        for path in self._made:
            await self._requests.send("DELETE", path)
        await self._requests.send("DELETE", f"/api/v1/namespaces/{self._namespace}")

    def _path(self, kind: str, name: str | None = None, subresource: str | None = None) -> str:
        resource = RESOURCES[kind]
        return resource.path(self._namespace if resource.namespaced else None, name, subresource)


def _in_order(message: str) -> str:
    """Sort the parts of an aggregated message: the order in which the original's validators run is chance."""
    found = re.search(r"\[((?:spec|status|metadata|<nil>)[.:\[].*)\]$", message, re.DOTALL)
    if not found:
        return message
    parts = sorted(re.split(r", (?=(?:spec|status|metadata|<nil>)[.:\[])", found[1]))
    return f"{message[: found.start(1)]}{', '.join(parts)}]"
