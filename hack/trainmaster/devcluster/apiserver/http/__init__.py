"""The wire: from requests to RequestInfo, options and objects (JSON, YAML, protobuf), and the writers of responses."""
