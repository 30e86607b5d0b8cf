"""One module for each workload, each with `run(settings) -> list[Result]`."""
