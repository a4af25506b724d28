"""The search finds pairs, starts where the time goes, asks nothing twice, and ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tpugraphs.space import Config, Knob, Space
from tpugraphs.tuning.strategy import CornersThenClimb

NODES = tuple(Knob(f"n{index}.form", "form", f"n{index}", ("default", "shifted"), "") for index in range(6))
SPACE = Space((*NODES, Knob("library", "flag", "program", ("on", "off"), "")))
TIME = {"n3": 50.0, "n1": 20.0, "n0": 1.0}
Cost = Callable[[Mapping[str, str]], float | None]


def search(cost: Cost, limit: int = 1000) -> tuple[Config, list[Config]]:
    strategy, asked = CornersThenClimb(SPACE, TIME), []
    while len(asked) < limit and (config := strategy.ask()) is not None:
        asked.append(config)
        strategy.tell(config, cost(config.as_dict()))
    return strategy.best, asked


def test_a_pair_is_found_where_one_choice_alone_hurts() -> None:
    """As MobileNetV2: the option alone is slower, all forms are faster, both together fastest."""

    def cost(choices: Mapping[str, str]) -> float:
        forms, off = sum(choice == "shifted" for choice in choices.values()), "library" in choices
        return (1 - 0.15 * forms) * (1.4 if off and not forms else 0.6 if off else 1.0)

    best, asked = search(cost, limit=3)
    assert best.as_dict() == {**{knob.name: "shifted" for knob in NODES}, "library": "off"}
    assert len(asked) == 3


def test_a_node_whose_form_is_worse_goes_back_to_its_own() -> None:
    def cost(choices: Mapping[str, str]) -> float:
        return (
            1
            - 0.1 * sum(name not in ("n1.form", "n4.form") for name in choices)
            + 0.05 * sum(name in ("n1.form", "n4.form") for name in choices)
        )

    best, _ = search(cost)
    better = ("n0.form", "n2.form", "n3.form", "n5.form")
    assert best.as_dict() == {**dict.fromkeys(better, "shifted"), "library": "off"}


def test_a_coupled_pair_of_nodes_is_found() -> None:
    def cost(choices: Mapping[str, str]) -> float:
        both = "n2.form" in choices and "n5.form" in choices
        return (0.5 if both else 1.0) + 0.1 * len(choices) * (not both) + 0.02 * len(choices)

    assert search(cost)[0].as_dict() == {"n2.form": "shifted", "n5.form": "shifted"}


def test_single_turns_start_where_the_time_goes() -> None:
    _, asked = search(lambda _: None)
    singles = [config.changes[0][0] for config in asked if len(config.changes) == 1]
    assert singles[:4] == ["library", "n3.form", "n1.form", "n0.form"]


def test_nothing_is_asked_twice_and_the_search_ends() -> None:
    for cost in (lambda choices: 1.1, lambda choices: None, lambda choices: 1 / (1 + len(choices))):
        _, asked = search(cost)
        assert len(set(asked)) == len(asked) < SPACE.size
        assert Config() not in asked
    assert search(lambda choices: 1.1)[0].is_default


def test_a_space_of_one_option() -> None:
    strategy = CornersThenClimb(Space((SPACE.knobs[-1],)), {})
    assert strategy.ask() == Config.of({"library": "off"})
    assert strategy.ask() is None


def test_what_corners_say_of_each_node_is_put_together() -> None:
    """Each node has a best form of its own; one profile of a corner tells of all nodes."""
    nodes = tuple(Knob(f"n{index}.form", "form", f"n{index}", ("default", "a", "b", "c"), "") for index in range(9))
    space = Space((*nodes, SPACE.knobs[-1]))
    cheapest = {knob.name: "abc"[index % 3] for index, knob in enumerate(nodes)}

    def node_ns(choices: Mapping[str, str]) -> dict[str, float]:
        return {
            knob.place: 10.0
            if (form := choices.get(knob.name)) is None
            else 2.0
            if form == cheapest[knob.name]
            else 30.0
            for knob in nodes
        }

    strategy, asked = CornersThenClimb(space, node_ns({})), 0
    while strategy.best.as_dict() != cheapest and (config := strategy.ask()) is not None:
        asked += 1
        choices = config.as_dict()
        ratio = sum(node_ns(choices).values()) / 90 * (1.1 if "library" in choices else 1.0)
        strategy.tell(config, ratio, node_ns(choices))
    assert strategy.best.as_dict() == cheapest
    assert asked <= 4 * 2 + 2, "the corners of three forms and of none with each value of the option, and the mixtures"
