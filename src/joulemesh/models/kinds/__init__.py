"""The built-in models: their arithmetic, without JAX, and how each is built."""
