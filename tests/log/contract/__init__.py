"""What every store of a log must do; run against each of `implementations`."""
