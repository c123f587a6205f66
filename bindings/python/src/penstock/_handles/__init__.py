"""Python objects for the handles of C, and what all layers share: errors, metadata, statuses, replies, contexts."""
