"""The gateway: what it says of the engines, its own warnings, and what a question through it brought."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight

_TRIAL = (Source.READINESS, Source.GATEWAY)
_ANSWER = (Source.ANSWER,)
_MODEL = "Check ENGINE_MODEL and its revision, fetch the weights again, and leave ENGINE_DTYPE at auto."

SIGNATURES = (
    Signature(
        "answers-empty",
        Trouble.ANSWERS,
        (*_ANSWER, *_TRIAL),
        re.compile(r"a generation's text was empty|the answer was empty"),
        "The engine answers with nothing: mostly a wrong end-of-text token.",
        f"Fetch tokenizer and generation_config.json of the same revision as the weights. {_MODEL}",
    ),
    Signature(
        "answers-broken-characters",
        Trouble.ANSWERS,
        (*_ANSWER, *_TRIAL),
        re.compile(r"held U\+FFFD: broken characters"),
        "The engine's text holds broken characters: the tokenizer is not the one of these weights.",
        "Fetch the tokenizer's files of the same revision as the weights.",
    ),
    Signature(
        "answers-special-tokens",
        Trouble.ANSWERS,
        (*_ANSWER, *_TRIAL),
        re.compile(r"held special tokens"),
        "The engine's text holds marks of the chat template: template and tokenizer are not of one model.",
        "Fetch tokenizer_config.json and the chat template of the same revision as the weights.",
    ),
    Signature(
        "answers-endless",
        Trouble.ANSWERS,
        (*_ANSWER, *_TRIAL),
        re.compile(r"repeated itself without end"),
        "The engine repeats itself without end: damaged weights, a wrong number type, or no end-of-text token.",
        f"{_MODEL} Without ENGINE_QUANTIZATION and ENGINE_KV_CACHE_DTYPE=fp8 first.",
    ),
    Signature(
        "answers-cut",
        Trouble.ANSWERS,
        (*_ANSWER, *_TRIAL),
        re.compile(r"ended without a finish reason|the answer broke off"),
        "An answer ended before its end.",
        "The engine failed while it answered: its log says why; make doctor again right after it.",
    ),
    Signature(
        "answers-refused-by-engine",
        Trouble.ANSWERS,
        _TRIAL,
        re.compile(r"a generation was answered with status (?P<status>\d+)"),
        "The engine answers a plain question with the status {status}.",
        "Its log names the reason; often a chat template that does not parse, or ENGINE_EXTRA_ARGS.",
    ),
    Signature(
        "answers-slow",
        Trouble.SPEED,
        _ANSWER,
        re.compile(r"the answer took (?P<seconds>[\d.]+) s, which is slow"),
        "A short answer took {seconds} s.",
        "Without a card that is so under load. With one: ENGINE_EAGER must not be on; see card-hot; make status shows "
        "how many wait; ENGINE_REPLICAS adds engines.",
    ),
    Signature(
        "limited",
        Trouble.SPEED,
        _ANSWER,
        re.compile(r"the answer was 429 (?P<code>\w+)"),
        "This client has used up its share for now ({code}).",
        "Wait a minute; or raise GATEWAY_RATE_LIMIT_REQUESTS; or give whoever needs more a key with a tier of its own.",
    ),
    Signature(
        "engine-stalled",
        Trouble.SPEED,
        (Source.READINESS,),
        re.compile(r"engine (?P<engine>\S+) is stalled"),
        "The engine {engine} has work, computes nothing, and does not answer a probe.",
        "The launcher ends it after ENGINE_STALL_SECONDS; on a CPU with long prompts raise GATEWAY_STALL_SECONDS.",
    ),
    Signature(
        "engine-starting",
        Trouble.START,
        (Source.READINESS,),
        re.compile(r"engine (?P<engine>\S+) is (?:unreachable|loading|warming), waits for (?P<what>.+)"),
        "The engine {engine} is not through its start: it waits for {what}.",
        "make status WATCH=1 shows how far it is. A first start downloads and compiles.",
        Weight.ECHO,
    ),
    Signature(
        "queue-full",
        Trouble.SPEED,
        _ANSWER,
        re.compile(r"the answer was 503 overloaded"),
        "All engines are full, and so is the queue.",
        "Fewer at once, more engines (ENGINE_REPLICAS), or a longer queue (GATEWAY_QUEUE_SIZE).",
    ),
    Signature(
        "launcher-unreachable",
        Trouble.CONNECTION,
        (Source.GATEWAY,),
        re.compile(r'"message":"launcher does not say what it runs"'),
        "The gateway cannot ask the launcher which engines there are.",
        "Is the vllm service up? GATEWAY_UPSTREAMS must name it: launcher://vllm:8090 in compose.",
        Weight.ECHO,
    ),
    Signature(
        "clients-are-one",
        Trouble.SPEED,
        (Source.READINESS, Source.GATEWAY),
        re.compile(r'gateway_edge_disagreement 1|"message":"edge_disagrees".*"cure":"(?P<cure>[^"]+)"'),
        "nginx and the gateway do not mean the same client by an address: limits hit the wrong people.",
        "Add nginx's address to GATEWAY_TRUSTED_PROXIES. {cure}",
    ),
    Signature(
        "state-server-away",
        Trouble.CONNECTION,
        (Source.READINESS, Source.GATEWAY),
        re.compile(r'gateway_state_degraded 1|"message":"state_degraded"'),
        "The gateways cannot reach Valkey; each grants its part of the limits by itself.",
        "docker compose --profile valkey up -d, or correct GATEWAY_STATE_URL.",
    ),
    Signature(
        "keys-file-wrong",
        Trouble.SPEED,
        (Source.GATEWAY,),
        re.compile(r'"message":"keys_kept".*"error":"(?P<error>[^"]+)"'),
        "The changed file of API keys is wrong ({error}), so the old keys still count.",
        "Correct that line; make key writes it right.",
    ),
    Signature(
        "gateway-fault",
        Trouble.ANSWERS,
        (Source.GATEWAY,),
        re.compile(r'"message":"(?:unexpected|watching failed|looking names up failed)".*"traceback"'),
        "The gateway met an error of its own.",
        "Please report it: make report packs what is needed, without secrets or prompts.",
    ),
    Signature(
        "gateway-port-taken",
        Trouble.START,
        (Source.GATEWAY,),
        re.compile(r"GATEWAY_HOST=\S+ GATEWAY_PORT=(?P<port>\d+) cannot be listened on: Address already in use"),
        "Another program holds the gateway's port {port}.",
        "Stop it, or set GATEWAY_PORT to a free one.",
    ),
)
