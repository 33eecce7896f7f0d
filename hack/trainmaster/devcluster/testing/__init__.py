"""For tests, ours and those of plugin authors: an API server, a stepper of controllers in virtual time, and faults."""
