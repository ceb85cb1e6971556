"""Items that are only looked at."""

from ..host import Host, Refused
from ..item import Item


def write_nothing(_host: Host, item: Item, _part: str, _value: object) -> None:
    """Refuse: items of this kind are only looked at."""
    raise Refused("{} is only looked at".format(item.id))
