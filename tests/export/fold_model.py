"""A table whose items change randomly in each window: the model that folds are compared with."""

from ddbio.testing.export import Change


def key(number):
    """Return an item's key."""
    return {"pk": {"S": f"user#{number % 5}"}, "sk": {"N": str(number)}}


def item(number, rng):
    """Return an item with a random value, sometimes with an attribute that others lack."""
    late = {"late": {"S": "x"}} if rng.random() < 0.2 else {}
    return {**key(number), "total": {"N": str(rng.randrange(1000))}, **late}


def window(state, rng, micros):
    """Change the items of a state randomly, and return the net changes."""
    before = dict(state)
    for _ in range(rng.randrange(12)):
        number = rng.randrange(25)
        if rng.random() < 0.3:
            state.pop(number, None)
        else:
            state[number] = item(number, rng)
    changed = [n for n in {*before, *state} if before.get(n) != state.get(n)]
    return [Change(micros + n, key(n), new=state.get(n), old=before.get(n)) for n in changed]
