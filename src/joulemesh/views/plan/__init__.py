"""Views of a plan: tables for a terminal, a figure for print, and what both are made from."""
