"""What the journal says, apart from the items: forks, cuts, buckets, the numbers of a log. Pure."""
