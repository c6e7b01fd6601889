"""Results for people and programs, one format a file. Nothing here judges, and nothing here sees a worker."""
