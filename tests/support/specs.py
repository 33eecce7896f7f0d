"""Specs: what the integration suites of the original state, as data, and a player for them.

A spec has `steps`, which are done one after the other:

- `create`: an object; `update`: a merge patch for what there is, which is then put in its place (or a whole `spec`);
  `answer` is what the API server says: Created, OK, Invalid (422) or Forbidden (403); `becomes` is what is stored.
- `delete`: by kind and name.
- `eventually`: statements about objects that come true; `see`: statements that hold at once.

A statement names an object and says of it: `absent`; `equals`, all of it; `contains`, a part of it (lists: in any order
and among others); `conditions`, exactly these; `owner`, the TrainJob that controls it; `text`, `keys`, `decoded`: what
is in the data of a ConfigMap or Secret.

`$base` stands for an object of `bases.yaml`, with `$merge` laid over it; `@a*3@` for `aaa`.

A spec that does not hold on purpose has `differs`: by which declared differences, and the steps that hold instead.
"""

import asyncio
import base64
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from support.admission import Answer, Requests
from support.commands import TIMEOUT
from support.golden import RESOURCES, Normaliser, assert_same, in_namespace, load_yaml

from trainmaster.devcluster.apiserver.jsonpatch import merge_patch
from trainmaster.runtime.canonical import without_blanks
from trainmaster.runtime.jsontree import JsonObject

DIRECTORY = Path(__file__).resolve().parents[1] / "golden/specs"
CODES = {"Created": 201, "OK": 200, "Invalid": 422, "Forbidden": 403}
_REPEATED = re.compile(r"@(.)\*(\d+)@")


def load_specs() -> list[JsonObject]:
    """All specs, with bases and repetitions written out."""
    bases = load_yaml((DIRECTORY / "bases.yaml").read_text())
    return [
        _written_out(spec, bases) for path in sorted(DIRECTORY.glob("*-*.yaml")) for spec in load_yaml(path.read_text())
    ]


def _written_out(node: Any, bases: Mapping[str, JsonObject]) -> Any:
    if isinstance(node, dict) and "$base" in node:
        return merge_patch(bases[node["$base"]], _written_out(node.get("$merge", {}), bases))
    if isinstance(node, dict):
        return {key: _written_out(value, bases) for key, value in node.items()}
    if isinstance(node, list):
        return [_written_out(value, bases) for value in node]
    if isinstance(node, str):
        return _REPEATED.sub(lambda match: match[1] * int(match[2]), node)
    return node


class SpecPlayer:
    """Plays one spec in a namespace of its own."""

    def __init__(self, requests: Requests, namespace: str) -> None:
        self._requests = requests
        self._namespace = namespace
        self._normaliser = Normaliser(namespace)
        self._made: list[str] = []

    async def play(self, steps: list[JsonObject]) -> None:
        """Do all steps; an AssertionError says which statement does not hold."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        await self._requests.send("POST", "/api/v1/namespaces", namespace)
        try:
            for step in in_namespace(steps, self._namespace):
                await self._do(step)
        finally:
            for path in reversed(self._made):
                await self._requests.send("DELETE", path)
            await self._requests.send("DELETE", f"/api/v1/namespaces/{self._namespace}")

    async def _do(self, step: JsonObject) -> None:
        if "create" in step:
            await self._create(step)
        elif "update" in step:
            await self._update(step)
        elif "delete" in step:
            answer = await self._requests.send("DELETE", self._path(step["delete"]))
            assert answer.code == 200, answer.message
        elif "see" in step:
            for statement in step["see"]:
                await self._see(statement)
        else:
            for statement in step["eventually"]:
                await self._eventually(statement)

    async def _create(self, step: JsonObject) -> None:
        obj, code = step["create"], CODES[step["answer"]]
        answer = await self._requests.send("POST", self._path({"kind": obj["kind"]}), obj)
        assert answer.code == code, (answer.code, answer.message[:2000])
        if code == CODES["Created"]:
            self._made.append(self._path({"kind": obj["kind"], "name": obj["metadata"]["name"]}))
        if "becomes" in step:
            expected = merge_patch(
                step["becomes"], {"metadata": {"namespace": answer.body["metadata"].get("namespace")}}
            )
            assert_same(_bare(self._normaliser.object(answer.body)), self._normaliser.tree(_bare(expected)))

    async def _update(self, step: JsonObject) -> None:
        target = step["update"]
        path = self._path(target)
        while True:
            present = await self._requests.send("GET", path)
            assert present.code == 200, present.message
            changed = (
                {**present.body, "spec": target["spec"]}
                if "spec" in target
                else merge_patch(present.body, target["merge"])
            )
            at = path + (f"/{target['subresource']}" if "subresource" in target else "")
            answer = await self._requests.send("PUT", at, changed)
            if answer.code != 409:  # somebody else was quicker
                assert answer.code == CODES[step["answer"]], (answer.code, answer.message[:2000])
                return

    async def _eventually(self, statement: JsonObject) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    try:
                        return await self._see(statement)
                    except AssertionError:
                        await asyncio.sleep(0.02)
        except TimeoutError:
            await self._see(statement)

    async def _see(self, statement: JsonObject) -> None:
        answer = await self._requests.send("GET", self._path(statement))
        if statement.get("absent"):
            assert answer.code == 404, f"{statement['kind']} {statement['name']} exists"
            return
        assert answer.code == 200, answer.message
        for name, check in _CHECKS.items():
            if name in statement:
                check(self._normaliser, answer, statement[name])

    def _path(self, target: JsonObject) -> str:
        resource = RESOURCES[target["kind"]]
        return resource.path(self._namespace if resource.namespaced else None, target.get("name"))


def _equals(normaliser: Normaliser, answer: Answer, expected: JsonObject) -> None:
    seen = normaliser.object(answer.body)
    seen.pop("status", None)
    if seen["kind"] == "JobSet":
        # The schema's defaults; specs leave out what is zero.
        for job in expected["spec"]["replicatedJobs"]:
            job.setdefault("replicas", 1)
    assert_same(_bare(seen), normaliser.tree(_bare(expected)))


def _bare(node: Any) -> Any:
    """Leave out what means nothing: zeros, and metadata without anything in it."""
    if isinstance(node, dict):
        kept = {key: _bare(value) for key, value in without_blanks(node).items()}
        return {key: value for key, value in kept.items() if (key, value) != ("metadata", {})}
    return [_bare(item) for item in node] if isinstance(node, list) else node


def _contains(normaliser: Normaliser, answer: Answer, expected: JsonObject) -> None:
    seen = normaliser.object(answer.body)
    missing = list(_missing(seen, normaliser.tree(expected), ""))
    assert not missing, (missing, seen)


def _missing(seen: Any, expected: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(seen, dict):
        for key, value in expected.items():
            yield from _missing(seen.get(key), value, f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(seen, list):
        for position, item in enumerate(expected):
            if all(any(_missing(candidate, item, "")) for candidate in seen):
                yield f"{path}[{position}]"
    elif seen != expected:
        yield path


def _conditions(_: Normaliser, answer: Answer, expected: list[JsonObject]) -> None:
    seen = (answer.body.get("status") or {}).get("conditions") or []
    ignored = ("lastTransitionTime", "observedGeneration")
    assert_same([{key: value for key, value in each.items() if key not in ignored} for each in seen], expected)


def _owner(_: Normaliser, answer: Answer, name: str) -> None:
    (owner,) = answer.body["metadata"]["ownerReferences"]
    assert owner.pop("uid")
    assert_same(
        owner,
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "name": name,
            "controller": True,
            "blockOwnerDeletion": True,
        },
    )


def _text(_: Normaliser, answer: Answer, expected: JsonObject) -> None:
    text = answer.body["data"][expected["key"]]
    assert text
    assert [part for part in expected["has"] if part not in text] == []
    assert [part for part in expected.get("lacks", ()) if part in text] == []


def _keys(_: Normaliser, answer: Answer, expected: list[str]) -> None:
    assert set(expected) <= answer.body["data"].keys()


def _decoded(_: Normaliser, answer: Answer, expected: dict[str, list[str]]) -> None:
    for key, parts in expected.items():
        text = base64.b64decode(answer.body["data"][key]).decode()
        assert [part for part in parts if part not in text] == []


_CHECKS: dict[str, Callable[[Normaliser, Answer, Any], None]] = {
    "equals": _equals,
    "contains": _contains,
    "conditions": _conditions,
    "owner": _owner,
    "text": _text,
    "keys": _keys,
    "decoded": _decoded,
}
