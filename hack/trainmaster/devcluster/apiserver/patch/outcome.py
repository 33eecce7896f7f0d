"""Why a patch was not carried out."""

from __future__ import annotations


class PatchError(ValueError):
    """The patch is malformed or does not fit the document; the message says which operation failed on which path."""


class PatchTooLarge(PatchError):
    """The patch asks for more work than the server is willing to do."""
