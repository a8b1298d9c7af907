"""Prices and speeds of the built-in profiles, on the machines that they are meant for.

Prices are list prices of November 2026, in US dollars per device-hour. A team's `prices.toml` replaces them. Speeds
(tokens per second) are used until a store has measured its own.
"""

import tomllib
from collections.abc import Collection
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from flows.study.reading import Fault, Written, validated
from storage.errors import UserError
from storage.mirror import mirror_of
from storage.records.spending import PRICES
from tasks.domain.budget import Amount, Budget, Prices, TokenPrice
from tasks.domain.ranges import Checked
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.endpoint import configured_address
from tasks.engines.tinker_service import address

DEVICES = {"H200": 3.50, "H100": 2.50}
#: Prices by profile. Every other profile runs on this host and costs nothing.
LIST_PRICES = {
    "demo": Prices(sampled_per_second=4_000, trained_per_second=8_000),
    "small": Prices(sampled_per_second=250, trained_per_second=150),
    "qwen-1.5b": Prices(devices=DEVICES, device="NVIDIA H200", sampled_per_second=20_000, trained_per_second=20_000),
    # trained: gives the measured time of a step, which mostly waits for its longest rollout
    "paper": Prices(devices=DEVICES, device="NVIDIA H200", sampled_per_second=9_000, trained_per_second=2_300),
}


def _host(name: str) -> str:
    """Return a host's name in a form for comparison."""
    return name.lower().rstrip(".")


Device = Annotated[str, Field(min_length=1)]
Host = Annotated[str, AfterValidator(_host)]


@dataclass(frozen=True, slots=True)
class TeamPrices(Checked):
    """The file `<root>/prices.toml`. devices: US dollars per hour. tokens: prices by arm. remote: prices by the
    server's host; `*` stands for all other hosts. month: limit for all runs of the root in one calendar month (UTC)."""

    devices: dict[Device, Amount] = field(default_factory=dict)
    tokens: dict[str, TokenPrice] = field(default_factory=dict)
    remote: dict[Host, TokenPrice] = field(default_factory=dict)
    month: Budget = field(default_factory=Budget)

    def of(self, profile: str, hardware: Hardware, served: Collection[str] = ()) -> Prices:
        """Return the prices of a profile. Tokens that a remote host samples have that host's price, unless their arm
        has a price. served: arms whose model only a server has."""
        listed = prices_of(profile)
        tokens = self.tokens or listed.tokens
        own = replace(listed, tokens=tokens, devices={**self.devices, **listed.devices, **self.devices})
        there = self.remote.get(host_of(hardware)) or self.remote.get("*")
        if not hardware.remote:
            return replace(own, tokens={**dict.fromkeys(served, there), **tokens}) if there else own
        return replace(own, tokens={**tokens, "*": there} if there else tokens, hours_of_sampling=False)

    def check_limits(
        self, prices: Prices, hardware: Hardware, budget: Budget, root: Path, served: Collection[str] = ()
    ) -> None:
        """Raise UserError if there is a dollar limit while a remote engine has no price. served: as for `of`."""
        limited = budget.usd is not None or self.month.usd is not None
        if limited and (lacking := unpriced(prices, hardware, served)):
            raise UserError(f"{root / PRICES}: a limit in US dollars has no effect while {lacking}")


def unpriced(prices: Prices, hardware: Hardware, served: Collection[str] = ()) -> str:
    """Return which prices of another host's tokens are missing, and how to write them; empty if none is missing.
    served: as for `TeamPrices.of`."""
    listed, priced = prices.tokens, "*" in prices.tokens or (not hardware.remote and {*served} <= {*prices.tokens})
    kinds = ["prompt", "completion"] if not priced and (hardware.remote or served) else []
    if hardware.engine == "tinker" and not (listed and all(one.training is not None for one in listed.values())):
        kinds.append("training")
    host, fields = host_of(hardware) or "*", ", ".join(f"{kind} = …" for kind in kinds)
    how = f'write [remote."{host}"] with {fields} (US dollars per million tokens; 0 for your own)'
    return f"{', '.join(kinds)} tokens of {host} have no price; {how}" if kinds else ""


def host_of(hardware: Hardware) -> str:
    """Return the host that a remote engine pays for tokens; empty if its address is unknown."""
    place = address() if hardware.engine == "tinker" else configured_address(hardware.endpoint)
    return _host(urlsplit(place).hostname or "")


def prices_of(profile: str) -> Prices:
    """Return the list prices of a profile, or of the profile before the slash in its name (`qwen-1.5b/n-128`)."""
    return LIST_PRICES.get(profile) or LIST_PRICES.get(profile.partition("/")[0]) or Prices()


def team_prices(root: Path) -> TeamPrices:
    """Return the team's prices; empty if there is no file. Raise UserError for an unreadable file."""
    path, faults = root / PRICES, list[Fault]()
    try:
        if mirror := mirror_of(root):
            found = mirror.get(PRICES)
            text = found[0].decode() if found else ""
        else:
            text = path.read_text(encoding="utf-8") if path.exists() or path.is_symlink() else ""
        prices = validated(TeamPrices, tomllib.loads(text), (), faults)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: the team's prices and limits cannot be read ({error})") from None
    if prices is None:
        Written(str(path), text).refuse(faults)
    return prices
