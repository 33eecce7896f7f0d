"""CEL rules of custom resource definitions (`x-kubernetes-validations`, KEP-2876), checked at each write.

`Rules` holds the rules of one schema and says which of them an object breaks. The rule language itself comes from
cel-expr-python (`env`), which is imported before the first rule; everything that Kubernetes adds to it is here:
which parts of an object a rule sees, the old value of a field, ratcheting, the words of a refusal, and Kubernetes' own
functions (`library`).
"""

from trainmaster.devcluster.apiserver.schema.cel.compiler import RuleProblem
from trainmaster.devcluster.apiserver.schema.cel.rules import Result, Rules

__all__ = ["Result", "RuleProblem", "Rules"]
