"""What was judged before is judged anew: sources of the database, and bundles with what they claim."""
