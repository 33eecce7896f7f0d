"""The Job controller (batch/v1): Jobs, with or without completion indexes, failure policies and success policies."""
