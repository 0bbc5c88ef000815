"""A fleet as folders: what its devices know and share, and who they are."""
