"""What lies in a folder, as bytes and as values: records, tables of frames, documents, settings."""
