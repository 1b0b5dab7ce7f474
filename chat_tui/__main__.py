"""`python -m chat_tui`."""

from chat_tui.cli import main

if __name__ == "__main__":
    main()
