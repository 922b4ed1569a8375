"""The tools of a shop: one file of a user's tools."""

from __future__ import annotations

TOOLS = '''
"""The shop's records."""


def order_status(order_id: str) -> dict[str, str]:
    """The state of an order.

    Args:
        order_id: As printed on the invoice.
    """
    return {"order": order_id, "state": "shipped on 3 May"}
'''
