"""Keys, from what terminals send."""

from __future__ import annotations

from trainmaster.controller.cli.top.display.keyboard import Key, Keyboard


def test_keys() -> None:
    for sent, keys in (
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB", [Key.UP, Key.DOWN]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", [Key.PAGE_UP, Key.PAGE_DOWN, Key.HOME, Key.END]),
        (b"\x1b", [Key.ESCAPE]),
        (b"a\x7fb\r", ["a", Key.BACKSPACE, "b", Key.ENTER]),
        (b"\x1b[15~\x1b[1;5C\x01\tx", ["x"]),
        ("ä".encode(), ["ä"]),
        (b"\xff\xfe", []),
        (b"", []),
    ):
        assert Keyboard().keys(sent) == keys
    # A character may come in pieces.
    keyboard = Keyboard()
    assert keyboard.keys("ü".encode()[:1]) == []
    assert keyboard.keys("ü".encode()[1:]) == ["ü"]
