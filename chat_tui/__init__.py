"""A terminal chat for small language models: conversations, keys and screens.

The engine is the `engine` package.
"""

__version__ = "0.1.0"
