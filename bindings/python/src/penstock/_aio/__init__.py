"""Channels and calls on an event loop of asyncio."""
