"""The controllers of the embedded cluster, as in kube-controller-manager, and those of JobSet and of Volcano's queues.

Each has a room of its own: `controller` watches, reconciles and writes; where there is more to it, `plan` decides,
`status` and `conditions` say what stands in the status, `children` builds what the controller creates, `policies` reads
the policies of the spec. All but `controller` are pure. What they share is beside the rooms: control loop, indexer.

Every controller works on the in-process API only and keeps nothing that matters in memory: what it needs to know
after a restart is in the stored objects.
"""
