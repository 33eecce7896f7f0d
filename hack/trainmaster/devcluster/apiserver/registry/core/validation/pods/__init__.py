"""The rules of pods as a whole: the spec, where it may run, what may change, the status."""
