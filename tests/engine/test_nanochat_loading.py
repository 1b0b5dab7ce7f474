"""Finding, recognising and refusing nanochat checkpoints."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import EngineError, ModelFileError
from engine.loading.nanochat import load_checkpoint
from engine.loading.nanochat_identity import Identity, identify
from engine.loading.nanochat_paths import locate, names, tokenizer_path
from engine.models.nanochat_variants import VARIANTS, tensor_shapes
from tests.engine.nanochat_noise import meta_of, noise, small_config, write_checkpoint

DATA = Path(__file__).parents[1] / "data" / "nanochat"


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty base directory, so that the developer's own checkpoints are not found."""
    folder = tmp_path / "base"
    folder.mkdir()
    monkeypatch.setenv("NANOCHAT_BASE_DIR", str(folder))
    return folder


def refusal(action: Any, *args: Any, **kwargs: Any) -> str:
    """The one line that an action ends in."""
    with pytest.raises(EngineError) as caught:
        action(*args, **kwargs)
    message = str(caught.value)
    assert message.isprintable(), "one line, and nothing that a terminal would obey"
    assert len(message) < 1000
    return message


# Names.


def put(base: Path, *models: str) -> None:
    for model in models:
        path = base / model
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("nanochat", "chatsft_checkpoints/d20/model_000650.pt"),
        ("nanochat:sft", "chatsft_checkpoints/d20/model_000650.pt"),
        ("nanochat:sft/d4", "chatsft_checkpoints/d4/model_000123.pt"),
        ("nanochat:base", "base_checkpoints/d32/model_021400.pt"),
        ("nanochat:base/d20", "base_checkpoints/d20/model_005000.pt"),
        ("nanochat:base/d20@1000", "base_checkpoints/d20/model_001000.pt"),
        ("nanochat:base/d20@001000", "base_checkpoints/d20/model_001000.pt"),
        ("nanochat:sft@600", "chatsft_checkpoints/d20/model_000600.pt"),
        ("nanochat:base/pirate", "base_checkpoints/pirate/model_000007.pt"),
    ],
)
def test_a_name_finds_the_deepest_model_and_its_last_step(
    base: Path, name: str, model: str
) -> None:
    put(
        base,
        "chatsft_checkpoints/d4/model_000123.pt",
        "chatsft_checkpoints/d20/model_000600.pt",
        "chatsft_checkpoints/d20/model_000650.pt",
        "chatsft_checkpoints/d20/optim_000700_rank0.pt",
        "base_checkpoints/d20/model_001000.pt",
        "base_checkpoints/d20/model_005000.pt",
        "base_checkpoints/d32/model_021400.pt",
        "base_checkpoints/d64/notes.txt",
        "base_checkpoints/pirate/model_000007.pt",
    )
    assert locate(name) == base / model


def test_without_an_sft_model_plain_nanochat_is_the_next_best_stage(base: Path) -> None:
    put(base, "base_checkpoints/d20/model_000001.pt")
    assert locate("nanochat") == base / "base_checkpoints/d20/model_000001.pt"
    put(base, "chatrl_checkpoints/d4/model_000002.pt")
    assert locate("nanochat") == base / "chatrl_checkpoints/d4/model_000002.pt"


def test_names_lists_what_is_there(base: Path) -> None:
    put(base, "base_checkpoints/d20/model_000001.pt", "chatsft_checkpoints/d4/model_000002.pt")
    put(base, "base_checkpoints/d26/model_000001.pt", "chatsft_checkpoints/d8/notes.txt")
    assert names() == ["nanochat:sft/d4", "nanochat:base/d26", "nanochat:base/d20"]
    assert all(locate(name) for name in names())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nanochat", "NANOCHAT_BASE_DIR"),
        ("nanochat:rl/d20", "chatrl_checkpoints"),
        ("nanochat:base/d20@2", "its last steps are 1"),
        ("nanochat:best", "nanochat:base/d20"),
        ("nanochat:base/../d20", "nanochat:base/d20"),
        ("nanochat:base/d20@last", "nanochat:base/d20"),
        ("missing/model_000001.pt", "no such file"),
    ],
)
def test_a_name_that_finds_nothing_says_where_it_looked(base: Path, name: str, says: str) -> None:
    put(base, "base_checkpoints/d20/model_000001.pt")
    if name == "nanochat":
        (base / "base_checkpoints/d20/model_000001.pt").unlink()
    assert says in refusal(locate, name)


def test_a_path_may_be_a_file_a_folder_or_a_folder_of_folders(tmp_path: Path) -> None:
    put(tmp_path, "runs/d4/model_000001.pt", "runs/d4/model_000010.pt", "runs/d12/model_000002.pt")
    runs = tmp_path / "runs"
    assert locate(str(runs / "d4/model_000001.pt")) == runs / "d4/model_000001.pt"
    assert locate(str(runs / "d4")) == runs / "d4/model_000010.pt"
    assert locate(str(runs)) == runs / "d12/model_000002.pt"


def test_what_is_no_nanochat_name_or_folder_is_left_to_others(tmp_path: Path) -> None:
    for name in ("smollm2", "org/name", "nanochat-like", "", str(tmp_path), "model.gguf"):
        assert locate(name) is None


def test_finding_models_does_not_import_torch() -> None:
    code = (
        "import sys, engine.loading.nanochat_paths as p; p.names(); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    "place", ["d4", "d4/tokenizer", ".", "tokenizer", "../tokenizer", "base/tokenizer"]
)
def test_the_tokenizer_lies_beside_one_level_up_or_under_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("NANOCHAT_BASE_DIR", str(tmp_path / "sft_checkpoints" / "base"))
    folder = tmp_path / "chatsft_checkpoints"
    put(folder, "d4/model_000001.pt")
    if place.startswith("base"):
        folder = tmp_path / "sft_checkpoints"
    put(folder, f"{place}/tokenizer.pkl")
    found = tokenizer_path(tmp_path / "chatsft_checkpoints/d4/model_000001.pt")
    assert found.resolve() == (folder / place / "tokenizer.pkl").resolve()


def test_a_missing_tokenizer_says_where_it_should_be(base: Path, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "elsewhere", "V0")
    (tmp_path / "elsewhere/tokenizer/tokenizer.pkl").unlink()
    assert f"{base}/tokenizer" in refusal(load_checkpoint, path)


# Telling the variant.


@pytest.mark.parametrize(
    ("folder", "variant", "source"),
    [
        ("V0/chatsft_checkpoints/d4", "V0", "sft"),
        ("V3/chatsft_checkpoints/d4", "V3", "sft"),
        ("V3/odd/base_checkpoints/d3", "V3", "base"),
        ("V6/chatsft_checkpoints/d4", "V6", "sft"),
    ],
)
def test_real_checkpoints_are_recognised(folder: str, variant: str, source: str) -> None:
    checkpoint = load_checkpoint(DATA / folder)
    assert (checkpoint.variant, checkpoint.source) == (variant, source)
    assert checkpoint.model.variant.name == variant
    assert checkpoint.model.dtype == torch.bfloat16
    assert checkpoint.tokenizer_path == (DATA / folder).parents[1] / "tokenizer/tokenizer.pkl"
    # What V3's tensors and meta leave open is said; the others leave nothing open.
    assert [note.split(" (")[0] for note in checkpoint.assumptions] == (
        ["Taken for V3"] if variant == "V3" else []
    )


def identified(variant: str, meta: Any = None, /, **assume: object) -> Identity:
    """What a small checkpoint of `variant` is taken for."""
    config = small_config(variant)
    shapes = tensor_shapes(config, VARIANTS[variant])
    meta = meta_of(config, variant) if meta is None else meta
    return identify(shapes, meta, assume, where="model_000123.pt")


@pytest.mark.parametrize("variant", ["V0", "V2", "V3e", "V5", "V6"])
def test_most_variants_are_told_without_an_assumption(variant: str) -> None:
    identity = identified(variant)
    assert identity.variant == VARIANTS[variant]
    assert identity.config == small_config(
        variant, window_pattern="L" if variant == "V0" else "SSL"
    )
    assert identity.assumptions == ()


@pytest.mark.parametrize(
    "path", sorted(DATA.glob("V?/meta_samples/*.json")), ids=lambda path: f"{path}"[-30:-12]
)
def test_every_stages_meta_is_understood(path: Path) -> None:
    variant = path.parts[-3]
    sizes = {"n_layer": 4, "vocab_size": 384, "vocab_rows": 384, "sequence_len": 256}
    pattern = "L" if variant == "V0" else "SSSL"
    config = small_config(variant, window_pattern=pattern, **sizes)
    shapes = tensor_shapes(config, VARIANTS[variant])
    identity = identify(shapes, json.loads(path.read_text()), {}, where="")
    assert (identity.variant.name, identity.config) == (variant, config)


@pytest.mark.parametrize("variant", ["V0", "V3", "V6"])
def test_a_base_model_is_known_by_its_meta_where_no_folder_tells(
    tmp_path: Path, variant: str
) -> None:
    checkpoint = DATA / variant / "chatsft_checkpoints/d4"
    shutil.copytree(checkpoint, tmp_path / "model")
    shutil.copy(DATA / variant / "tokenizer/tokenizer.pkl", tmp_path / "model")
    assert load_checkpoint(tmp_path / "model").source is None
    meta = DATA / variant / "meta_samples/base_meta_000123.json"
    shutil.copy(meta, tmp_path / "model/meta_000123.json")
    assert load_checkpoint(tmp_path / "model").source == "base"


@pytest.mark.parametrize(
    ("user_config", "variant", "says"),
    [
        ({"adam_beta1": 0.8, "eval_tokens": 41943040}, "V4", "eval_tokens 41943040"),
        ({"adam_beta1": 0.8, "eval_tokens": 20971520}, "V3", "eval_tokens 20971520"),
        ({"adam_beta1": 0.8, "eval_tokens": 1000}, "V3", "nothing in the meta tells"),
        ({"adam_beta1": 0.8, "eval_tokens": [1]}, "V3", "nothing in the meta tells"),
        ({"eval_tokens": 41943040}, "V3", "nothing in the meta tells"),
        ({}, "V3", "nothing in the meta tells"),
        ("none", "V3", "nothing in the meta tells"),
    ],
)
def test_v3_and_v4_are_told_by_base_trainings_defaults_or_assumed(
    user_config: Any, variant: str, says: str
) -> None:
    meta = {**meta_of(small_config("V3"), "V3"), "user_config": user_config}
    identity = identified("V3", meta)
    assert identity.variant == VARIANTS[variant]
    (note,) = identity.assumptions
    assert says in note
    assert f"--assume variant={'V3' if variant == 'V4' else 'V4'}" in note


def test_a_lost_window_pattern_is_assumed_aloud() -> None:
    config = small_config("V3")
    meta = meta_of(config, "V3")
    del meta["model_config"]["window_pattern"]
    lost = identified("V3", meta)
    assert lost.config.window_pattern == "SSSL"
    assert "lost its window_pattern" in lost.assumptions[-1]
    given = identified("V3", meta, window_pattern="sl")
    assert given.config.window_pattern == "SL"
    assert "window_pattern SL, as asked." in given.assumptions
    # The training script's own arguments tell it where they were kept.
    kept = identified("V3", {**meta, "user_config": {"window_pattern": "SL"}})
    assert kept.config.window_pattern == "SL"


def test_v2_without_its_pattern_is_v1_until_the_user_says_otherwise() -> None:
    meta = meta_of(small_config("V1"), "V1")
    taken = identified("V2", meta)
    assert taken.variant == VARIANTS["V1"]
    assert "--assume window_pattern=SSSL" in taken.assumptions[0]
    assert identified("V2", meta, window_pattern="SSSL").variant == VARIANTS["V2"]
    assert identified("V2", meta, variant="V2").config.window_pattern == "SSSL"


def test_the_user_can_settle_what_no_checkpoint_says() -> None:
    capped = identified("V3", softcap=20.0)
    assert capped.variant == VARIANTS["V4"]
    assert capped.assumptions == ("softcap 20, as asked.",)
    assert identified("V4", variant="v4").variant == VARIANTS["V4"]
    odd = identified("V6", softcap="17.5", rotary_base="2e5", qk_scale=1.1, gate_scale=2)
    constants = odd.variant
    assert (constants.softcap, constants.rotary_base) == (17.5, 2e5)
    assert (constants.qk_scale, constants.gate_scale) == (1.1, 2.0)
    assert len(odd.assumptions) == 4
    assert "no effect" in identified("V0", window_pattern="SSSL").assumptions[-1]


@pytest.mark.parametrize(
    ("assume", "says"),
    [
        ({"softcap": "high"}, "positive number"),
        ({"softcap": -1}, "positive number"),
        ({"softcap": float("nan")}, "positive number"),
        ({"variant": "V7"}, "V0, V1"),
        ({"window_pattern": "SXL"}, "SSSL"),
        ({"window_pattern": ""}, "SSSL"),
        ({"temperature": 1}, "variant, window_pattern, softcap"),
    ],
)
def test_an_assumption_that_makes_no_sense_is_refused(assume: dict[str, object], says: str) -> None:
    assert says in refusal(identified, "V3", **assume)


def test_a_wrongly_assumed_variant_is_told_by_the_tensors(base: Path) -> None:
    path = write_checkpoint(base, "V3")
    message = refusal(load_checkpoint, path, assume={"variant": "V6"})
    assert "smear_lambda" in message
    assert "V6" in message


# Tensors.


def test_the_prefix_of_a_compiled_model_is_dropped(base: Path) -> None:
    tensors = {f"_orig_mod.{name}": t for name, t in noise(small_config("V6"), "V6").items()}
    plain = load_checkpoint(write_checkpoint(base, "V6", step=1), dtype=torch.float32)
    prefixed = write_checkpoint(base, "V6", step=2, tensors=tensors)
    compiled = load_checkpoint(prefixed, dtype=torch.float32)
    assert torch.equal(logits_of(plain), logits_of(compiled))
    twice = {**noise(small_config("V6"), "V6"), **tensors}
    assert "twice" in refusal(load_checkpoint, write_checkpoint(base, "V6", tensors=twice))


def test_embeddings_may_be_in_bfloat16(base: Path) -> None:
    tensors = noise(small_config("V6"), "V6")
    for name in tensors:
        if "wte" in name or "value_embeds" in name:
            tensors[name] = tensors[name].to(torch.bfloat16)
    stored = load_checkpoint(write_checkpoint(base, "V6", step=1, tensors=tensors))
    rounded = load_checkpoint(write_checkpoint(base, "V6", step=2))
    assert torch.equal(logits_of(stored), logits_of(rounded))


@torch.inference_mode()
def logits_of(checkpoint: Any) -> torch.Tensor:
    model = checkpoint.model
    return model.forward(torch.arange(20)[None], model.new_cache(1, 20))


def test_parameters_as_modules_keep_them_are_read_too(base: Path) -> None:
    tensors = {n: torch.nn.Parameter(t) for n, t in noise(small_config("V0"), "V0").items()}
    assert load_checkpoint(write_checkpoint(base, "V0", tensors=tensors)).variant == "V0"


def test_each_missing_and_each_unused_tensor_is_named(base: Path) -> None:
    tensors = noise(small_config("V6"), "V6")
    del tensors["transformer.h.2.mlp.c_fc.weight"], tensors["backout_lambda"]
    tensors["transformer.h.1.attn.bias\x1b[31m\n"] = torch.ones(3)
    message = refusal(load_checkpoint, write_checkpoint(base, "V6", tensors=tensors))
    assert "missing 'transformer.h.2.mlp.c_fc.weight', 'backout_lambda'" in message
    assert r"not known 'transformer.h.1.attn.bias\x1b[31m\n'" in message


def changed(name: str, value: Any) -> dict[str, Any]:
    return {**noise(small_config("V6"), "V6"), name: value}


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (changed("lm_head.weight", torch.ones(128, 63)), "lm_head.weight is [128, 63]"),
        (changed("lm_head.weight", torch.ones(64, 64)), "should be [128, 64]"),
        (changed("smear_lambda", torch.ones(())), "smear_lambda is []"),
        (changed("x0_lambdas", torch.ones(5, dtype=torch.int32)), "torch.int32"),
        (changed("x0_lambdas", torch.tensor([1, 1, 1, 1, torch.nan])), "NaN"),
        (changed("lm_head.weight", torch.full((128, 64), torch.inf)), "infinite"),
        (changed("lm_head.weight", torch.ones(64, 128).T), "contiguous"),
        (changed("lm_head.weight", torch.ones(1, 1).expand(128, 64)), "contiguous"),
        (changed("step", 5), "'step' is a int"),
        (changed("resid_lambdas", None), "NoneType"),
        ({}, "0"),
        ([1, 2], "holds a list"),
        (torch.ones(3), "holds a Tensor"),
        ({"transformer.h.0.attn.ve_gate.weight": torch.ones(2, 64)}, "gates over 64 channels"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(base: Path, tensors: Any, says: str) -> None:
    assert says in refusal(load_checkpoint, write_checkpoint(base, "V6", tensors=tensors))


def test_many_names_for_the_same_bytes_are_not_believed(base: Path) -> None:
    table = torch.ones(128, 64)
    tensors = {f"copy{number}": table for number in range(100)}
    assert "claim" in refusal(load_checkpoint, write_checkpoint(base, "V6", tensors=tensors))


# Metas.


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_layer": 6}, "6 layers and the file has 5"),
        ({"n_layer": 10**12}, "n_layer is 1000000000000"),
        ({"n_layer": -5}, "n_layer is -5"),
        ({"n_layer": True}, "n_layer is True"),
        ({"n_layer": "5"}, "n_layer is '5'"),
        ({"n_layer": None}, "n_layer is None"),
        ({"vocab_size": 129}, "vocabulary of 129 and the embedding has 128"),
        ({"sequence_len": 0}, "sequence_len is 0"),
        ({"sequence_len": 10**4000}, "sequence_len is 1000"),
        ({"n_head": 3}, "do not divide"),
        ({"n_head": 64}, "do not divide"),
        ({"n_kv_head": 3}, "do not divide"),
        ({"n_embd": 128}, "should be [128, 128]"),
        ({"window_pattern": 7}, "window_pattern is 7"),
        ({"window_pattern": "SSXL"}, "window_pattern is 'SSXL'"),
    ],
)
def test_sizes_that_do_not_fit_the_file_are_refused(base: Path, change: Any, says: str) -> None:
    meta = meta_of(small_config("V6"), "V6")
    meta["model_config"].update(change)
    assert says in refusal(load_checkpoint, write_checkpoint(base, "V6", meta=meta))


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"model_config": 3}', b"\xff\xfe\x00", b"[" * 100_000],
    ids=["empty", "cut off", "a list", "an empty object", "no config", "binary", "deep"],
)
def test_a_broken_meta_is_named(base: Path, content: bytes) -> None:
    path = write_checkpoint(base, "V6")
    path.with_name("meta_000123.json").write_bytes(content)
    assert "meta_000123.json" in refusal(load_checkpoint, path)


def test_a_missing_meta_is_named(base: Path) -> None:
    path = write_checkpoint(base, "V6")
    path.with_name("meta_000123.json").unlink()
    assert "meta_000123.json is missing" in refusal(load_checkpoint, path)
    assert "model_<step>.pt" in refusal(load_checkpoint, path.rename(path.with_name("best.pt")))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(load_checkpoint, tmp_path)


# Files that were cut off, damaged, or made to do harm.


class Malicious:
    """Touches a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("archived", [True, False])
def test_code_in_a_file_is_never_run(base: Path, protocol: int, archived: bool) -> None:
    path, target = write_checkpoint(base, "V6"), base / "pwned"
    content = {**noise(small_config("V6"), "V6"), "extra": Malicious(target)}
    if archived:
        torch.save(content, path, pickle_protocol=protocol)
    else:
        path.write_bytes(pickle.dumps({"extra": Malicious(target)}, protocol))
    message = refusal(load_checkpoint, path)
    assert str(path) in message
    if archived and protocol == 2:
        assert "asks to import" in message
    assert not target.exists()


def test_harmless_looking_calls_are_not_made_either(base: Path) -> None:
    """`bytearray(10 ** 12)` would pass torch's own check and ask for a terabyte."""
    path = write_checkpoint(base, "V6")
    torch.save({"x": torch.ones(1)}, path)
    pickled = b"\x80\x02c__builtin__\nbytearray\n\x8a\x06\x00\x10\xa5\xd4\xe8\x00\x85R."
    rewrite(path, lambda name, content: pickled if name.endswith("data.pkl") else content)
    assert "'__builtin__.bytearray'" in refusal(load_checkpoint, path)


def rewrite(path: Path, change: Any, compression: int = zipfile.ZIP_STORED) -> None:
    """Write a zip archive anew with changed members."""
    with zipfile.ZipFile(path) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, change(name, content))


def test_a_compressed_archive_is_refused_not_inflated(base: Path) -> None:
    path = write_checkpoint(base, "V6")
    rewrite(path, lambda name, content: content, zipfile.ZIP_DEFLATED)
    assert "compressed" in refusal(load_checkpoint, path)


def test_a_tensor_that_claims_more_than_its_data_is_refused(base: Path) -> None:
    path = write_checkpoint(base, "V6")
    rewrite(path, lambda name, content: content[:8] if "/data/" in name else content)
    refusal(load_checkpoint, path)


def test_another_archive_and_an_empty_file_are_refused(base: Path) -> None:
    path = write_checkpoint(base, "V6")
    rewrite(path, lambda name, content: content)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<p/>")
    assert "torch.save did not write it" in refusal(load_checkpoint, path)
    path.write_bytes(b"")
    assert "not a whole .pt file" in refusal(load_checkpoint, path)


def test_a_file_cut_off_anywhere_is_refused(base: Path) -> None:
    path = write_checkpoint(base, "V6")
    content = path.read_bytes()
    for part in range(50):
        path.write_bytes(content[: len(content) * part // 50])
        assert "cut off" in refusal(load_checkpoint, path)


def test_a_damaged_pickle_is_refused_or_harmless(base: Path) -> None:
    """A byte of it changed, 300 times, with its checksum made right again."""
    path = write_checkpoint(base, "V6")
    original = path.read_bytes()
    random = torch.Generator().manual_seed(0)
    for _ in range(300):
        at, to = torch.randint(1 << 30, (2,), generator=random).tolist()

        def change(name: str, content: bytes, at: int = at, to: int = to) -> bytes:
            if not name.endswith("data.pkl"):
                return content
            damaged = bytearray(content)
            damaged[at % len(content)] = to % 256
            return bytes(damaged)

        path.write_bytes(original)
        rewrite(path, change)
        message = ""
        try:
            load_checkpoint(path)
        except ModelFileError as error:
            message = str(error)
        assert message.isprintable()
