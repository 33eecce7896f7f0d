"""The embedded cluster for tests: an API server, a stepper of controllers in virtual time, and faults."""
