"""Benchmarks: run by `make bench`, never by the tests. Every figure is printed beside its limits."""
