"""The scheduler, as in kube-scheduler: which pod gets which node, and gangs of pods all theirs at once."""
