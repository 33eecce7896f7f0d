"""HTTP/1.1 over TCP and TLS, as far as a client of an API server needs it."""
