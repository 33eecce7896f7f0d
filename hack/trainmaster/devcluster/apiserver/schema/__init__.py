"""Structural schemas: which fields an object may have, what they default to, and which values they may hold.

A `Schema` is one node of a custom resource's `openAPIV3Schema` or of a built-in kind's OpenAPI definition. It prunes,
defaults and validates objects, and tells server-side apply how a list or a map is merged.
"""

from trainmaster.devcluster.apiserver.schema.schema import RELEASE, Schema, builtin_schema

__all__ = ["RELEASE", "Schema", "builtin_schema"]
