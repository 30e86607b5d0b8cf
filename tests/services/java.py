"""How the JVMs of tests are started."""

# With the quick compiler alone: a quarter less of the processor's time for a session that runs a
# handful of queries.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
