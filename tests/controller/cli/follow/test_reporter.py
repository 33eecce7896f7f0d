"""Where output goes decides what it looks like: a display only where somebody sees what is drawn over."""

from __future__ import annotations

import sys

import pytest
from support.followed_jobs import condition, job_status

from trainmaster.controller.cli.follow.display.live_reporter import LiveReporter
from trainmaster.controller.cli.follow.display.summary import Commands
from trainmaster.controller.cli.follow.reporter import PlainReporter, make_reporter

OF_TERMINALS = ("TERM", "CI", "JPY_PARENT_PID", "COLAB_RELEASE_TAG", "MPLBACKEND")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Both streams are an ordinary terminal."""
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    for name in OF_TERMINALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def chosen(*, plain: bool = False) -> type:
    return type(make_reporter(plain=plain, commands=Commands()))


def test_a_terminal_has_a_display_unless_plain_lines_are_wanted(terminal: pytest.MonkeyPatch) -> None:
    assert chosen() is LiveReporter
    assert chosen(plain=True) is PlainReporter
    terminal.setenv("CI", "false")
    assert chosen() is LiveReporter


@pytest.mark.parametrize(
    "variable",
    [
        *("TERM=dumb", "TERM=", "TERM=unknown", "CI=true", "CI=1", "JPY_PARENT_PID=1", "COLAB_RELEASE_TAG=release-1"),
        "MPLBACKEND=module://matplotlib_inline.backend_inline",
    ],
)
def test_terminals_on_which_nothing_can_be_drawn_over_have_none(terminal: pytest.MonkeyPatch, variable: str) -> None:
    """Dumb ones, logs of CI, and notebooks, whose `!` gives its command a terminal of which lines are kept."""
    terminal.setenv(*variable.split("=", 1))
    assert chosen() is PlainReporter


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_file_or_a_pipe_has_none(terminal: pytest.MonkeyPatch, stream: str) -> None:
    terminal.setattr(getattr(sys, stream), "isatty", lambda: False)
    assert chosen() is PlainReporter


def test_plain_lines_are_logs_on_standard_output_and_all_else_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = job_status(started="2024-01-01T00:00:00Z", conditions=condition("Complete", at="2024-01-01T00:01:23Z"))
    with PlainReporter(Commands()) as reporter:
        reporter.show([status])
        reporter.report("pod mnist-node-0-0: Running")
        reporter.log(["\x1b[32mone\x1b[0m", "10%\r100%"], job="default/mnist")
        reporter.log([])
        reporter.partial("not ended", job="default/mnist")
        reporter.close([status])
    told = capsys.readouterr()
    assert told.out == "\x1b[32mone\x1b[0m\n10%\r100%\n"
    assert told.err.splitlines() == [
        "pod mnist-node-0-0: Running",
        "TrainJob default/mnist: Complete after 1:23",
        "  logs:   trainmaster logs mnist --all",
        "  delete: trainmaster delete mnist",
    ]
