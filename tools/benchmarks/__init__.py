"""The benchmarks of tools/bench: what is measured (`recording`, `analysis`, `hardware`), comparisons of two revisions, and the page of figures."""
