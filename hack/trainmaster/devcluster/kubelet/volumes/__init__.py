"""Volumes of pods: directories of the host with what the pod asks for, and where its containers see them."""
