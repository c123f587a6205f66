"""Calls, and the methods that make them."""
