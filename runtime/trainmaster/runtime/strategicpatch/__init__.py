"""Strategic merge patch: applying a partial object to a whole one by the rules of the Kubernetes API."""

from trainmaster.runtime.strategicpatch.merge import MergeError, strategic_merge_patch, strategic_merge_patches
from trainmaster.runtime.strategicpatch.schema import MergeSchema, definition, jobset_spec

__all__ = ["MergeError", "MergeSchema", "definition", "jobset_spec", "strategic_merge_patch", "strategic_merge_patches"]
