"""The HTTP face of the embedded cluster: paths, negotiation, discovery, streams and authentication."""
