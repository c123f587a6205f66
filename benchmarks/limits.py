"""A table of limits: for each missed aim, the value that a client with almost no work of its own reaches (see bare.c)."""

from aims import AIMS, SIGNS


def reach(aim, server):
    """Says, in words, which clients without a library meet the aim against the same server. Those with a server of their
    own do not count."""
    sign, limit = next((SIGNS[one.sign], one.limit) for one in AIMS if str(one) == aim["aim"])
    able = [name.removeprefix("bare ") for name, value in aim["floor"][server].items()
            if name.startswith("bare frames") and sign(value, limit)]
    return "in reach of " + "; ".join(able) if able else "out of reach"


def rows(result):
    """The cells of each missed aim for which a `bare frames` client was measured."""
    for aim in result["aims"]:
        for server, met in aim["met"].items():
            floor = aim["floor"].get(server, {})
            if met or not any(name.startswith("bare frames") for name in floor):
                continue
            mark = "*" if aim["server_is_limit"][server] else ""
            reached = "; ".join(f"{name.removeprefix('bare ')}: {value:.2f}" for name, value in floor.items())
            yield aim["aim"], server, f"{aim['found'][server]:.2f}{mark}", reached, reach(aim, server)


def text(result):
    found = list(rows(result))
    out = ["", "What the limits are"] if found else []
    for aim, server, own, reached, able in found:
        out += [f"{aim} ({server}): {own}", f"    {reached}: {able}"]
    return out
