"""Whatever strangers have written, a terminal shows it and does not act upon it, and programs read what it was."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from support.objects import trainjob_object

from trainmaster.controller.cli.output import UNSAFE, guarded_output, write_log_line
from trainmaster.controller.cli.printers import print_json, print_objects
from trainmaster.controller.cli.root import main
from trainmaster.runtime.yamltext import load_plain_yaml

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
