"""What the harness keeps on disk: how much that may be, and what is said when there is no room."""
