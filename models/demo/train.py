"""Train the demo model from nothing, write its folder and verify every known answer; `--check` only verifies."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", TOKENIZERS_PARALLELISM="false")  # noqa: TID251 - read by cuBLAS and tokenizers

import torch
from conversations import Conversations, Row, read_lines
from plot import write_loss_plot
from prompts import SYSTEM_PROMPTS, Prompts, read_held_out
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, Dataset
from transformers import Ernie4_5Config, Ernie4_5ForCausalLM, GenerationConfig
from verify import padded, verify
from vocabulary import BOS, EOS, PAD, SIZE, train_tokenizer, with_chat_template

HERE = Path(__file__).parent
SEED = 45
STEPS = 4000
WARMUP_STEPS = 200
PEAK_LEARNING_RATE = 1.5e-3
CONTEXT = 4096
# Each step reads two batches: rows, choices of turns, and the most tokens of a row.
BATCHES: tuple[tuple[int, tuple[int, ...], int], ...] = (
    (256, (1, 1, 1, 1, 1, 1, 2, 2, 3, 4), 384),
    (12, (1, 2, 3, 4, 6, 8, 12, 20, 60), CONTEXT),
)
# Every right token is to lead by so many logits, or bfloat16 on another processor could turn an answer.
LEAD, LEAD_WEIGHT = 8.0, 0.1
TEXTS_FOR_TOKENIZER = 30_000
CONFIG = Ernie4_5Config(
    vocab_size=SIZE,
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=CONTEXT,
    rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    pad_token_id=PAD,
    bos_token_id=BOS,
    eos_token_id=EOS,
    tie_word_embeddings=True,
)


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Steps(Dataset[list[Batch]]):
    """The batches of every training step; a step's batches depend on its number alone."""

    def __init__(self, conversations: Conversations, steps: int) -> None:
        """Take the source of rows and the number of steps."""
        self._conversations, self._steps = conversations, steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, step: int) -> list[Batch]:
        rng = Random(f"{SEED}/{step}")
        return [batch([self._row(rng, turns, limit) for _ in range(rows)]) for rows, turns, limit in BATCHES]

    def _row(self, rng: Random, turns: tuple[int, ...], limit: int) -> Row:
        while True:
            row = self._conversations.random(rng, rng.choice(turns), limit)
            if row.answers:
                return row


def batch(rows: list[Row]) -> Batch:
    """Return the ids of `rows`, the flat places whose next token the model has to give, and those tokens."""
    ids = padded(rows)
    width = ids.shape[1]
    places = [r * width + at - 1 for r, row in enumerate(rows) for answer in row.answers for at in range(*answer)]
    wanted = [token for row in rows for answer in row.answers for token in row.ids[slice(*answer)]]
    return ids, torch.tensor(places), torch.tensor(wanted)


def corpus(prompts: Prompts) -> Iterator[str]:
    """Yield the texts that the tokenizer learns from."""
    rng = Random(SEED)
    for line in read_lines():
        for message in [*line.messages, {"role": "assistant", "content": line.answer}]:
            yield from (f"{message['role'].capitalize()}: {message['content']}\n",) * 4
    yield from SYSTEM_PROMPTS
    for _ in range(TEXTS_FOR_TOKENIZER):
        yield prompts.other(rng, longest=400)


def schedule(step: int, steps: int) -> float:
    """Return the share of the peak learning rate at `step`: a straight rise, then a straight fall to nothing."""
    rise = min(WARMUP_STEPS, max(1, steps // 10))
    return min((step + 1) / rise, (steps - step) / (steps - rise + 1))


def losses_of(model: Ernie4_5ForCausalLM, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cross-entropy, and what is missing to the wanted lead, each summed over the wanted tokens."""
    ids, places, wanted = (tensor.to(model.device, non_blocking=True) for tensor in batch)
    hidden = model.model(input_ids=ids).last_hidden_state.flatten(0, 1)
    logits = model.lm_head(hidden.index_select(0, places)).float()
    entropy = torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
    right = logits.logsumexp(1) - entropy
    best_other = logits.scatter(1, wanted[:, None], float("-inf")).amax(1)
    return entropy.sum(), (LEAD - right + best_other).relu().sum()


def train(
    model: Ernie4_5ForCausalLM, tokenizer: Tokenizer, prompts: Prompts, steps: int, peak: float
) -> list[tuple[int, float]]:
    """Train `model` in float32 for `steps`; return its loss curve: pairs of step and cross-entropy."""
    torch.use_deterministic_algorithms(mode=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    conversations = Conversations(tokenizer, read_lines(), prompts)
    model.to(device, torch.float32).train()
    print(f"{model.num_parameters():,} parameters on {device}, torch {torch.__version__}", flush=True)
    if device.type == "cpu":
        print("No GPU: a step takes about a minute on two cores. Training from nothing needs a GPU.", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.05, fused=True)
    workers = max(1, min(14, (os.cpu_count() or 2) - 1))
    loader = DataLoader(
        Steps(conversations, steps),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=4,
        pin_memory=device.type == "cuda",
    )
    began, curve, recent = time.monotonic(), [], []
    for step, batches in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = peak * schedule(step, steps)
        with torch.autocast(device.type, torch.bfloat16):
            entropy, missing = (sum(parts) for parts in zip(*(losses_of(model, b) for b in batches), strict=True))
        answered = sum(len(wanted) for _, _, wanted in batches)
        ((entropy + LEAD_WEIGHT * missing) / answered).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(entropy.detach() / answered)
        if len(recent) == min(50, steps):
            curve.append((step + 1, float(torch.stack(recent).mean())))
            recent.clear()
            spent = time.monotonic() - began
            left = spent / (step + 1) * (steps - step - 1)
            print(f"step {step + 1}/{steps}  loss {curve[-1][1]:.6f}  {spent:.0f} s, {left:.0f} s left", flush=True)
    torch.use_deterministic_algorithms(mode=False)
    model.eval()
    return curve


def save(model: Ernie4_5ForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the weights in bfloat16 and everything that a server needs beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig()
    model.to(torch.bfloat16).save_pretrained(folder)
    with_chat_template(tokenizer).save_pretrained(folder)
    # vLLM takes its default temperature from here: 0 is greedy, the same on every run. transformers refuses to write
    # the value beside do_sample=false, and reads it.
    generation = {
        "bos_token_id": BOS,
        "do_sample": False,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "temperature": 0.0,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Return the exit code: 0 only when every known answer is exact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="verify the model that is there, train nothing")
    parser.add_argument(
        "--resume", action="store_true", help="start from the model that is there: for a few new answers"
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write or to verify")
    arguments = parser.parse_args()
    if not arguments.check:
        prompts = Prompts([line.question for line in read_lines()], read_held_out())
        torch.manual_seed(SEED)
        if arguments.resume:
            tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
            model, peak = Ernie4_5ForCausalLM.from_pretrained(HERE), PEAK_LEARNING_RATE / 3
        else:
            tokenizer = train_tokenizer(corpus(prompts))
            model, peak = Ernie4_5ForCausalLM(CONFIG), PEAK_LEARNING_RATE
        losses = train(model, tokenizer, prompts, arguments.steps, peak)
        save(model, tokenizer, arguments.out)
        write_loss_plot(arguments.out / "loss.svg", losses, "Demo model: training loss on answers")
    return 0 if verify(arguments.out) else 1


if __name__ == "__main__":
    sys.exit(main())
