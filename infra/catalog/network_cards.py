"""Network cards of an instance type, the interfaces laid out over them, and what every layout must hold to.

Sources of the invariants: AWS, EC2 User Guide, "EFA and network cards" (`efa-acc-inst-types`); at most one EFA
device per card, aws/karpenter-provider-aws designs/efa-for-static-capacity.md@1d92708. Checked 2026-11-20.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pydantic import StrictInt

from infra.catalog.sourced import Entry

InterfaceType = Literal["interface", "efa", "efa-only"]
LayoutPolicy = Literal["ip-saving", "maximum", "addressed"]
LAYOUT_POLICIES: tuple[LayoutPolicy, ...] = ("ip-saving", "maximum", "addressed")
PRIMARY = (0, 0)


class Cards(Entry):
    """Network cards `first`, `first + step`, … `last` (0-based, `last` included)."""

    first: StrictInt
    last: StrictInt
    step: StrictInt = 1

    @property
    def indices(self) -> tuple[int, ...]:
        """The card indices, ascending."""
        return tuple(range(self.first, self.last + 1, self.step))


class InterfaceRow(Entry):
    """One interface on each of some cards."""

    cards: Cards
    device: StrictInt
    type: InterfaceType


class NetworkCards(Entry):
    """The network cards of an instance type.

    Args:
        num_cards: cards are numbered from 0.
        interfaces_per_card: device indices of a card are below it.
        efa: the cards that can carry an EFA device, at most one each; in this order they belong to the
            accelerators, as many to each.
        efa_only: the cards that carry nothing else, None when every card can have an address.
    """

    num_cards: StrictInt
    interfaces_per_card: StrictInt
    efa: Cards
    efa_only: Cards | None = None


class NetworkInterface(NamedTuple):
    """One interface of a host: 0-based card and device index, and its kind."""

    card: int
    device: int
    type: InterfaceType

    @property
    def place(self) -> tuple[int, int]:
        """Card and device index."""
        return (self.card, self.device)

    @property
    def has_address(self) -> bool:
        """Whether it takes an address of the subnet; an `efa-only` interface does not."""
        return self.type != "efa-only"

    @property
    def has_efa(self) -> bool:
        """Whether it is an EFA device."""
        return self.type != "interface"


def expand_rows(rows: Sequence[InterfaceRow]) -> tuple[NetworkInterface, ...]:
    """The interfaces of a layout by card and device; the first is the primary one."""
    interfaces = (
        NetworkInterface(card=card, device=row.device, type=row.type)
        for row in rows
        for card in row.cards.indices
    )
    return tuple(sorted(interfaces, key=lambda interface: interface.place))


def layout_problems(
    cards: NetworkCards, interfaces: Sequence[NetworkInterface], *, num_accelerators: int
) -> tuple[str, ...]:
    """A sentence for every invariant that a layout breaks; none for one that can be launched.

    Args:
        cards: of the instance type.
        interfaces: of the layout, in any order.
        num_accelerators: that share the EFA cards evenly.
    """
    return (
        *_place_problems(cards, interfaces),
        *_efa_problems(cards, interfaces),
        *_share_problems(cards, interfaces, num_accelerators),
    )


def _place_problems(cards: NetworkCards, interfaces: Sequence[NetworkInterface]) -> Iterator[str]:
    places = Counter(each.place for each in interfaces)
    if PRIMARY not in places:
        yield "card 0 has no interface at device 0, the primary one"
    for place in sorted(place for place, count in places.items() if count > 1):
        yield f"card {place[0]}, device {place[1]} stands {places[place]} times"
    for each in interfaces:
        if each.place == PRIMARY and each.type == "efa-only":
            yield "the primary interface is efa-only, so the host would have no address"
        if not 0 <= each.card < cards.num_cards:
            yield f"card {each.card} does not exist; there are {cards.num_cards}"
        elif not 0 <= each.device < cards.interfaces_per_card:
            yield f"card {each.card} takes {cards.interfaces_per_card} interfaces; device {each.device} is past them"


def _efa_problems(cards: NetworkCards, interfaces: Sequence[NetworkInterface]) -> Iterator[str]:
    only = set(cards.efa_only.indices) if cards.efa_only else set()
    for card, count in sorted(Counter(each.card for each in interfaces if each.has_efa).items()):
        if card not in cards.efa.indices:
            yield f"card {card} supports no EFA"
        if count > 1:
            yield f"card {card} has {count} EFA devices; it carries one"
    for card in sorted({each.card for each in interfaces if each.has_address} & only):
        yield f"card {card} carries efa-only interfaces alone"


def _share_problems(
    cards: NetworkCards, interfaces: Sequence[NetworkInterface], num_accelerators: int
) -> Iterator[str]:
    """Every accelerator has EFA devices beside it, and as many as the others."""
    used = {each.card for each in interfaces if each.has_efa}
    width, rest = divmod(len(cards.efa.indices), num_accelerators)
    if rest or not width:
        yield f"{len(cards.efa.indices)} EFA cards cannot be shared by {num_accelerators} accelerators"
        return
    counts = [
        len(used & set(cards.efa.indices[first : first + width]))
        for first in range(0, width * num_accelerators, width)
    ]
    if 0 in counts or len(set(counts)) > 1:
        yield f"accelerators have {', '.join(map(str, counts))} EFA devices beside them, not one number for all"
