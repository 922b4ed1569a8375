"""stub"""


def specialists() -> int:
    return 0


def doctor() -> int:
    return 0
