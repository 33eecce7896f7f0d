"""Server-side apply (KEP-555, structured-merge-diff): who owns which field of an object, and what follows from it.

The model:

- A *field set* is a tree of path elements, kept in the notation of `FieldsV1`, in which it also travels: `f:name` is
  a field, `k:{"name":"a"}` an element of a keyed list, `v:"x"` an element of a set. A node that is empty or holds `.`
  is a member of the set; a node with only children is just on the way to members.
- The schema decides what one field is. Atomic lists and maps are a single field; keyed lists, sets and granular maps
  are owned element by element. Where there is no schema maps are granular and lists atomic.
- A *manager* is a name with an operation (Apply or Update), an API version and a subresource. It owns a field set;
  fields with equal values may have several managers.
- *Apply* states everything that its manager wants: those fields become owned; what it owned before, no longer wants
  and nobody else owns is removed; changing a value that another manager owns is a conflict, unless forced.
- *Update* owns what it changed, and takes it from everyone who owned it before.
"""

from trainmaster.devcluster.apiserver.apply.fieldmanager import ApplyConflict, Conflict, apply, update
from trainmaster.devcluster.apiserver.apply.fieldset import FieldSet, FieldsInvalid
from trainmaster.devcluster.apiserver.apply.typed import ApplyInvalid

__all__ = ["ApplyConflict", "ApplyInvalid", "Conflict", "FieldSet", "FieldsInvalid", "apply", "update"]
