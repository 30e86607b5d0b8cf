"""The asyncio twins."""
