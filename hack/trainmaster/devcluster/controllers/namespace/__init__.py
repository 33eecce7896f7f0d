"""The namespace controller: a namespace that is deleted loses its content first."""
