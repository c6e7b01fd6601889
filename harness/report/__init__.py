"""Results for people and programs, one format a file; nothing here sees more than harness.verdict."""
