"""Several processes: how they join, what they tell one another, and who watches each of them."""
