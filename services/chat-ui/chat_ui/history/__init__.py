"""Conversations that outlive the page: where they are kept, how they come back, how they are taken along."""
