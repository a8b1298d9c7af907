"""What things cost where the profiles are meant to run: list prices, to be replaced by the team's own.

US dollars. Rates are used until a store has measured its own; sources: docs/operations.md.
"""

from __future__ import annotations

from tasks.domain.prices import DevicePrice, Prices

DEVICES = (DevicePrice(device="H200", usd_per_hour=3.50), DevicePrice(device="H100", usd_per_hour=2.50))

#: By profile; every other profile runs on this host, for nothing.
PRICES = {
    "demo": Prices(sampled_per_second=4_000, trained_per_second=8_000),
    "small": Prices(sampled_per_second=250, trained_per_second=150),
    "qwen-1.5b": Prices(
        devices_by_name=DEVICES, device="NVIDIA H200", sampled_per_second=20_000, trained_per_second=20_000
    ),
    "paper": Prices(
        devices_by_name=DEVICES, device="NVIDIA H200", devices=2, sampled_per_second=9_000, trained_per_second=4_000
    ),
}


def prices_of(profile: str) -> Prices:
    """Prices of a profile or of the profile that its name starts with (`qwen-1.5b/n-128`)."""
    return PRICES.get(profile) or PRICES.get(profile.partition("/")[0]) or Prices()
