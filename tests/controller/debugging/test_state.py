"""What is shown of caches, queues, plugins and the configuration: nothing that may be a secret, and so much at most."""

from __future__ import annotations

import orjson
import pytest
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Configuration, Plugins
from trainmaster.controller.debugging import state
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.rest.resources import SECRETS
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.runtime.framework import Framework, load_plugins

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "namespace": "team",
        "name": "key",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"canary": "hunter2"},
        "annotations": {"canary": "hunter2"},
        "ownerReferences": [{"kind": "TrainJob", "name": "demo", "uid": "o", "apiVersion": "v1"}],
    },
    "data": {"canary": "hunter2"},
    "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Odd", "message": "hunter2"}, "odd"]},
}


@pytest.mark.guarantee("M-9")
async def test_an_object_is_shown_without_what_is_in_it() -> None:
    informer = Informer(None, SECRETS)  # type: ignore[arg-type] # it is not run
    informer.store.put(orjson.loads(orjson.dumps(SECRET)))
    (shown,) = state.cached_object([informer], "team/key")
    assert "hunter2" not in str(shown)
    assert shown["metadata"] == {"uid": "u", "resourceVersion": "7"}
    assert shown["ownerReferences"] == [{"apiVersion": "v1", "kind": "TrainJob", "name": "demo", "uid": "o"}]
    assert shown["conditions"] == [{"type": "Ready", "status": "False", "reason": "Odd"}]
    assert shown["fields"] == ["apiVersion", "data", "kind", "metadata", "status"]
    assert state.cached_object([informer], "team/other") == []
    (cache,) = state.caches([informer])
    assert (cache["name"], cache["objects"], cache["synced"], cache["failure"]) == ("secrets", 1, False, None)
    assert cache["bytes"] == shown["bytes"] > 100


@pytest.mark.guarantee("M-9")
async def test_a_queue_shows_what_is_first_of_each_state() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock=clock)
    for number in range(250):
        queue.add(f"team/ready-{number}")
        queue.add_after(f"team/later-{number}", 10 + number)
    assert queue.take() == "team/ready-0"
    queue.add_rate_limited("team/failed")
    queue.add_rate_limited("team/failed")
    await clock.advance(0.001)
    shown = state.queues([("controller", queue)])["controller"]
    assert (shown["ready"], shown["delayed"], shown["running"], shown["shutDown"]) == (249, 251, 1, False)
    assert [len(shown[f"{name}Keys"]) for name in ("ready", "delayed", "running")] == [100, 100, 1]
    assert shown["readyKeys"][0] == {"key": "team/ready-1", "priority": 0, "waitedSeconds": 0.001, "retries": 0}
    assert shown["runningKeys"] == [{"key": "team/ready-0", "priority": 0, "runningSeconds": 0.001, "retries": 0}]
    first, second = shown["delayedKeys"][:2]
    assert (first["key"], first["retries"]) == ("team/failed", 2)
    assert second == {"key": "team/later-0", "priority": 0, "dueInSeconds": 9.999, "retries": 0}
    queue.shut_down()


@pytest.mark.guarantee("M-9")
def test_plugins_are_shown_in_their_order_and_their_options_without_texts() -> None:
    framework = Framework(load_plugins())
    assert state.plugins(framework)["order"] == framework.order()
    # Options of plugins are shown without texts.
    options = {"theirs": {"token": "hunter2", "retries": 3, "hosts": ["hunter2"], "more": {"on": True}}}
    shown = state.configuration(Configuration(plugins=Plugins(options=options)))
    assert shown["plugins"]["options"] == {
        "theirs": {"token": "[redacted]", "retries": 3, "hosts": ["[redacted]"], "more": {"on": True}}
    }
    assert shown["webhook"]["certDir"] == Configuration().webhook.cert_dir
