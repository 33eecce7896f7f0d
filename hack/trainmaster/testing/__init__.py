"""Tests of plugins on a cluster: fixtures of pytest, which are there wherever Trainmaster is installed.

- `fixtures` has them; importing it costs hardly anything, and what a fixture needs is imported when it is asked for;
- `embedded` runs the embedded cluster in the process of the tests, and managers with a plugin on it;
- `conformance` is the part of the conformance suite that takes one.

This is the one package that imports the runtime, the controller and the embedded cluster: the runtime, in which the
rest of the test kit is, must know neither of the others, and they must not know each other.
"""
