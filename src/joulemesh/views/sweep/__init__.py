"""Views of a sweep: a table for a terminal, a figure for print, a page."""
