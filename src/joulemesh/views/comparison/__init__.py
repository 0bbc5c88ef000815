"""Views of a comparison: a table for a terminal, a figure for print, a page."""
