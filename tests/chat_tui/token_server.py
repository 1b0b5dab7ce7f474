"""A scripted server that tokenises and takes ids, as vLLM and llama-server do. Anyone can read its
vocabulary: a character's id is its code.

    tokenising = Tokenising("vllm")
    with SseServer(tokenising, VLLM) as server: ...
"""

from __future__ import annotations

import time

from tests.chat_tui.sse_server import Asked, Wire, talk

USER, END, ASSISTANT, SYSTEM = 1, 2, 3, 4
ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM, "tool": 5}
VLLM = {"data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": 400}]}
LLAMA = {"data": [{"id": "tiny", "owned_by": "llamacpp", "meta": {"n_ctx_train": 9999}}]}


def codes(text: str) -> list[int]:
    return [ord(char) for char in text]


def encoded(text: str, *, special: bool) -> list[int]:
    """Characters, and the one special token with a name."""
    parts = text.split("<|end|>") if special else [text]
    ids = codes(parts[0])
    for part in parts[1:]:
        ids += [END, *codes(part)]
    return ids


def rendered(
    messages: list[dict], *, generate: bool, tools: bool = False, declare: str = ""
) -> list[int]:
    """The template of the server. `declare`: how a tool is called in it; it knows none if empty."""
    ids: list[int] = [SYSTEM, *codes("Tools."), END, ord("\n")] if tools and declare else []
    for message in messages:
        text = message["content"]
        for call in message.get("tool_calls", ()):
            function = call["function"]
            written = f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}'
            text += f"<{declare}>{written}</{declare}>"
        if message["role"] == "tool":
            text = f"<tool_response>{text}</tool_response>"
        ids += [ROLES[message["role"]], *encoded(text, special=True), END, ord("\n")]
    return [*ids, ASSISTANT] if generate else ids


YES = [*codes("Yes"), END]


class Tokenising:
    """A server that answers "Yes" and its stop token, to whatever ids it is given.

    Attributes:
        kind: "vllm" or "llamacpp".
        pause: between two tokens, in seconds.
        prompts: the ids that it was asked to go on from.
        says: other ids to answer with, by how the prompt ends; then it holds the connection open
            where they do not end the answer.
        declare: see `rendered`.
        logprobs: what else there could have been, by its text.
        tells_ids: False: it is an old vLLM.
    """

    def __init__(self, kind: str, declare: str = "", pause: float = 0.0) -> None:
        self.kind = kind
        self.pause = pause
        self.declare = declare
        self.prompts: list[list[int]] = []
        self.bodies: list[dict] = []
        self.says: dict[str, list[int]] = {}
        self.logprobs: dict[str, float] = {}
        self.tells_ids = True

    def __call__(self, asked: Asked, wire: Wire) -> None:
        body = asked.body
        match asked.path:
            case "/apply-template":
                messages = body["messages"]
                ids = self._rendered(body)
                if messages[-1]["role"] == "assistant":  # an answer to be gone on with
                    ids = ids[: -1 - len([END, "newline"])]
                wire.json(200, {"prompt": "".join(map(chr, ids)).replace(chr(END), "<|end|>")})
            case "/tokenize" if "messages" in body:
                wire.json(200, {"tokens": self._rendered(body)})
            case "/tokenize":
                text = body.get("prompt") or body.get("content", "")
                wire.json(200, {"tokens": encoded(text, special=body.get("parse_special", True))})
            case "/detokenize":
                text = "".join(map(chr, body["tokens"])).replace(chr(END), "<|end|>")
                wire.json(200, {"prompt" if self.kind == "vllm" else "content": text})
            case "/v1/completions":
                self.prompts.append(body["prompt"])
                self.bodies.append(body)
                self._complete(body, wire)
            case _ if "tools" in body and self.kind == "vllm":
                wire.json(400, {"error": {"message": '"auto" tool choice needs a parser'}})
            case _:
                talk("As text")(asked, wire)

    def _rendered(self, body: dict) -> list[int]:
        return rendered(
            body["messages"],
            generate=body["add_generation_prompt"],
            tools="tools" in body,
            declare=self.declare,
        )

    def _complete(self, body: dict, wire: Wire) -> None:
        wire.start()
        ending = "".join(map(chr, body["prompt"]))
        answers = [YES] * body.get("n", 1)
        for end, ids in self.says.items():
            if ending.endswith(end):
                answers[0] = ids
        for place in range(max(map(len, answers))):
            for index, ids in enumerate(answers):
                if place < len(ids):
                    wire.event({"choices": [self._choice(body, ids[place], index)]})
            time.sleep(self.pause)
        if any(ids[-1] != END for ids in answers):
            wire.hold()
        wire.done()

    def _choice(self, body: dict, token: int, index: int) -> dict:
        text = chr(token) if token != END else ""
        choice: dict = {"index": index, "text": text}
        choice["finish_reason"] = "stop" if token == END else None
        if self.kind == "vllm":
            assert body["return_token_ids"] is True
            if self.tells_ids:
                choice["token_ids"] = [token]
            if self.logprobs:
                name = text or "<|end|>"
                own = self.logprobs.get(name, -9.0)
                tops = {name: own, **self.logprobs}
                choice["logprobs"] = {
                    "tokens": [name],
                    "token_logprobs": [own],
                    "top_logprobs": [tops],
                }
        else:
            entry = {"id": token, "token": text, "bytes": codes(text), "logprob": -0.1}
            choice["logprobs"] = {"content": [entry]}
        return choice
