"""The operator's command: brings the stack up, shows it, takes it down. Talks to Docker or to supervisord."""
