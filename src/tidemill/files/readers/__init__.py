"""Reading a folder beside its owner: followers, snapshots, and what other processes are told.

follower       follows the owner, from one call to the next
building       what is in a folder as of now
links          its segments, by links of the reader's own
tail           what was appended since
reach          how far the owner has published
snapshot       the items of one moment
kept_snapshot  ... for other processes, for a while
layout         which frames there are, for whoever divides them
listing        the records as they lie on disk
"""
