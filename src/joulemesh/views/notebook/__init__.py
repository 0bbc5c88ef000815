"""What a notebook shows of scenarios, plans, results and comparisons."""
