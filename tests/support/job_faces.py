"""What is said of jobs in each place: explain, list, top, kubectl get, conditions, the web page, the history."""

import asyncio
import html
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from support.commands import Finished, client_of, run_program, trainmaster
from support.training import until

from trainmaster.controller.cli.history.sources import HttpSource, of_cluster
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.job_fields import true_conditions
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

PYTORCHJOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
_KINDS = {each.kind: each for each in (TRAINJOBS, PYTORCHJOBS)}
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_ROW = re.compile(r'<tr><td><span class="badge \w+">(\w+)</span></td>(.*?)</tr>')
_COMMAND = re.compile(r"(?:: *|`)((?:trainmaster|kubectl) [^`;)]+)")
_TELL_FAILURES = ("ContainerFailed", "Waiting")


@dataclass(frozen=True)
class Said:
    """What is said of a job in one place; what is not said there is empty, or None."""

    state: str = ""
    restarts: int | None = None
    causes: tuple[str, ...] = ()

    def fits(self, other: "Said") -> bool:
        """Whether it says nothing else than another place that says more."""
        return (
            self.state in ("", other.state)
            and self.restarts in (None, other.restarts)
            and set(self.causes) <= set(other.causes)
        )


async def explanation(home: Path, name: str, namespace: str = "default") -> JsonObject:
    """What `explain` says of a job, as JSON."""
    done = await trainmaster("explain", name, "--namespace", namespace, "--output", "json", cwd=home)
    assert done.code == 0, done.err
    said: JsonObject = json.loads(done.out)
    return said


async def agreed(home: Path, name: str, namespace: str) -> JsonObject:
    """Wait until all places say the same of a job as explain, or less; returns what explain says."""
    last: dict[str, Said] = {}
    kind = "PyTorchJob" if name.startswith("pytorchjob/") else "TrainJob"
    explained: JsonObject = {}

    async def agree() -> bool:
        explained.update(await explanation(home, name, namespace))
        last.clear()
        last.update(await _faces(home, kind, name.rpartition("/")[2], namespace))
        last["explain"] = Said(
            explained["state"]["name"],
            explained["restarts"],
            (
                *(each["cause"] for each in explained["causes"]),
                # All that is known without its pod, which may be gone, or its words.
                *(["ContainerFailed"] if explained["failedContainer"] is not None else ()),
            ),
        )
        return all(each.fits(last["explain"]) for each in last.values())

    try:
        await until(agree)
    except TimeoutError:
        shown = "\n".join(f"{place}: {said}" for place, said in last.items())
        raise AssertionError(f"places contradict each other about {name}:\n{shown}") from None
    return explained


async def _faces(home: Path, kind: str, name: str, namespace: str) -> dict[str, Said]:
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        listed, top, history = await asyncio.gather(
            trainmaster("list", "-n", namespace, cwd=home),
            trainmaster("top", "--once", "-o", "json", "-n", namespace, cwd=home),
            trainmaster("history", "-n", namespace, "-o", "json", cwd=home),
        )
        said = {
            f"list {number}": Said(cells[2], int(cells[5]), _causes(cells[3]))
            for number, cells in enumerate(map(str.split, listed.out.splitlines()))
            if cells[:2] == [kind, name]
        }
        for each in json.loads(top.out)["jobs"]:
            if (each["kind"], each["name"]) == (kind, name):
                said["top"] = Said(each["state"], each["restarts"], _causes(each["cause"] or ""))
        for each in json.loads(history.out)["items"]:
            if (each["kind"], each["name"]) == (kind, name):
                said["history"] = Said(each["result"], each["restarts"], _causes(each["cause"]))
        said |= await _kubectl(client, _KINDS[kind], name, namespace)
        said |= await _web(await of_cluster(client, service="", token=""), kind, name, namespace)
    return said


def _causes(cause: str) -> tuple[str, ...]:
    return (cause,) if cause in set(Cause) - {Cause.UNKNOWN} else ()


async def _kubectl(client: KubeClient, kind: Resource, name: str, namespace: str) -> dict[str, Said]:
    """What `kubectl get` prints, and what the conditions of the job say."""
    status, _, body = await client.raw("GET", kind.path(namespace, name), accept=_TABLE)
    if status == 404:
        return {}
    table = json.loads(body)
    (row,) = table["rows"]
    cells = dict(zip([each["name"] for each in table["columnDefinitions"]], row["cells"], strict=True))
    conditions = true_conditions(await client.get(kind, namespace, name))
    reasons = [conditions[each]["reason"] for each in _TELL_FAILURES if each in conditions]
    causes = tuple(cause for reason in reasons for cause in _causes(reason))
    return {"kubectl": Said(cells["State"] or ""), "conditions": Said(causes=causes)}


async def _web(source: HttpSource, kind: str, name: str, namespace: str) -> dict[str, Said]:
    """What the list and the page of the job say on the web."""
    said = {}
    async with aiohttp.ClientSession(headers=dict(source.headers), connector=aiohttp.TCPConnector(ssl=False)) as web:

        async def page(path: str) -> str:
            async with web.get(f"{source.url}/web/{path}") as answer:
                text = await answer.text()
                assert answer.status == 200, text
                return text

        for state, row in _ROW.findall(await page(f"?namespace={namespace}")):
            cells = [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<td>(.*?)</td>", row)]
            if cells[1:3] == [name, kind]:
                said["web list"] = Said(state, causes=_causes(cells[4]))
                link = re.search(r'href="(jobs/.*?)"', row)
                assert link is not None
                shown = await page(link[1])
                word = re.search(r'<h1><span class="badge \w+">(\w+)<', shown)
                restarts = re.search(r"<dt>Restarts</dt><dd>(\d+)</dd>", shown)
                assert word is not None
                assert restarts is not None
                causes = tuple(cause for each in re.findall(r"<h2>Why: (\w+)", shown) for cause in _causes(each))
                said["web page"] = Said(word[1], int(restarts[1]), causes)
    return said


def commands_in(lines: Iterable[str]) -> list[str]:
    """The commands that lines advise, each once."""
    return list(dict.fromkeys(found.strip() for line in lines for found in _COMMAND.findall(line)))


async def paste(home: Path, command: str) -> Finished:
    """Run a command as it was advised, in the directory of the cluster."""
    program, *words = shlex.split(command)
    if program == "trainmaster":
        return await trainmaster(*words, cwd=home)
    return await run_program(program, "--kubeconfig", str(home / ".trainmaster" / "kubeconfig"), *words)
