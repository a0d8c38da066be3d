"""A site's side of secure aggregation in one round.

advertise   fresh keys, signed                                              ─► to all sites
share       shares of its two secrets for every site, encrypted             ─► to each site
mask        report + own mask ± one mask per pair of sites (modulo 2⁶⁴)     ─► to the server
confirm     a signature of the set of sites whose masked reports arrived    ─► to all sites
unmask      for each site, one of its two secrets' shares                   ─► to the server

The secrets are the key of the pairwise masks and the seed of the site's own mask. For a site whose masked report is in
the sum, the others reveal shares of the seed; for a site that was lost, shares of the key. Revealing both would unmask
its report, so a site reveals at most one of them. The steps run once each and in this order; a site that restarts has
no secrets any more and is lost for this round. If keys, shares or signatures of other sites cannot be used, the site
names these sites and ends its session; the server may start again without them, with fresh secrets of all sites.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, final

import numpy as np

from fedcm.errors import UserError
from fedcm.federation.secure import keys
from fedcm.federation.secure.identity import SiteIdentity
from fedcm.federation.secure.masks import SEED_BYTES, add_mask, derive_seed
from fedcm.federation.secure.messages import (
    Advert,
    compute_mask_purpose,
    compute_session,
    compute_threshold,
    encode,
    encode_survivors,
    from_hex,
    read_advert,
)
from fedcm.federation.secure.shamir import SHARE_BYTES, split_secret

_STEPS = ("advertise", "share", "mask", "confirm", "unmask", "nothing more")
_T = TypeVar("_T")
Permit = Callable[[Sequence[str]], None]  # raises UserError if a round's reports may not be summed over these sites


@final
class UnusableMessages(UserError):  # noqa: N818
    """Other sites sent keys, shares or signatures that cannot be used."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """Say why the message of each of these sites cannot be used."""
        super().__init__("; ".join(reasons[site] for site in sorted(reasons)))
        self.reasons = dict(reasons)


@final
class SiteSession:
    """The secrets of one site in one round, which are never stored."""

    def __init__(self, identity: SiteIdentity, context: str, sites: Sequence[str], least: int) -> None:
        """Make fresh secrets.

        Args:
            identity: The site's name, certificate and key.
            context: Hash of the round and of everything that the sites must have in common in it.
            sites: The sites of the run; no other site is accepted.
            least: The smallest number of sites in a sum.
        """
        self.identity = identity
        self.name = identity.name
        self.context = context
        self.sites = sorted(sites)
        self.least = least
        self._cipher_keys, self._mask_keys = keys.make_key_pair(), keys.make_key_pair()
        self._own_seed = secrets.token_bytes(SEED_BYTES)
        self._next = _STEPS[0]
        self._roster: dict[str, Advert] = {}
        self._session = ""
        self._shares: dict[str, tuple[bytes, bytes]] = {}  # by site that dealt them: of its key, of its seed
        self._survivors: list[str] = []

    def advertise(self) -> dict[str, Any]:
        """Return the fields of an `Advert`."""
        with self._run_step("advertise"):
            fields = {
                "site": self.name,
                "context": self.context,
                "cipher_key": self._cipher_keys.public.hex(),
                "mask_key": self._mask_keys.public.hex(),
                "seed_hash": hash_seed(self._own_seed),
                "certificate": self.identity.certificate.decode(),
                "signature": "",
            }
            return fields | {"signature": self.identity.sign(Advert(**fields).signed).hex()}

    def share(self, roster: Mapping[str, Any]) -> dict[str, str]:
        """Check the keys of all sites and return this site's encrypted shares for each of the others.

        Raises:
            UnusableMessages: If a key is not signed by its site or unusable, or a site has another context.
            UserError: If there are too few sites, or one that is not of this run.
        """
        with self._run_step("share"):
            if strangers := sorted(set(roster) - set(self.sites)):
                raise UserError(f"{str(strangers[0])[:80]!r} is not a site of this run")
            self._roster = self._read_all(roster, self._check_advert)
            own = self._roster.get(self.name)
            if own is None or own.mask_key != self._mask_keys.public.hex():
                raise UserError("the keys of a round must contain this site's own")
            self._check_enough(self._roster, "have keys")
            self._session, members = compute_session(self._roster), list(self._roster)
            holders = {site: number for number, site in enumerate(members, 1)}
            dealt = [
                split_secret(secret, list(holders.values()), self.threshold)
                for secret in (self._mask_keys.private, self._own_seed)
            ]
            own_number = holders[self.name]
            self._shares[self.name] = (dealt[0][own_number], dealt[1][own_number])
            return {
                site: self._encrypt(site, dealt[0][number] + dealt[1][number]).hex()
                for site, number in holders.items()
                if site != self.name
            }

    def mask(self, report: np.ndarray, sealed: Mapping[str, Any]) -> np.ndarray:
        """Return the masked report.

        Args:
            report: The site's integers as uint64.
            sealed: By site, the encrypted shares that it dealt to this one; only these sites take part further.

        Raises:
            UnusableMessages: If shares cannot be decrypted.
            UserError: If there are too few sites.
        """
        with self._run_step("mask"):
            if strangers := sorted(set(sealed) - (set(self._roster) - {self.name})):
                raise UserError(f"{str(strangers[0])[:80]!r} has no keys in this round and cannot deal shares")
            self._shares |= self._read_all(sealed, self._read_shares)
            self._check_enough(self._shares, "dealt their shares")
            masked = report.copy()
            add_mask(masked, derive_own_mask(self._own_seed, self._session), 1)
            purpose = compute_mask_purpose(self._session, self._shares)
            for site in self._shares:
                if site != self.name:
                    seed = keys.agree(self._mask_keys, from_hex(self._roster[site].mask_key), purpose)
                    add_mask(masked, seed, get_sign(self.name, site))
            return masked

    def confirm(self, survivors: Sequence[str], permit: Permit) -> str:
        """Return this site's signature of the set of sites whose masked reports are in the sum.

        Args:
            survivors: These sites.
            permit: Raises UserError if this round's reports may not be summed over them.

        Raises:
            UserError: If there are too few of them, or they did not deal shares.
        """
        with self._run_step("confirm"):
            self._survivors = sorted(set(survivors))
            if self.name not in self._survivors or not set(self._survivors) <= set(self._shares):
                raise UserError("a sum must be over this site and others that dealt their shares")
            self._check_enough(self._survivors, "are in the sum")
            permit(self._survivors)
            return self.identity.sign(encode_survivors(self._session, self._survivors)).hex()

    def unmask(self, signatures: Mapping[str, Any], permit: Permit) -> dict[str, dict[str, str]]:
        """Return shares: `seeds` of the sites in the sum, and `keys` of the sites that were lost.

        Args:
            signatures: By site, its signature of the set that this site confirmed; others do not count.
            permit: Raises UserError if this round's reports may not be summed over that set; otherwise it remembers
                the set.

        Raises:
            UnusableMessages: If too few sites of the sum signed the same set, and some signatures are false.
            UserError: If too few signed it.
        """
        with self._run_step("unmask"):
            message = encode_survivors(self._session, self._survivors)
            confirmed = [site for site in self._survivors if self._has_signed(site, message, signatures.get(site))]
            false = [site for site in self._survivors if site in signatures and site not in confirmed]
            if len(confirmed) < self.threshold and false:
                few = f"at least {self.threshold} sites must take part, but only {len(confirmed)} confirmed the sum"
                raise UnusableMessages({site: f"{few}, and {site} signed something else" for site in false})
            self._check_enough(confirmed, "confirmed the sum")
            permit(self._survivors)
            revealed = {
                "seeds": {site: self._shares[site][1].hex() for site in self._survivors},
                "keys": {site: self._shares[site][0].hex() for site in self._shares if site not in self._survivors},
            }
            self._shares = {}
            return revealed

    @property
    def threshold(self) -> int:
        """The number of sites that must take part in every step."""
        return compute_threshold(self.least, len(self._roster))

    @contextmanager
    def _run_step(self, step: str) -> Iterator[None]:
        """Go to the next step if the block succeeds; otherwise no step follows, because no secret is used twice."""
        expected, self._next = self._next, _STEPS[-1]
        if step != expected:
            raise UserError(f"the next step of secure aggregation must be {expected}, got {step}")
        yield
        self._next = _STEPS[_STEPS.index(step) + 1]

    def _check_enough(self, sites: Mapping[str, Any] | Sequence[str], what: str) -> None:
        if len(sites) < self.threshold:
            raise UserError(f"at least {self.threshold} sites must take part, but only {len(sites)} {what}")

    def _read_all(self, messages: Mapping[str, Any], read: Callable[[str, Any], _T]) -> dict[str, _T]:
        """Read the message of each site; raise UnusableMessages that names all sites whose messages cannot be read."""
        done, reasons = dict[str, _T](), dict[str, str]()
        for site, message in sorted(messages.items()):
            try:
                done[site] = read(site, message)
            except UserError as error:
                reasons[site] = str(error)
        if self.name in reasons:  # the server changed it
            raise UserError(reasons[self.name])
        if reasons:
            raise UnusableMessages(reasons)
        return done

    def _read_shares(self, site: str, text: Any) -> tuple[bytes, bytes]:
        shares = self._decrypt(site, from_hex(text))
        if len(shares) != 2 * SHARE_BYTES:
            raise UserError(f"the shares of {site} must have {2 * SHARE_BYTES} bytes, got {len(shares)}")
        return shares[:SHARE_BYTES], shares[SHARE_BYTES:]

    def _check_advert(self, site: str, fields: Any) -> Advert:
        advert = read_advert(fields, site)
        self.identity.verify(site, advert.certificate.encode(), advert.signed, from_hex(advert.signature))
        if advert.context != self.context:
            raise UserError(f"{site} trains another round or another model than this site: the server is inconsistent")
        for key in (advert.cipher_key, advert.mask_key):
            keys.agree(self._cipher_keys, from_hex(key), b"try")  # a key of small order is no key
        return advert

    def _has_signed(self, site: str, message: bytes, signature: Any) -> bool:
        try:
            self.identity.verify(site, self._roster[site].certificate.encode(), message, from_hex(signature))
        except UserError:
            return False
        return True

    def _encrypt(self, recipient: str, shares: bytes) -> bytes:
        purpose = keys.name_share(self._session, self.name, recipient)
        return keys.encrypt(self._agree_on_cipher(recipient, purpose), shares, purpose)

    def _decrypt(self, sender: str, sealed: bytes) -> bytes:
        purpose = keys.name_share(self._session, sender, self.name)
        try:
            return keys.decrypt(self._agree_on_cipher(sender, purpose), sealed, purpose)
        except UserError as error:
            raise UserError(f"the message of {sender} cannot be read: {error}") from None

    def _agree_on_cipher(self, other: str, purpose: bytes) -> bytes:
        return keys.agree(self._cipher_keys, from_hex(self._roster[other].cipher_key), purpose)


def hash_seed(seed: bytes) -> str:
    """Return the hash that commits a site to the seed of its own mask."""
    return hashlib.sha256(encode("seed", seed.hex())).hexdigest()


def derive_own_mask(seed: bytes, session: str) -> bytes:
    """Return the seed of a site's own mask in a session."""
    return derive_seed(seed, encode("own mask", session))


def get_sign(site: str, other: str) -> int:
    """Return the sign of the mask of a pair in one site's report; the other site has the other sign."""
    return 1 if site < other else -1
