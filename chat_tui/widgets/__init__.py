"""The pieces of the screen.

Each owns its bindings and its default style; they talk through typed messages.
"""
