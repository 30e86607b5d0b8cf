"""The ways in from outside Python code: parse, call, render, and nothing else."""
