"""The service account controller, and the publisher of the root certificate: what every namespace comes with."""
