"""What of a line may be written to a terminal."""

from trainmaster.controller.cli.output import plain, printable, printable_lines

LINES = {
    "loss 0.3\taccuracy 0.9 ✓ 日本": "loss 0.3\taccuracy 0.9 ✓ 日本",
    "\x1b[1;31merror\x1b[0m: no": "\x1b[1;31merror\x1b[0m: no\x1b[m",
    "\x1b[38;2;1;2;3mred \x1b[38:5:9mmore": "\x1b[38;2;1;2;3mred \x1b[38:5:9mmore\x1b[m",
    "\x1b[2J\x1b[Hcleared": "cleared",
    "\x1b[3A\x1b[2Kup": "up",
    "\x1b[?1049hother screen\x1b[?25l": "other screen",
    "\x1b]0;title\x07text": "text",
    "\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\": "link",
    "\x1b]0;never ended": "",
    "\x1bPq#0;2;0;0;0\x1b\\sixel": "sixel",
    "\x1bc\x1b7\x1b8\x1bMreset": "reset",
    "\x1b(0qqq\x1b(B": "qqq",
    "\x0e\x0f\x07\x08\x0b\x0c\x00bell": "bell",
    "\x9b2J\x84c1": "c1",
    "\x9d0;title\x9ctext": "text",
    "10%\r55%\r100%": "100%",
    "100%\r": "100%",
    "100%\r\x1b[K": "100%",
    "\x1b[32m50%\x1b[0m\r\x1b[32m100%\x1b[0m\r": "\x1b[32m100%\x1b[0m\x1b[m",
    "\x1b": "",
    "\x1b[": "",
    "": "",
}


def test_only_text_and_colours_are_left() -> None:
    assert {line: printable(line) for line in LINES} == LINES


def test_many_lines_stay_as_many_and_lose_colours_on_request() -> None:
    assert printable_lines("a\nb\n\nc\n") == "a\nb\n\nc\n"
    assert printable_lines("a\n\x1b[2Jb\n\n\x1b[32mc\n") == "a\nb\n\n\x1b[32mc\x1b[m\n"
    assert printable_lines("a\n\x1b[32mb\nc\n") == "a\x1b[m\n\x1b[32mb\x1b[m\nc\x1b[m\n"
    assert plain("\x1b[32m50%\x1b[0m\r\x1b[32m100%\x1b[0m\tdone") == "100%    done"
