"""The file changes while the manager runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Configuration, load_configuration
from trainmaster.controller.configuration.reload import INTERVAL, ConfigurationReloader

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
SUCCESSFUL = "trainmaster_config_last_reload_successful"
TIMESTAMP = "trainmaster_config_last_reload_success_timestamp_seconds"


class Mounted:
    """A ConfigMap as the kubelet mounts it: a new version is written elsewhere, and a link swapped."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._version = directory, 0
        self.path = directory / "config.yaml"
        self.path.symlink_to("..data/config.yaml")

    def update(self, text: str | None) -> None:
        self._version += 1
        version = self._directory / f"..{self._version}"
        version.mkdir()
        if text is not None:
            (version / "config.yaml").write_text(HEAD + text)
        swapped = self._directory / "..data_tmp"
        swapped.symlink_to(version.name)
        swapped.rename(self._directory / "..data")


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    made = Mounted(tmp_path)
    made.update("webhook: {port: 1}\n")
    return made


@pytest.fixture
def applied() -> list[int]:
    return []


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def reloader(mounted: Mounted, applied: list[int], clock: VirtualClock) -> ConfigurationReloader:
    def apply(configuration: Configuration) -> None:
        applied.append(configuration.logging.verbosity)

    return ConfigurationReloader(
        mounted.path, load_configuration(mounted.path), feature_gates="", apply=apply, clock=clock
    )


def told(reloader: ConfigurationReloader) -> list[dict[str, object]]:
    with capture_logs() as logged:
        reloader.reload()
    return [dict(each) for each in logged]


def test_what_may_change_takes_effect(mounted: Mounted, reloader: ConfigurationReloader, applied: list[int]) -> None:
    assert told(reloader) == []
    mounted.update("webhook: {port: 1}\nlogging: {verbosity: 2}\n")
    assert told(reloader) == [
        {"event": "the configuration file is in effect", "reloaded": ["logging.verbosity"], "log_level": "info"}
    ]
    assert applied == [2]
    assert told(reloader) == []


def test_what_needs_a_restart_is_told_once(
    mounted: Mounted, reloader: ConfigurationReloader, applied: list[int]
) -> None:
    mounted.update("webhook: {port: 2}\nplugins: {options: {a: {b: 1}}}\n")
    assert told(reloader) == [
        {
            "event": "the configuration file has changed; some options need a restart",
            "options": ["webhook.port", "plugins.options.a"],
            "reloaded": [],
            "log_level": "warning",
        }
    ]
    assert told(reloader) == []
    # More of them are told again, what is reloaded beside them is not lost.
    mounted.update("webhook: {port: 2, host: x}\nlogging: {verbosity: 5}\n")
    (line,) = told(reloader)
    assert (line["options"], line["reloaded"]) == (["webhook.host", "webhook.port"], ["logging.verbosity"])
    mounted.update("webhook: {port: 2, host: x}\n")
    (line,) = told(reloader)
    assert (line["event"], line["reloaded"]) == ("the configuration file is in effect", ["logging.verbosity"])
    assert applied == [5, 0]
    mounted.update("# a comment\nwebhook: {port: 1}\n")
    assert [line["event"] for line in told(reloader)] == ["the configuration file is in effect"], "as it was"


async def test_a_file_that_cannot_be_used_changes_nothing(
    mounted: Mounted, reloader: ConfigurationReloader, applied: list[int], clock: VirtualClock
) -> None:
    mounted.update("webhook: {port: 0}\nlogging: {verbosity: 2}\n")
    started = value_of(TIMESTAMP) or 0.0
    (line,) = told(reloader)
    assert line == {
        "event": "the configuration file cannot be used any more; the old values stay",
        "error": (
            f"failed to decode config file: {mounted.path}: invalid configuration: webhook.port: must be greater than "
            "or equal to 1, got 0"
        ),
        "log_level": "warning",
    }
    assert told(reloader) == []
    assert (applied, value_of(SUCCESSFUL)) == ([], 0)
    mounted.update(None)
    assert "No such file or directory" in str(told(reloader)[0]["error"])
    assert value_of(TIMESTAMP) == started
    await clock.advance(100)
    mounted.update("webhook: {port: 1}\n")
    assert [line["event"] for line in told(reloader)] == ["the configuration file is in effect"]
    assert (value_of(SUCCESSFUL), value_of(TIMESTAMP)) == (1, started + 100)


async def test_it_looks_again_and_again(
    mounted: Mounted, reloader: ConfigurationReloader, applied: list[int], clock: VirtualClock
) -> None:
    running = asyncio.create_task(reloader.run())
    for verbosity in (2, 3):
        mounted.update(f"logging: {{verbosity: {verbosity}}}\n")
        await clock.advance(INTERVAL + 1)
    running.cancel()
    assert applied == [2, 3]
