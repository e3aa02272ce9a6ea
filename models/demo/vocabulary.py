"""The demo model's byte-level tokenizer, with ERNIE's special tokens and chat template."""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SIZE = 4096
SPECIAL_TOKENS = ("<unk>", "<|begin_of_sentence|>", "<|end_of_sentence|>")
PAD, BOS, EOS = range(3)
# Role marks, line ends, digits and Chinese characters stand alone: a prompt and its answer never share a token, and
# a Chinese question reads the same whatever stands beside it.
WORDS = (
    r"User: |Assistant: |\n|\p{Han}|\p{N}| ?(?:(?!\p{Han})[\p{L}\p{M}])+| ?[!-/:-@\[-`{-~]+|[^\s\p{L}\p{M}\p{N}]"
    r"|[^\S\n]+(?!\S)|[^\S\n]+"
)
CHAT_TEMPLATE = """\
{{- '<|begin_of_sentence|>' -}}
{%- for message in messages -%}
    {%- set text = message['content'] or '' -%}
    {%- if message['role'] == 'system' -%}
        {{- text + '\\n' -}}
    {%- elif message['role'] == 'user' -%}
        {{- 'User: ' + text + '\\n' -}}
    {%- elif message['role'] == 'assistant' -%}
        {{- 'Assistant: ' + text + '<|end_of_sentence|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt is not defined or add_generation_prompt -%}
    {{- 'Assistant: ' -}}
{%- endif -%}
"""


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Return a byte-pair tokenizer of `SIZE` tokens learnt from `texts`; it can spell every text by bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    bos = SPECIAL_TOKENS[BOS]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, BOS)]
    )
    return tokenizer


def with_chat_template(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Return the tokenizer as transformers and vLLM load it."""
    unknown, bos, eos = SPECIAL_TOKENS
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=unknown,
        pad_token=unknown,
        bos_token=bos,
        eos_token=eos,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
