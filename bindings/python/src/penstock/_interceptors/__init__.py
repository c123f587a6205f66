"""Interceptors: what their callbacks get, and how they are registered."""
