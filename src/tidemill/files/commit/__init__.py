"""The way in: from rows to operations, and from operations that wait together to one write."""
