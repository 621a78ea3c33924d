"""A large cluster for benchmarks: its objects, and an API server that keeps them in memory."""
