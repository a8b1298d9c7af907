"""Plug-ins: graders, scaffolds, objectives, losses and rewards of other packages, found by entry point.

Users write NAME; recipes store `NAME@PACKAGE==VERSION`. So another version of the package changes fingerprints.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, TypeVar

from storage.errors import UserError, did_you_mean

Group = Literal["varband.graders", "varband.scaffolds", "varband.objectives", "varband.losses", "varband.rewards"]
T = TypeVar("T")


def plugin_names(group: Group) -> list[str]:
    """Return the names of the plug-ins in installed packages."""
    return sorted({entry.name for entry in _found(group, tuple(sys.path))})


def pinned(group: Group, name: str) -> str:
    """Return a plug-in's name with package and version. Raise UserError unless exactly one package provides it."""
    entry = _entry(group, name.partition("@")[0])
    assert entry.dist is not None
    there = f"{entry.name}@{entry.dist.name}=={entry.dist.version}"
    if "@" in name and name != there:
        raise UserError(
            f"{_what(group)} {name} is not installed; the installed version is {there}. Install the version of the"
            f" study, or write {entry.name} in the study to use the installed one"
        )
    return there


def plugged(group: Group, name: str) -> object:
    """Return the plug-in of this name. Raise UserError if `pinned` does, or if the plug-in cannot be imported."""
    return _loaded(group, pinned(group, name), tuple(sys.path))


def call_plugin(group: Group, name: str, function: str, *given: object) -> object:
    """Call a function of a plug-in. Raise UserError if `plugged` does, or if the function raises an error."""
    try:
        return getattr(plugged(group, name), function)(*given)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # another package's code may raise anything
        reason = f"`{function}` raises {error_line(error)}, given {given[0]!r:.80}"
        raise UserError(f"{_what(group)} {name}: {reason}") from None


def error_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


class Registry(Mapping[str, T]):
    """Built-in entries and plug-ins by name. A plug-in is imported when its entry is read.

    entry: makes an entry from the plug-in, its name, and its package with version.
    """

    def __init__(self, group: Group, own: Mapping[str, T], entry: Callable[[object, str, str], T]) -> None:
        self._group: Group = group
        self.own, self._entry = own, entry

    def __getitem__(self, name: str) -> T:
        if name in self.own:
            return self.own[name]
        if name not in plugin_names(self._group):
            raise KeyError(name)
        return self._entry(plugged(self._group, name), name, pinned(self._group, name).partition("@")[2])

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.own, *plugin_names(self._group)]))

    def __len__(self) -> int:
        return len(list(iter(self)))


@cache
def _found(group: Group, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry for entry in entry_points(group=group) if entry.dist is not None)


@cache
def _loaded(group: Group, name: str, _path: tuple[str, ...]) -> object:
    entry = _entry(group, name.partition("@")[0])
    try:
        return entry.load()
    except (Exception, SystemExit) as error:  # another package's code may raise anything
        raise UserError(f"{_what(group)} {name} cannot be imported from {entry.value} ({error_line(error)})") from None


def _entry(group: Group, name: str) -> EntryPoint:
    several = [entry for entry in _found(group, tuple(sys.path)) if entry.name == name]
    packages = sorted({entry.dist.name for entry in several if entry.dist is not None})
    if not several:
        known = plugin_names(group)
        hint = did_you_mean(name, known) or f" (installed: {', '.join(known) or 'none'})"
        raise UserError(f"no {_what(group)} '{name}': no installed package has it under the entry point {group}{hint}")
    if len(packages) > 1:
        raise UserError(
            f"{_what(group)} '{name}' is in {' and '.join(packages)}: uninstall all but one of these packages"
        )
    return several[0]


def _what(group: Group) -> str:
    return {"varband.losses": "loss"}.get(group) or group.removeprefix("varband.").removesuffix("s")
