"""Rows of many processes that become one operation: staged beside the journal, then committed."""
