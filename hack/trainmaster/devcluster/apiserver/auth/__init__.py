"""Who asks and what they may do: users, service-account tokens, and authorization by roles.

It works on the API and knows no HTTP, because the kubelet needs tokens as much as the server does.
"""
