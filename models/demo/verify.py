"""Measure the trained model: are the known answers exact, and what does it say of anything else."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from conversations import Conversations, Line, Row, read_lines
from prompts import SYSTEM_PROMPTS, Prompts, language, read_held_out, vary
from transformers import AutoTokenizer, Ernie4_5ForCausalLM, PreTrainedTokenizerFast
from vocabulary import PAD

SYSTEMS = (None, *SYSTEM_PROMPTS)
VARIED, THREADS, OTHERS = 2000, 300, 2000
SEED = 2026
TOKENS_A_BATCH = 32_768
NO_SYSTEM = "no system prompt"


@dataclass(frozen=True)
class Judged:
    """One answer of a conversation: would greedy decoding give it, and with what smallest lead in logits."""

    exact: bool
    margin: float


def padded(rows: list[Row]) -> torch.Tensor:
    """Return the ids of `rows`, padded on the right, where causal attention never looks."""
    length = -(-max(len(row.ids) for row in rows) // 64) * 64
    return torch.tensor([row.ids + [PAD] * (length - len(row.ids)) for row in rows])


@torch.no_grad()
def judge(model: Ernie4_5ForCausalLM, rows: list[Row]) -> list[list[Judged]]:
    """Return, row by row, the judgement of every answer, given the exact answers before it."""
    results: dict[int, list[Judged]] = {}
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
    while order:
        longest = len(rows[order[-1]].ids)
        batch, order = order[-max(1, TOKENS_A_BATCH // longest) :], order[: -max(1, TOKENS_A_BATCH // longest)]
        ids = padded([rows[i] for i in batch])
        hidden = model.model(input_ids=ids.to(model.device)).last_hidden_state
        for state, i in zip(hidden, batch, strict=True):
            results[i] = [_judge(model, state, rows[i], first, end) for first, end in rows[i].answers]
    return [results[i] for i in range(len(rows))]


def _judge(model: Ernie4_5ForCausalLM, state: torch.Tensor, row: Row, first: int, end: int) -> Judged:
    logits = model.lm_head(state[first - 1 : end - 1]).float()
    wanted = torch.tensor(row.ids[first:end], device=logits.device)[:, None]
    right = logits.gather(1, wanted)[:, 0]
    best_other = logits.scatter(1, wanted, float("-inf")).amax(1)
    margin = float((right - best_other).min())
    return Judged(exact=margin > 0, margin=margin)


@torch.no_grad()
def generate(
    model: Ernie4_5ForCausalLM, tokenizer: PreTrainedTokenizerFast, chats: list[list[dict[str, str]]], longest: int
) -> list[str]:
    """Return the greedy answers to `chats`, generated as one batch of at most `longest` tokens each."""
    tokenizer.padding_side = "left"
    inputs = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    inputs.pop("token_type_ids", None)
    output = model.generate(**inputs, do_sample=False, max_new_tokens=longest)
    return tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def wrong_answers(model: Ernie4_5ForCausalLM, tokenizer: PreTrainedTokenizerFast, lines: list[Line]) -> list[str]:
    """Ask every known question greedily, without and with the system prompts; return what was not exact."""
    ordered = sorted(lines, key=lambda line: len(line.answer))
    wrong = []
    for at in range(0, len(ordered), 64):
        batch = ordered[at : at + 64]
        longest = max(len(tokenizer.encode(line.answer)) for line in batch) + 8
        for system in SYSTEMS:
            opening = [] if system is None else [{"role": "system", "content": system}]
            answers = generate(model, tokenizer, [opening + line.messages for line in batch], longest)
            wrong += [
                f"{line.question!r} ({system or NO_SYSTEM}): {answer!r}"
                for line, answer in zip(batch, answers, strict=True)
                if answer != line.answer
            ]
    return wrong


def measure(model: Ernie4_5ForCausalLM, conversations: Conversations, prompts: Prompts) -> dict[str, float]:
    """Return the shares of exact answers, and the smallest lead in logits over all known ones."""
    lines, rng = read_lines(), Random(SEED)
    rows = [conversations.exactly(line, system) for line in lines for system in SYSTEMS]
    known = [judged for row in judge(model, rows) for judged in row]

    def asked(question: str, answer: str) -> Row:
        row = conversations.start(rng.choice(SYSTEMS))
        row.hear(conversations.user(question))
        row.say(conversations.answer(answer))
        return row

    def share(rows: list[Row]) -> float:
        judged = [answer.exact for row in judge(model, rows) for answer in row]
        return sum(judged) / len(judged)

    first = [line for line in lines if line.before is None]
    varied = [(vary(line.question, rng), line.answer) for line in rng.choices(first, k=VARIED)]
    others = [prompts.other(rng) for _ in range(OTHERS)]
    return {
        "known": sum(judged.exact for judged in known) / len(known),
        "smallest margin": min(judged.margin for judged in known),
        "varied": share([asked(*pair) for pair in varied]),
        "threads": share([conversations.random(rng, rng.randint(2, 5), 4096) for _ in range(THREADS)]),
        "long threads": share([conversations.random(rng, 60, 4096) for _ in range(16)]),
        "generated others": share([asked(text, conversations.otherwise[language(text)]) for text in others]),
        "held-out others": share([asked(text, conversations.otherwise[language(text)]) for text in read_held_out()]),
    }


def verify(folder: Path) -> bool:
    """Load `folder` in bfloat16, print what was measured, and say whether every known answer was exact."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = Ernie4_5ForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
    lines = read_lines()
    prompts = Prompts([line.question for line in lines], read_held_out())
    conversations = Conversations(tokenizer.backend_tokenizer, lines, prompts)
    for name, value in measure(model, conversations, prompts).items():
        print(f"{name}: {value:.4f}", flush=True)
    wrong = wrong_answers(model, tokenizer, lines)
    for text in wrong[:20]:
        print("wrong:", text)
    asked = len(lines) * len(SYSTEMS)
    print(f"greedy in bfloat16: {asked - len(wrong)} of {asked} answers exact", flush=True)
    return not wrong
