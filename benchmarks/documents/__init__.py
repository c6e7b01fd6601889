"""What the documents show of results/ and of the code: tables, quotes and plots."""
