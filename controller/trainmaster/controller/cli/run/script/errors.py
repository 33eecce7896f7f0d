"""What is wrong with a program, or with what was said of it."""

from __future__ import annotations


class ProgramError(Exception):
    """It cannot be run as it was asked for; the text says why and what to do, perhaps in several lines."""
