"""Declares the tools of InjecAgent by a rule, as an operator does for a policy.

The file `tools.json` of the suite has 330 tools in 38 toolkits. A tool's name begins with a verb:

- A tool with a reading verb reads, and does nothing else.
- A tool that visits a page reads public data, and the address carries text to any host.
- Each other tool acts. It also sends if a word of its name says that a call reaches another
  person, account, host or program.
- A tool reads private data, unless a word of its name says that everybody may see its result.
"""

from __future__ import annotations

import re

from benchmarks.injection.suite import ACTS, READS_PRIVATE, READS_PUBLIC, SENDS, Declaration

_VISITS = Declaration("public", acts=False, sends=("*",))
_READING = re.compile(
    "(Access|Check|Download|Find|Get|List|Look|Query|Read|Retrieve|Search|Track|Verify|View"
    "|(Image|News|Video|Web)Search)"
)
"""Beginnings of the names of tools that only read."""
_VISITING = re.compile("Navigate")
_SENDING = re.compile(
    "Add|Auto ?Fill|Call|Dispatch|Execute|Grant|Invite|Message|Order|Pay|Post|Reply|Request"
    "|Retweet|Send|Shar|Shipment|Transfer|Upload|Withdraw"
)
"""Words in the names of tools whose call reaches another person, account, host or program."""
_PUBLIC = re.compile("ProductDetails|Reviews|Tweet|(Image|News|Video|Web)Search")
"""Words in the names of tools that read what everybody may see."""


def declaration_of(name: str) -> Declaration:
    """Return the declaration of a tool.

    Args:
        name: name of the tool in its toolkit, such as `SendEmail`.
    """
    if _READING.match(name):
        return READS_PUBLIC if _PUBLIC.search(name) else READS_PRIVATE
    if _VISITING.match(name):
        return _VISITS
    return SENDS if _SENDING.search(name) else ACTS
