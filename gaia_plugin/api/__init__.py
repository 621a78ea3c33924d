"""The dynamic-allocation API: HTTP and JSON over unix sockets."""
