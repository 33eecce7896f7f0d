"""controller/trainmaster/controller/manager: TODO."""
