"""Where answers come from: `local` is the engine in a process of its own."""
