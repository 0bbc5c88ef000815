"""What a paper takes over: figures at a column's width, LaTeX tables, methods, references."""
