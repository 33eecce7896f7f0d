"""Strategic merge: applying a partial object to a whole one by the rules of the Kubernetes API."""

from trainmaster.runtime.merging.directives import MergeError
from trainmaster.runtime.merging.schema import MergeSchema, definition, jobset_spec
from trainmaster.runtime.merging.strategic import strategic_merge

__all__ = ["MergeError", "MergeSchema", "definition", "jobset_spec", "strategic_merge"]
