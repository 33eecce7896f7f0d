"""The embedded cluster: a Kubernetes-compatible API server, the controllers that training needs and a process kubelet.

It serves laptops and tests. It behaves as a real API server does or answers 501; it never invents success.
The rooms, each of which imports only those before it: `apiserver`; `controllers`; `scheduler`; `kubelet`; `manager` and
`testing`; `cluster`, which composes them; `cli`.
"""
