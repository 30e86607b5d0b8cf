"""HTTP: the parts that every service of the package has in front, and the services."""
