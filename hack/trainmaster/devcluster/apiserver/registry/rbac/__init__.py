"""The group rbac.authorization.k8s.io: roles and their bindings; whether they are enforced is up to the server."""
