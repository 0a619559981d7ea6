"""Workloads, benchmarks and results. Not installed; run from a checkout."""
