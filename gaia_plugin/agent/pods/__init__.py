"""The agent of a Kubernetes node: who a container is, what it is given, and when it is given back.

`identity` and `advertised` are pure; `admit`, `sweep` and `recover` are the three things that happen to
a slot of a pod; `node` wires them to the kubelet and the API server.
"""
