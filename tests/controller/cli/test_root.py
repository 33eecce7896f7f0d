"""The command line as a whole; whatever strangers have written, a terminal shows it and does not act upon it."""

import io
import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from support.objects import trainjob_object

from trainmaster.controller.cli import root
from trainmaster.controller.cli.output import UNSAFE, guarded_output, write_log_line
from trainmaster.controller.cli.printers import print_json, print_objects
from trainmaster.controller.cli.root import main
from trainmaster.runtime.yamltext import load_plain_yaml

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/numpy-digits"


def test_a_broken_command_of_somebody_else_costs_itself_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("broken", "no.such.module:command", root.COMMANDS_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [broken])
    with pytest.raises(SystemExit, match="0"):
        root.main(["--help"])
    printed = capsys.readouterr()
    assert printed.err == "trainmaster: no command 'broken': no.such.module:command: No module named 'no'\n"
    assert all(name in printed.out for name in root.COMMANDS)


def test_what_a_command_of_somebody_else_misses_is_not_said_to_be_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(commands: Any) -> None:
        commands.add_parser("theirs").set_defaults(run=lambda arguments: import_module("no_such_module"))

    class Point(EntryPoint):
        def load(self) -> Any:
            return command

    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [Point("theirs", "their.module:command", group)]
    )
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        root.main(["theirs"])


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["manager", "--bogus"], ["--bogus", "list"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        root.main(arguments)
    assert "usage: trainmaster" in capsys.readouterr().err


def test_a_misspelt_command_is_told_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        root.main(["runn", "train.py"])
    assert capsys.readouterr().err.endswith("error: there is no command 'runn'; did you mean run?\n")


_CLIENT = {"asyncio", "httptools", "orjson", "prometheus_client", "structlog", "tenacity", "yaml"}
"""What it takes to talk to a cluster."""

_SLOW = _CLIENT | {"aiohttp", "cryptography", "kubernetes_asyncio", "opentelemetry", "pydantic", "rich"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["crds", "--help"], {"orjson", "yaml"}),
        (["render", "--help"], {"orjson", "pydantic", "yaml"}),
        (["validate", "--help"], {"orjson", "pydantic", "yaml"}),
        *(([command, "--help"], _CLIENT) for command in ("run", "list", "attach", "logs", "explain", "restart")),
        *(
            ([command, "--help"], _CLIENT - {"httptools", "tenacity"} | {"pydantic"})
            for command in ("config", "plugins", "rbac")
        ),
        *(
            ([command, "--help"], {"asyncio", "orjson", "structlog", "yaml"})
            for command in ("diff", "doctor", "support-bundle")
        ),
    ],
)
def test_a_command_loads_nothing_that_another_one_needs(arguments: list[str], allowed: set[str]) -> None:
    """Each of these takes as long to import as a command may take to start."""
    assert {name.partition(".")[0] for name in _modules(arguments)} & _SLOW <= allowed


@pytest.mark.nightly
def test_the_overview_loads_no_command_of_ours() -> None:
    loaded = _modules(["--help"])
    ours = {name for name in loaded if name.startswith("trainmaster.controller.cli.")}
    assert ours <= {f"trainmaster.controller.cli.{name}" for name in ("root", "output")}
    of_the_embedded_cluster = {"asyncio", "cryptography", "orjson"}
    assert {name.partition(".")[0] for name in loaded} & _SLOW <= of_the_embedded_cluster


def _modules(arguments: list[str]) -> set[str]:
    """Return what is imported to answer a command line."""
    script = (
        "import sys; from trainmaster.controller.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told_in_a_line() -> None:
    """A full disk is no fault of ours, and no traceback."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "trainmaster.controller.cli", "render", "-f", str(EXAMPLE)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (1, "trainmaster: No space left on device\n")


TITLE = "\x1b]0;PWN\x07"
HOSTILE = [chr(code) for code in range(0x3000) if UNSAFE.match(chr(code))]


def test_controls_directions_and_separators_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"\x00", "\x1b", "\r", "\x7f", "\x85", "\x9b", "\u202e", "\u2028", "\u2066"} < set(HOSTILE)
    with guarded_output():
        sys.stdout.write("".join(HOSTILE) + "ü\t𝄞 \ud800\n")
        sys.stderr.writelines([f"{TITLE}\u202e", "\n"])
    out, err = capsys.readouterr()
    assert not UNSAFE.search(out + err)
    assert out.startswith("\\u0000\\u0001")
    assert out.endswith("ü\t𝄞 \\ud800\n")
    assert err == "\\u001b]0;PWN\\u0007\\u202e\n"


def test_programs_read_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    obj = {"a": "".join(HOSTILE), "b": f"two\nlines {TITLE}", "c": ["\u202e", "plain", "two\nlines"], "\u2028": 1}
    with guarded_output():
        print_objects([obj], form="yaml")
        written = capsys.readouterr().out
        assert load_plain_yaml(written) == obj
        print_json(obj)
        printed = capsys.readouterr().out
        assert json.loads(printed) == obj
    assert not UNSAFE.search(written + printed)


def test_every_command_prints_through_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.json"
    obj = trainjob_object()
    obj["spec"][f"{TITLE}\u202e"] = 1
    file.write_text(json.dumps(obj))
    assert main(["validate", "-f", str(file)]) == 1
    out, err = capsys.readouterr()
    assert "PWN" in out + err
    assert not UNSAFE.search(out + err)


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_logs_keep_their_colours_on_a_terminal_and_every_byte_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    line = f"{TITLE}\x1b[2J\x1b[31mred\u202e".encode()
    write_log_line(line, prefix="a | ")
    assert capfdbinary.readouterr().out == b"a | " + line + b"\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with guarded_output():
        write_log_line(line, prefix="a | ")
    assert terminal.getvalue() == "a | \x1b[31mred\x1b[m\n"
