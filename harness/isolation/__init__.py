"""Starting workers, and what they can reach and leave behind."""
