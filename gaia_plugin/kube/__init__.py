"""The API server: what pods ask for, where they were placed, and the few things Gaia writes to it.

The only package that imports the Kubernetes client, and of that only its configuration and its HTTP
layer: lists and watches arrive as bytes and are decoded here, because the client's own objects cost a
node agent most of its memory and an extender of a large cluster most of its time.

Nothing is imported by this file, so that the pure parts (`wishes`, `placement`, `quantities`, `pods`)
cost nobody the memory of a client.
"""
