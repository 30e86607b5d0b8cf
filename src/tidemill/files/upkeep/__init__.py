"""What is done about room, garbage and damage while a queue is used."""
