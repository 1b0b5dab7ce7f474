"""Screens and dialogs that lie over the chat."""
