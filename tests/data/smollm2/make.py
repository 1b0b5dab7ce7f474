"""What `transformers` computes with the weights of SmolLM2-135M-Instruct as they are in the shipped
GGUF file, read and dequantised by the `gguf` package: `logits.npz`.

    python tests/data/smollm2/make.py FILE.gguf

Of each text's logits at every position: `columns`, every 64th of the vocabulary (768 embeddings
that span all 576 dimensions: with them the last hidden state is known); `sums` over 256 columns
each, so that none of the others can be wrong unnoticed; and the likeliest token, `best`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

TEXTS = (
    "Once upon a time, in a village by the sea, there lived",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "The three laws of thermodynamics say that energy",
)
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def reference(path: Path) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        weight = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        weight = weight.reshape([int(size) for size in reversed(tensor.shape)])
        if tensor.name == "token_embd.weight":
            state["model.embed_tokens.weight"] = weight
        elif tensor.name == "output_norm.weight":
            state["model.norm.weight"] = weight
        else:
            _, layer, name, _ = tensor.name.split(".")
            if name in ("attn_q", "attn_k"):  # adjacent pairs to halves, as transformers turns them
                weight = weight.unflatten(0, (-1, 32, 2)).transpose(1, 2).flatten(0, 2)
            state[f"model.layers.{layer}.{NAMES[name]}.weight"] = weight
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model.eval()


def main() -> None:
    path = Path(sys.argv[1])
    model = reference(path)
    embeddings = model.lm_head.weight.detach()
    assert torch.linalg.matrix_rank(embeddings[::64]) == embeddings.shape[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    arrays: dict[str, np.ndarray] = {"transformers": np.array(transformers.__version__)}
    for index, text in enumerate(TEXTS):
        tokens = tokenizer.encode(text, add_special_tokens=False)
        with torch.inference_mode():
            logits = model(torch.tensor([tokens])).logits[0]
        arrays[f"text{index}"] = np.array(text)
        arrays[f"tokens{index}"] = np.array(tokens)
        arrays[f"columns{index}"] = logits[:, ::64].numpy()
        arrays[f"sums{index}"] = logits.double().unflatten(1, (192, 256)).sum(-1).float().numpy()
        arrays[f"best{index}"] = logits.argmax(-1).numpy()
    np.savez_compressed(Path(__file__).with_name("logits.npz"), **arrays)


if __name__ == "__main__":
    main()
