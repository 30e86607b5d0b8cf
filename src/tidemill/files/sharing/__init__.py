"""Who holds what of a folder that processes share: the owner's lock, pins and pointers."""
