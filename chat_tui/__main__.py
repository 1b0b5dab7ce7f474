"""The command `chat-tui`, and `python -m chat_tui`.

What is imported does not become garbage: nobody looks for any until the first frame is there, or
until it is clear that none will come (8 of 210 ms of `--help`).
"""

import gc


def main() -> None:
    gc.disable()
    from chat_tui.cli import main

    main()


if __name__ == "__main__":
    main()
