"""Users, authorizers (RBAC, always allow) and service-account tokens.

The room works on the API and knows no HTTP, because the kubelet needs tokens as much as the server does.
"""
