"""Accuracies as they are written: two decimals, a half to the even digit, of the decimals as they are."""

from decimal import Decimal


def hundredths(percent: float) -> str:
    """
    >>> hundredths(51.245000000000005), hundredths(51.255), hundredths(-0.001)
    ('51.24', '51.26', '-0.00')
    """
    return str(round(Decimal(repr(round(percent, 9))), 2))
