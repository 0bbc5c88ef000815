"""Views of a run: what a terminal shows of its outcome, and the page that reports it."""
