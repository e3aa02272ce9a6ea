"""From a command to a served port and to a certain, explained end of it."""
