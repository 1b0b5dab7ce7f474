"""From names and files to weights, vocabularies and formats; nothing here executes what it
loads."""
