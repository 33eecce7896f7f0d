"""The built-in admission plugins: LimitRanger, Priority, RuntimeClass and ServiceAccount."""
