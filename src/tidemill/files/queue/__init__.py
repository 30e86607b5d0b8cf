"""The public face: the priority queue, its forks, reads and consumers."""
