"""`trainmaster history`: jobs that have ended, also those that are not there any more."""
