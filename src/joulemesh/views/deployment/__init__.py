"""A fleet at work and what it did: tables for a terminal, and the page of a deployment."""
