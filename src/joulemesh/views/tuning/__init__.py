"""What tuning found, as a table for a terminal and as a page."""
