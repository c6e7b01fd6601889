"""What several verbs take: options, words that name evaluations, and what a shell proposes."""
