"""controller/trainmaster/controller/server: TODO."""
