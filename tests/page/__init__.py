"""The chat page as a process: many people, slow people, people who go."""
