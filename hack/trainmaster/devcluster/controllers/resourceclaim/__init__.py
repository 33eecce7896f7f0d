"""The controller of resource claims (dynamic resource allocation): claims from templates, and their release.

Devices exist in the API only: what a driver would prepare in a container is not prepared. The scheduler allocates them.
"""
