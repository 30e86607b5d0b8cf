"""The log: dense numbers, one publisher, independent consumers.

contract   what a store must do to hold a log
memory     the reference: a log in this process
"""
