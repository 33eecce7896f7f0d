"""Dynamic resource allocation: claims from templates, and devices of resource slices for claims.

Devices exist in the API only: what a driver would prepare in a container is not prepared.
"""
