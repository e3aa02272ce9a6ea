"""Which cards are used, by how many engines, and how a mixture of experts is spread over them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from launcher.checkpoint import Checkpoint
from launcher.errors import BadSetting, InsufficientResources
from launcher.hardware import GIB, Hardware
from launcher.planning.plan import make
from launcher.settings import Settings

from .conftest import assert_it_fits, with_cards

Machine = Callable[[str], Hardware]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ((2, 128), (1, 1)),
        ((4, 128), (1, 2)),
        ((6, 128), (1, 4)),
        ((8, 128), (2, 2)),
        ((12, 128), (2, 4)),
        ((16, 128), (2, 4)),
        ((128, 128), (2, 4)),
        ((16, 16), (2, 4)),
        ((16, 8), (1, 4)),
        ((32, 2), (1, 4)),
    ],
)
def test_cores_and_host_memory_decide_the_number_of_engines_and_of_http_processes(
    machine: Machine, ernie: Checkpoint, host: tuple[int, int], expected: tuple[int, int]
) -> None:
    cores, host_gib = host
    hardware = machine("h200")
    hardware = replace(hardware, host=replace(hardware.host, cores=cores, memory_total_bytes=host_gib * GIB))
    plan = make(Settings(), hardware, ernie, "cuda")
    assert (plan.engines, plan.api_servers) == expected
    assert plan.sequences == (1024 if plan.engines == 1 else 512)


def test_there_is_one_engine_where_nobody_could_learn_of_more(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(status_port=0), machine("h200"), ernie, "cuda")
    assert plan.engines == 1
    assert any("ENGINE_STATUS_PORT=0" in reason for reason in plan.reasons)


def test_engines_are_spread_over_the_cards(machine: Machine, ernie: Checkpoint) -> None:
    four = with_cards(machine("l4"), 4)
    assert make(Settings(), four, ernie, "cuda").cards == (("0",), ("1",), ("2",), ("3",))
    assert make(Settings(replicas=2), four, ernie, "cuda").cards == (("0",), ("1",))
    six = make(Settings(replicas=6), four, ernie, "cuda")
    assert six.cards == (("0",), ("1",), ("2",), ("3",), ("0",), ("1",))
    assert_it_fits(six, four)
    with pytest.raises(InsufficientResources, match="ENGINE_REPLICAS"):
        make(Settings(replicas=64), four, ernie, "cuda")


def test_a_small_model_is_not_divided_for_a_small_budget(machine: Machine, ernie: Checkpoint) -> None:
    plan = make(Settings(vram_gb=3), with_cards(machine("a10"), 2), ernie, "cuda")
    assert (plan.tensor_parallel, plan.engines) == (1, 2)
    assert plan.context_tokens < 131072


def test_of_unlike_or_full_cards_only_some_are_used(machine: Machine, ernie: Checkpoint) -> None:
    l4, t4 = machine("l4"), machine("t4")
    mixed = replace(l4, gpus=(*l4.gpus, replace(t4.gpus[0], index=1)))
    plan = make(Settings(), mixed, ernie, "cuda")
    assert plan.cards == (("0",),)
    assert "only the cards of one kind are used: NVIDIA L4" in plan.reasons
    two = with_cards(l4, 2)
    full = replace(two, gpus=(replace(two.gpus[0], memory_free_bytes=GIB), two.gpus[1]))
    assert make(Settings(), full, ernie, "cuda").cards == (("1",),)


def test_a_slice_of_a_card_is_named_by_its_uuid(machine: Machine, ernie: Checkpoint) -> None:
    slices = with_cards(machine("h100"), 2, mig=True, memory_total_bytes=10 * GIB, memory_free_bytes=9 * GIB)
    plan = make(Settings(), slices, ernie, "cuda")
    assert plan.cards == (("GPU-0",), ("GPU-1",))
    assert_it_fits(plan, slices)


def test_a_card_with_the_hosts_memory(machine: Machine, ernie: Checkpoint) -> None:
    spark: dict[str, object] = {
        "name": "NVIDIA GB10",
        "compute_capability": (12, 1),
        "unified_memory": True,
        "memory_total_bytes": 119 * GIB,
        "memory_free_bytes": 100 * GIB,
    }
    plan = make(Settings(), with_cards(machine("rtx-5090"), 1, **spark), ernie, "cuda")
    assert "the card has no memory of its own: the host's counts" in plan.reasons


@pytest.mark.parametrize(
    ("name", "cards", "expected"),
    [
        ("a100-80gb", 1, (1, 1)),
        ("h200", 1, (1, 1)),
        ("h200-x8", 8, (1, 8)),
        ("l40s", 2, (2, 1)),
        ("l40s", 4, (2, 2)),
        ("a10", 4, (4, 1)),
        ("a10", 8, (4, 2)),
    ],
)
def test_a_mixture_of_experts_takes_as_few_cards_as_hold_it(
    machine: Machine, mixture: Checkpoint, name: str, cards: int, expected: tuple[int, int]
) -> None:
    together, engines = expected
    hardware = with_cards(machine(name), cards)
    plan = make(Settings(), hardware, mixture, "cuda")
    assert (plan.tensor_parallel, plan.engines) == (together, engines)
    assert plan.expert_parallel == plan.expert_balancing == (together > 1)
    assert {len(names) for names in plan.cards} == {together}
    assert len({name for names in plan.cards for name in names}) == engines * together
    reasons = "\n".join(plan.reasons)
    assert (f"experts: {64 // together} of 64 on each card" if together > 1 else "nothing to spread") in reasons
    assert_it_fits(plan, hardware)


@pytest.mark.parametrize(
    ("name", "cards"), [("a10", 1), ("a10", 2), ("a10", 3), ("t4", 1), ("l40s", 1), ("rtx-5090", 1)]
)
def test_a_mixture_that_does_not_fit_is_refused_with_the_sum(
    machine: Machine, mixture: Checkpoint, name: str, cards: int
) -> None:
    weights = r"40\.7 GiB" if cards == 1 else r"20\.3 GiB"
    with pytest.raises(InsufficientResources, match=rf"the model needs .*: {weights} weights, .* KV cache") as caught:
        make(Settings(), with_cards(machine(name), cards), mixture, "cuda")
    assert caught.value.exit_code == 6


def test_cards_that_compute_together_by_setting(machine: Machine, ernie: Checkpoint, mixture: Checkpoint) -> None:
    four = with_cards(machine("h200"), 4)
    plan = make(Settings(tensor_parallel=4), four, mixture, "cuda")
    assert (plan.tensor_parallel, plan.engines, plan.expert_balancing) == (4, 1, True)
    dense = make(Settings(tensor_parallel=2), four, ernie, "cuda")
    assert (dense.tensor_parallel, dense.engines, dense.expert_parallel) == (2, 2, False)
    for number, says in ((3, "attention heads"), (8, "4 are usable")):
        with pytest.raises(BadSetting, match=f"ENGINE_TENSOR_PARALLEL: .*{says}"):
            make(Settings(tensor_parallel=number), four, mixture, "cuda")


def test_experts_in_awq_are_spread_and_not_moved(machine: Machine, mixture: Checkpoint) -> None:
    awq = replace(mixture, quantization="awq", weight_bytes=mixture.weight_bytes // 3)
    plan = make(Settings(tensor_parallel=2), with_cards(machine("l4"), 2), awq, "cuda")
    assert (plan.expert_parallel, plan.expert_balancing) == (True, False)
    assert "load balancing off: vLLM cannot move experts in awq" in plan.reasons
