"""What a container gets: the Container Device Interface (CDI) specs that a container runtime reads."""
