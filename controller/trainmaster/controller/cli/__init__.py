"""The command line: the root command, those for jobs, `diff`, `render`, `validate`, `manager`, and what these share."""

from __future__ import annotations

from trainmaster.controller.cli.root import main

__all__ = ["main"]
