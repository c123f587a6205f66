"""Channels and runtimes, with their resolvers, pickers and watches."""
