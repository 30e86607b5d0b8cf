"""Faults on purpose: what crashes, failing disks and flipped bits do to a folder, and the judge."""
