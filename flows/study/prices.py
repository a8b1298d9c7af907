"""What things cost where the profiles are meant to run: list prices, and above them the team's own in `prices.toml`.

US dollars. Rates are used until a store has measured its own; sources: docs/operations.md.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from storage.errors import UserError, did_you_mean
from storage.mirror import mirror_of
from storage.records.spending import PRICES as FILE
from tasks.domain.budget import Budget
from tasks.domain.prices import DevicePrice, Prices, TokenPrice
from tasks.engines.hardware import Hardware
from tasks.engines.sampling.endpoint import asked_address

DEVICES = (DevicePrice(device="H200", usd_per_hour=3.50), DevicePrice(device="H100", usd_per_hour=2.50))

#: More than anything costs, and what a number of TOML may be.
MOST = 1e15

#: By profile; every other profile runs on this host, for nothing.
PRICES = {
    "demo": Prices(sampled_per_second=4_000, trained_per_second=8_000),
    "small": Prices(sampled_per_second=250, trained_per_second=150),
    "qwen-1.5b": Prices(
        devices_by_name=DEVICES, device="NVIDIA H200", sampled_per_second=20_000, trained_per_second=20_000
    ),
    # trained: so that a step takes what it was measured to take, most of which is waiting for its longest rollout
    "paper": Prices(devices_by_name=DEVICES, device="NVIDIA H200", sampled_per_second=9_000, trained_per_second=2_300),
}
Table = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TeamPrices:
    """`<root>/prices.toml`. tokens: by arm. remote: by host of the server; `*` is every other. month: the most that all
    runs of the root may spend in one calendar month of UTC."""

    devices: tuple[DevicePrice, ...] = ()
    tokens: tuple[TokenPrice, ...] = ()
    remote: Mapping[str, TokenPrice] = field(default_factory=dict)
    month: Budget = field(default_factory=Budget)

    def of(self, profile: str, hardware: Hardware) -> Prices:
        """Prices of a profile. Where another host samples, tokens without a price by arm cost what is paid there."""
        listed = prices_of(profile)
        own = replace(
            listed, tokens=self.tokens or listed.tokens, devices_by_name=(*self.devices, *listed.devices_by_name)
        )
        if hardware.engine != "openai":
            return own
        there = self.remote.get(host_of(hardware), self.remote.get("*"))
        tokens = own.tokens if there is None else (*(t for t in own.tokens if t.arm != "*"), there)
        return replace(own, tokens=tokens, hours_of_sampling=False)

    def check(self, prices: Prices, hardware: Hardware, budget: Budget, root: Path) -> None:
        """Errors: UserError for a limit on money that would never stop a remote engine."""
        limited = budget.usd is not None or self.month.usd is not None
        if limited and hardware.engine == "openai" and not any(t.arm == "*" for t in prices.tokens):
            host = host_of(hardware) or "*"
            raise UserError(
                f"{root / FILE}: a limit of US dollars stops nothing while tokens of {host} have no price; write"
                f' [remote."{host}"] with prompt = and completion = (US dollars per million tokens; 0 for your own)'
            )


def host_of(hardware: Hardware) -> str:
    """Whose tokens a remote engine pays for; empty where no address is known."""
    return (urlsplit(asked_address(hardware.endpoint)).hostname or "").rstrip(".")


def prices_of(profile: str) -> Prices:
    """List prices of a profile or of the profile that its name starts with (`qwen-1.5b/n-128`)."""
    return PRICES.get(profile) or PRICES.get(profile.partition("/")[0]) or Prices()


def team_prices(root: Path) -> TeamPrices:
    """What the team wrote, nothing where there is no file. Errors: UserError that names what cannot be read."""
    path = root / FILE
    if mirror := mirror_of(root):
        found = mirror.get(FILE)
        text = "" if found is None else found[0].decode(errors="replace")
    else:
        text = _text(path)
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: no TOML ({error})") from None
    except RecursionError:
        raise UserError(f"{path}: no TOML that anybody wrote") from None
    devices = _table(path, whole, "devices")
    if "" in devices:
        raise UserError(f'{path}: devices."" is the name of every device; write a part of one device\'s name')
    tokens, remote = (_priced(path, name, _table(path, whole, name)) for name in ("tokens", "remote"))
    month = _table(path, whole, "month")
    _known(path, "", whole, ("devices", "tokens", "remote", "month"))
    _known(path, "month.", month, tuple(Budget.__slots__))
    return TeamPrices(
        tuple(DevicePrice(device=n, usd_per_hour=_amount(path, f"devices.{n}", v)) for n, v in devices.items()),
        tuple(tokens.values()),
        {_host(path, host): replace(price, arm="*") for host, price in remote.items()},
        Budget(**{name: _amount(path, f"month.{name}", value, least=1e-9) for name, value in month.items()}),
    )


def _text(path: Path) -> str:
    """Empty without a file. Errors: UserError for one that is there and cannot be read: it may limit what is spent."""
    if not os.path.lexists(path):
        return ""
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise UserError(f"{path}: the team's prices and limits cannot be read ({error.strerror})") from None


def _host(path: Path, name: str) -> str:
    """As addresses are compared. Errors: UserError for more or less than a host, whose price would never be found."""
    host = name.lower().rstrip(".")
    try:
        known = name == "*" or urlsplit(f"//[{host}]" if ":" in host else f"//{host}").hostname == host
    except ValueError:
        known = False
    if not known:
        raise UserError(f'{path}: remote."{name}" is no host; write its name alone, such as "api.example", or "*"')
    return host


def _priced(path: Path, name: str, table: Table) -> dict[str, TokenPrice]:
    found, parts = {}, ("prompt", "completion")
    for key, value in table.items():
        if not isinstance(value, dict):
            raise UserError(f'{path}: {name}."{key}" needs prompt = and completion =, US dollars per million tokens')
        _known(path, f"{name}.{key}.", value, parts)
        if lacking := [part for part in parts if part not in value]:
            raise UserError(f'{path}: {name}."{key}" lacks {" and ".join(lacking)} =, US dollars per million tokens')
        amounts = {part: _amount(path, f"{name}.{key}.{part}", value[part]) for part in parts}
        found[key] = TokenPrice(arm=key, **amounts)
    return found


def _table(path: Path, whole: Table, name: str) -> Table:
    found = whole.get(name, {})
    if not isinstance(found, dict):
        raise UserError(f"{path}: {name} is a table, written [{name}]")
    return found


def _known(path: Path, above: str, table: Table, known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            raise UserError(f"{path}: nothing is called {above}{name}{did_you_mean(name, known)}")


def _amount(path: Path, name: str, value: object, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= MOST:
        raise UserError(f"{path}: {name} = {value!r} is no amount")
    return float(value)
