"""Tools as a model's own template declares and calls them, against `apply_chat_template` and in
the engine's loop."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tokenizers import models, pre_tokenizers

from engine import LoadedModel
from engine.byte_level import SPLITTERS, BytePairTokenizer
from engine.chat_format import CALCULATOR, TemplateFormat, Turn
from engine.kv_cache import KVCache
from engine.messages import ToolCall
from engine.models.base import Shape
from engine.prompt import build_prompt
from engine.rows import RowState
from engine.tools import NO_VALUE, JsonTools, NotationTools, dialect_for

SPECIAL = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]

# In the style of Qwen 2.5.
QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}
    {%- else %}{{- 'You are helpful.' }}{%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools>\\n\\nCall: <tool_call>\\n{\\"name\\": <name>}\\n</tool_call><|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "system" and loop.first %}
    {%- elif message.role == "assistant" and message.tool_calls %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {%- set tool_call = tool_call.function %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
        {{- '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
OTHER_WAY = QWEN.replace("tool_call>", "function_call>")
NAMES = {"eos_token": "<|im_end|>"}


@pytest.fixture(scope="module")
def tokenizer() -> BytePairTokenizer:
    """Bytes, and special tokens behind them."""
    singles = [bytes([byte]) for byte in range(256)]
    tokens = [*singles, *(name.encode() for name in SPECIAL)]
    special = {name: 256 + at for at, name in enumerate(SPECIAL)}
    ranks = {token: rank for rank, token in enumerate(singles)}
    return BytePairTokenizer(tokens, ranks, special, SPLITTERS["qwen2"])


@pytest.fixture(scope="module")
def format(tokenizer: BytePairTokenizer) -> TemplateFormat:
    return TemplateFormat(tokenizer, QWEN, NAMES)


def transformed(messages: list[dict[str, Any]], tools: bool) -> str:
    """What transformers makes of a conversation."""
    alphabet = {piece: id for id, piece in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    library = tokenizers.Tokenizer(models.BPE(alphabet, []))
    reference = transformers.PreTrainedTokenizerFast(tokenizer_object=library)
    text = reference.apply_chat_template(
        messages,
        tools=[CALCULATOR] if tools else None,
        chat_template=QWEN,
        tokenize=False,
        add_generation_prompt=True,
    )
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("system", [None, "Be brief."])
@pytest.mark.parametrize("tools", [True, False])
def test_the_calculator_is_declared_as_transformers_does(format, tokenizer, system, tools) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages += [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "What is 12*7?"},
    ]
    past = [Turn("Hello", tokenizer.encode("Hi."))]
    ids = format.render(past, "What is 12*7?", system, tools=tools)
    assert tokenizer.decode(ids) == transformed(messages, tools)


def test_a_declared_mark_is_the_token_and_a_typed_one_is_text(format, tokenizer) -> None:
    mark = tokenizer.special("<tool_call>")
    ids = format.render([], "<tool_call>", None, tools=True)
    assert ids.count(mark) == 1


class Silent:
    """Computes nothing: the sampler says what is sampled."""

    shape = Shape(1, 1, 1, 1, 1, 260, 8192)
    device = torch.device("cpu")
    dtype = torch.float32

    def new_cache(self, batch: int, seq: int) -> KVCache:
        return KVCache(1, batch, seq, 1, 1)

    def forward(self, ids: torch.Tensor, cache: KVCache, **_: Any) -> torch.Tensor:
        cache.advance(ids.size(1))
        return torch.zeros(ids.size(0), 260)


def loaded_with(format: TemplateFormat, tokenizer: BytePairTokenizer) -> LoadedModel:
    dialect = dialect_for(tokenizer, format.layout.tools)
    return LoadedModel(Silent(), tokenizer, format, dialect, None)  # type: ignore[arg-type]


def answer(
    format: TemplateFormat, tokenizer: BytePairTokenizer, said: str
) -> tuple[str, list[int], list[ToolCall]]:
    """The row's text, masks and calls when the model says `said`, and then ends its turn."""
    script = tokenizer.encode_mixed(tokenizer.split_specials(said + "<|im_end|>"))
    row = RowState(
        0,
        tokenizer,
        dialect_for(tokenizer, format.layout.tools).reader(),
        format.stop_tokens,
    )
    text = ""
    while row.finish_reason is None:
        # What is sampled while tokens are forced is dropped.
        text += row.push(0 if row.forced_tokens else script.pop(0)).text
    return text, row.masks, row._tools.calls


CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "123*456"}}\n</tool_call>'


def test_a_call_is_answered_in_the_form_of_the_template(format, tokenizer) -> None:
    text, masks, calls = answer(format, tokenizer, CALL + "It is 56088.")
    called = {
        "type": "function",
        "function": {"name": "calculator", "arguments": {"expression": "123*456"}},
    }
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "content": "56088"},
    ]
    whole = transformed(messages, tools=True)
    # Behind the user's message and the answer's opening.
    expected = whole.partition("?<|im_end|>\n<|im_start|>assistant\n")[2]
    assert text == expected + "It is 56088."
    (call,) = calls
    assert (call.expression, call.result, call.done) == ("123*456", "56088", True)
    assert text[call.start : call.end] == expected
    # The end of the turn inside the call was forced and does not end the row.
    assert masks.count(0) == len(
        tokenizer.encode_mixed(tokenizer.split_specials(expected.partition("</tool_call>")[2]))
    )
    assert masks[-1] == 1


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ('{"name": "calculator", "arguments": {"expression": "15% of"}}', None),
        ('{"name": "search", "arguments": {"expression": "1+1"}}', None),
        ("{not json", None),
        ("[1]", None),
        ('{"name": "calculator", "arguments": "{\\"expression\\": \\"1+1\\"}"}', "2"),
        ('{"name": "calculator", "arguments": {"expression": "\\"abba\\".count(\\"b\\")"}}', "2"),
    ],
)
def test_what_is_no_calculation_is_answered_too(
    format, tokenizer, said: str, result: str | None
) -> None:
    text, _, (call,) = answer(format, tokenizer, f"<tool_call>{said}</tool_call>Well.")
    assert call.result == result
    assert call.done
    assert text.endswith("Well.")
    assert (NO_VALUE if result is None else f"\n{result}\n") in text


def test_a_mark_that_begins_nothing_is_given_up(format, tokenizer) -> None:
    text, masks, (call,) = answer(format, tokenizer, "<tool_call>" + "a" * 3000)
    assert 0 not in masks
    assert call.start == call.end
    assert call.done
    assert len(text) > 3000


def test_two_calls_in_one_answer(format, tokenizer) -> None:
    second = CALL.replace("123*456", "2+2")
    _, _, calls = answer(format, tokenizer, f"First {CALL} then {second} done")
    assert [call.result for call in calls] == ["56088", "4"]


def test_templates_of_other_kinds_fall_back_to_the_notation(tokenizer) -> None:
    for template in (OTHER_WAY, QWEN.replace("if tools", "if false")):
        layout = TemplateFormat(tokenizer, template, NAMES).layout
        assert isinstance(dialect_for(tokenizer, layout.tools), NotationTools)


def test_the_prompt_declares_tools_only_where_they_are_wanted(format, tokenizer) -> None:
    loaded = loaded_with(format, tokenizer)
    assert isinstance(loaded.tools, JsonTools)
    with_tools = build_prompt(loaded, [], "Hello")
    without = build_prompt(loaded, [], "Hello", tools=False)
    assert "calculator" in tokenizer.decode(with_tools.tokens)
    assert "calculator" not in tokenizer.decode(without.tokens)
    assert with_tools.preface > without.preface
