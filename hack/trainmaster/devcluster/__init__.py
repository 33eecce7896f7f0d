"""The embedded cluster: a Kubernetes-compatible API server, the controllers that training needs and a process kubelet.

It serves laptops and tests. It behaves as a real API server does or answers 501; it never invents success.
The layers, each of which imports only those before it: `store`; the pure algorithms `schema`, `fields`, `patching`,
`selectors` and `jsonpath`; `kinds`; `api` (verbs without HTTP); then `http`, `controllers` and `kubelet` side by side.
"""
