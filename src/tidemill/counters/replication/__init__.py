"""Replication over Arrow Flight: one node's links to its peers, and the server that they call."""
