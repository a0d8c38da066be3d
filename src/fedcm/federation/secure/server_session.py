"""The server's side of secure aggregation in one round: it passes messages on, adds masked reports and removes masks.

Sites may be lost at any step. Every step continues with the sites that completed the one before it, if they are enough.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np

from fedcm.errors import UserError
from fedcm.federation.secure import keys
from fedcm.federation.secure.masks import add_mask
from fedcm.federation.secure.messages import (
    Advert,
    compute_mask_purpose,
    compute_session,
    compute_threshold,
    from_hex,
    read_advert,
)
from fedcm.federation.secure.shamir import SHARE_BYTES, find_secret
from fedcm.federation.secure.site_session import derive_own_mask, get_sign, hash_seed


@final
class ServerSession:
    """What the server collects in one round; add every answer with the method of its step."""

    def __init__(self, least: int, length: int) -> None:
        """Expect masked reports of `length` integers, of at least `least` sites."""
        self.least = least
        self.roster: dict[str, Advert] = {}
        self._sealed: dict[str, dict[str, str]] = {}  # by sender and recipient
        self._total = np.zeros(length, dtype=np.uint64)
        self.survivors: set[str] = set()
        self._signatures: dict[str, str] = {}
        self._revealed: dict[str, dict[str, dict[str, bytes]]] = {}  # by holder, kind and site

    @property
    def threshold(self) -> int:
        """The number of sites that must complete every step."""
        return compute_threshold(self.least, len(self.roster))

    @property
    def sharers(self) -> list[str]:
        """The sites that dealt their shares, sorted; masks are between these."""
        return sorted(self._sealed)

    def add_advert(self, site: str, fields: Any) -> None:
        """Add a site's keys.

        Raises:
            UserError: If they are not the site's.
        """
        self.roster[site] = read_advert(fields, site)

    def exclude_minority(self) -> list[str]:
        """Go on with the largest group of sites that trained the same; return the others."""
        groups = Counter(advert.context for _, advert in sorted(self.roster.items()))
        largest = max(groups, key=lambda context: groups[context], default="")
        others = [site for site, advert in sorted(self.roster.items()) if advert.context != largest]
        self.roster = {site: advert for site, advert in self.roster.items() if advert.context == largest}
        return others

    def list_keys(self) -> dict[str, dict[str, Any]]:
        """Return the keys of all sites, for each of them."""
        return {site: advert.model_dump() for site, advert in sorted(self.roster.items())}

    def add_shares(self, site: str, sealed: Any) -> None:
        """Add the encrypted shares that a site dealt.

        Raises:
            UserError: If there is not one for each of the other sites.
        """
        if not isinstance(sealed, Mapping) or set(sealed) != set(self.roster) - {site}:
            raise UserError("it must deal a share to each of the other sites")
        if not all(isinstance(text, str) and len(text) < 1000 for text in sealed.values()):
            raise UserError("its shares must be short texts")
        self._sealed[site] = dict(sealed)

    def list_shares_for(self, site: str) -> dict[str, str]:
        """Return the encrypted shares that the other sites dealt to one."""
        return {sender: self._sealed[sender][site] for sender in self.sharers if sender != site}

    def add_masked(self, site: str, masked: Any) -> None:
        """Add a masked report to the sum.

        Raises:
            UserError: If it is not a vector of as many uint64 as expected.
        """
        if not isinstance(masked, np.ndarray) or masked.dtype != np.uint64 or masked.shape != self._total.shape:
            given = f"{masked.dtype} {masked.shape}" if isinstance(masked, np.ndarray) else type(masked).__name__
            raise UserError(f"its masked report must be uint64 {self._total.shape}, got {given}")
        self._total += masked
        self.survivors.add(site)

    def add_signature(self, site: str, signature: Any) -> None:
        """Add a site's signature of the survivors."""
        from_hex(signature)
        self._signatures[site] = signature

    def list_signatures(self) -> dict[str, str]:
        """Return the signatures of the survivors, for each of the sites that gave one."""
        return dict(self._signatures)

    def add_revealed(self, site: str, fields: Any) -> None:
        """Add the shares that a site revealed.

        Raises:
            UserError: If they are not one share of every site that dealt some.
        """
        expected = {"seeds": self.survivors, "keys": set(self.sharers) - self.survivors}
        revealed: dict[str, dict[str, bytes]] = {}
        for kind, sites in expected.items():
            given = fields.get(kind) if isinstance(fields, Mapping) else None
            if not isinstance(given, Mapping) or set(given) != sites:
                raise UserError(f"it must reveal one share of the {kind} of each of {sorted(sites)}")
            revealed[kind] = {owner: from_hex(text) for owner, text in given.items()}
            if any(len(share) != SHARE_BYTES for share in revealed[kind].values()):
                raise UserError(f"a share must have {SHARE_BYTES} bytes")
        self._revealed[site] = revealed

    def remove_masks(self) -> np.ndarray:
        """Return the sum of the survivors' reports modulo 2⁶⁴, as uint64.

        Raises:
            UserError: If too few sites revealed shares, or so many shares are false that no choice of them fits.
        """
        if len(self._revealed) < self.threshold:
            raise UserError(f"{self.threshold} sites must reveal shares, but {len(self._revealed)} did")
        session, total = compute_session(dict(sorted(self.roster.items()))), self._total.copy()
        purpose = compute_mask_purpose(session, self._sealed)
        for site in sorted(self.survivors):
            expected = self.roster[site].seed_hash
            seed = self._find("seeds", site, lambda secret, expected=expected: hash_seed(secret) == expected)
            add_mask(total, derive_own_mask(seed, session), -1)
        for lost in sorted(set(self.sharers) - self.survivors):
            public = from_hex(self.roster[lost].mask_key)
            fits = lambda secret, public=public: keys.restore_key_pair(secret).public == public  # noqa: E731
            pair = keys.restore_key_pair(self._find("keys", lost, fits))
            for site in sorted(self.survivors):
                add_mask(total, keys.agree(pair, from_hex(self.roster[site].mask_key), purpose), -get_sign(site, lost))
        return total

    def _find(self, kind: str, owner: str, fits: Callable[[bytes], bool]) -> bytes:
        holders = {site: number for number, site in enumerate(sorted(self.roster), 1)}
        shares = {holders[site]: revealed[kind][owner] for site, revealed in self._revealed.items()}
        try:
            return find_secret(shares, self.threshold, fits)
        except ValueError as error:
            raise UserError(f"the shares of the {kind} of {owner} are false: {error}") from None
