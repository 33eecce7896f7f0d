"""How pods on one host find each other: their addresses, local ports, hosts files and, without namespaces, the
rewriting of names and paths in their commands and variables."""
