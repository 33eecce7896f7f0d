"""The handlers of requests: the verbs on resources, and the paths that are no resources."""
