"""Patches that need no schema: JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386).

Both return a new document and leave what they were given untouched. A patch that cannot be carried out raises
`PatchError`; nothing is ever applied halfway.
"""

from trainmaster.devcluster.apiserver.patch.jsonpatch import json_patch
from trainmaster.devcluster.apiserver.patch.mergepatch import PatchError, PatchTooLarge, merge_patch

__all__ = ["PatchError", "PatchTooLarge", "json_patch", "merge_patch"]
