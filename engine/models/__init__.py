"""The networks: `llama` (Llama, SmolLM2 and their kin) and `nanochat` (every published variant)."""
