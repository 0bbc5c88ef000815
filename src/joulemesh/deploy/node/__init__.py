"""The rules of one device: a state machine without network, clock or disk."""
