"""Replicated counters."""
