"""The extender: what kube-scheduler asks about pods with slices, cluster-wide.

`filter` and `prioritize` read a snapshot that three watches keep up and write nothing; `bind` promises cards
in the node's `GPUNode` and binds the pod; reservations that nobody needs any more are dropped against the
API server itself, and waiting pods are annotated when there is room for them.

Nothing is imported by this file.
"""
