"""Two runs of the same work: what differs first."""
