"""Reading a folder beside its owner: followers, snapshots, and what other processes are told."""
