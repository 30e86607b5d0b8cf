"""Which frames there are: in memory for the active segment, in summaries for the others."""
