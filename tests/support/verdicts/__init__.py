"""Verdicts of kube-apiserver on single requests: the recorded cases, how they are played, how answers are compared."""
