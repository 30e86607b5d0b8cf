"""Items, batches, frames and schemas."""
